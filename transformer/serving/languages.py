"""The languages of the translators that are served, and detection of the language of a text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformer.data.languages import name_of, same_language, standard_code
from transformer.data.tokenizer import BLANK, Tokenizer
from transformer.errors import UserError
from transformer.model.batch import UNK
from transformer.serving.service import ModelService

UNKNOWN_COST = 5
"""Pieces that an unknown character counts as."""


class Languages:
    """The languages of some translators."""

    def __init__(self, translators: Sequence[ModelService]):
        self.translators = translators
        self.pairs = [
            (translator, standard_code(translator.config.data.source), standard_code(code), tag)
            for translator in translators
            for code, tag in translator.targets.items()
        ]
        """Translator, source language, target language, and the target tag."""

    def described(self) -> list[dict[str, Any]]:
        """As LibreTranslate lists them: each language, and those that it is translated into."""
        targets: dict[str, set[str]] = {}
        for _, source, target, _ in self.pairs:
            targets.setdefault(source, set()).add(target)
            targets.setdefault(target, set())
        return [
            {"code": code, "name": name_of(code), "targets": sorted(targets[code])}
            for code in targets
        ]

    def find(self, source: Any, target: Any, run: Any = None) -> tuple[ModelService, str]:
        """The first translator between these languages, or the one of this name, the same region
        preferred, and its target tag, "" if it needs none. Raises UserError listing the names or
        the language pairs."""
        if run not in (None, *(names := [one.name for one in self.translators])):
            raise UserError(f"'run' must be one of: {', '.join(names) or 'none'}")
        wanted = [standard_code(code) if isinstance(code, str) else "" for code in (source, target)]
        fitting = [
            pair
            for pair in self.pairs
            if run in (None, pair[0].name) and all(map(same_language, pair[1:3], wanted))
        ]
        if not fitting:
            names = dict.fromkeys(f"{source} to {target}" for _, source, target, _ in self.pairs)
            raise UserError(f"'source' and 'target' must be one of: {', '.join(names) or 'none'}")
        nearest = max(fitting, key=lambda pair: (pair[2] == wanted[1], pair[1] == wanted[0]))
        return nearest[0], nearest[3]

    def detect(self, text: str, target: Any = None) -> dict[str, float]:
        """The confidence of each source language, the highest first; with `target`, of those that
        are translated into it."""
        tokenizers: dict[str, list[Tokenizer]] = {}
        for one in self.translators:
            if target is None or any(same_language(code, str(target)) for code in one.targets):
                source = standard_code(one.config.data.source)
                tokenizers.setdefault(source, []).append(one.tokenizers.source)
        return confidences(tokenizers, text)

    def detect_source(self, text: str, target: Any) -> dict[str, Any] | None:
        """The likeliest source language, None if nothing is translated into `target`. Raises
        UserError if several are equally likely."""
        found = self.detect(text, target)
        likeliest = [code for code, value in found.items() if value == max(found.values())]
        if len(likeliest) > 1:
            raise UserError(f"'source' cannot be detected: set it to {' or '.join(found)}")
        return {"language": likeliest[0], "confidence": found[likeliest[0]]} if found else None


def confidences(tokenizers: Mapping[str, Sequence[Tokenizer]], text: str) -> dict[str, float]:
    """The confidence of each language in percent, the highest first, given its vocabularies.

    A vocabulary spells its own language in few pieces, so the language with the fewest is the
    likeliest: each further piece costs a factor of e. Languages with the same vocabulary are
    equally likely. A single language has nothing to be compared with: its confidence is 0.
    """
    if len(tokenizers) == 1:
        return dict.fromkeys(tokenizers, 0.0)
    costs = {code: min(_cost(one, text) for one in known) for code, known in tokenizers.items()}
    weights = {code: math.exp(min(costs.values()) - cost) for code, cost in costs.items()}
    total = sum(weights.values())
    order = sorted(weights, key=weights.__getitem__, reverse=True)
    return {code: round(100 * weights[code] / total, 1) for code in order}


def _cost(tokenizer: Tokenizer, text: str) -> int:
    """Pieces of a text; each unknown character counts, since several in a row are one piece."""
    [ids] = tokenizer.encode([text])
    if UNK not in ids:
        return len(ids)
    known = "".join(tokenizer.pieces([token for token in ids if token != UNK]))
    unknown = len("".join(text.split())) - len(known.replace(BLANK, ""))
    return len(ids) + UNKNOWN_COST * max(0, unknown)
