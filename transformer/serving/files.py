"""Translated files, kept in memory until they are downloaded."""

import re
import secrets

MOST_BYTES = 50_000_000
"""Of all files together; the oldest are dropped."""


class TranslatedFiles:
    """Files by names that nobody can guess."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def keep(self, name: str, target: str, text: str) -> str:
        """Keeps a translation of the file `name`, and returns the name to download it by."""
        stem, _, suffix = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).rpartition(".")
        kept = f"{secrets.token_hex(16)}.{stem[:100]}_{re.sub('[^A-Za-z-]', '', target)}.{suffix}"
        self.files[kept] = text.encode()
        while sum(map(len, self.files.values())) > MOST_BYTES and len(self.files) > 1:
            del self.files[next(iter(self.files))]
        return kept

    def get(self, name: str) -> bytes | None:
        """The file, if it is there."""
        return self.files.get(name)
