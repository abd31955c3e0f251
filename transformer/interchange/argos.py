"""A translator as a package of Argos Translate, which LibreTranslate installs too.

A zip archive of one folder: a CTranslate2 model, the SentencePiece model of the source, and
metadata (https://github.com/argosopentech/argos-translate, argostranslate/package.py).
"""

import json
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer.data.languages import base_of, name_of, read_code, script_code
from transformer.data.piece_tokenizer import code_of
from transformer.data.tags import known_tags
from transformer.errors import UserError
from transformer.interchange.ctranslate2 import save_translator
from transformer.interchange.model import new_output
from transformer.interchange.standalone import standalone_model
from transformer.machine.files import atomic_file
from transformer.runs.load import Run


def argos_code(code: str) -> str:
    """Argos Translate's code of a language: that of ISO 639, but for Chinese in traditional
    characters."""
    return "zt" if (base_of(code), script_code(code)) == ("zh", "Hant") else base_of(code)


def save_package(model: Run, file: Path, quantization: str, tag: str = "") -> None:
    """Writes the package; of a model with target tags for the language of one of them, since a
    package is of one pair. Raises UserError for what Argos Translate could not use."""
    data = model.config.data
    if file.suffix != ".argosmodel":
        raise UserError(f"{file}: Argos Translate wants a name that ends in .argosmodel")
    if (tags := model.tokenizers.source.tags) and not tag:
        raise UserError(
            "a package of Argos Translate has one target language, and this model has several: "
            f"choose one with --target ({known_tags(tags)})"
        )
    languages = {"source": data.source, "target": code_of(tag) if tag else data.target}
    for side in data.sides:
        if read_code(code := languages[side]) is None:
            raise UserError(f"data.{side} ({code!r}) must be a language's code, such as en")
    source, target = map(argos_code, languages.values())
    metadata = {
        "package_version": "1.0",
        "argos_version": "1.9",
        "from_code": source,
        "from_name": name_of(data.source),
        "to_code": target,
        "to_name": name_of(languages["target"]),
    }
    with (
        new_output(file, atomic_file) as archive,
        TemporaryDirectory(prefix=f".{file.name}-", dir=file.parent) as temporary,
    ):
        root = Path(temporary) / f"translate-{source}_{target}-1_0"
        save_translator(model, root / "model", quantization, tag)
        (root / "sentencepiece.model").write_bytes(standalone_model(model.tokenizers.source))
        text = json.dumps(metadata, indent=2) + "\n"
        (root / "metadata.json").write_text(text, encoding="utf-8")
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as package:
            for path in sorted(root.rglob("*")):
                package.write(path, path.relative_to(temporary))
