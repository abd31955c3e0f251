"""A converted model beside its original: the same sentences, translated by both."""

import os
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import jax
import numpy as np
from sentencepiece import SentencePieceProcessor

from transformer.config import DataConfig
from transformer.data.corpus import CONVERTED, read_pairs
from transformer.data.files import read_lines
from transformer.data.tokenizer import BLANK
from transformer.decoding.batches import longest_output, longest_text
from transformer.decoding.lines import one_line
from transformer.decoding.scoring import log_probabilities
from transformer.decoding.translator import best_hypotheses, make_translator
from transformer.errors import UserError
from transformer.evaluation.scores import bleu
from transformer.interchange.ctranslate2 import Search, open_translator, search, token_names
from transformer.model.batch import EOS
from transformer.runs.load import Run

FEWEST_EQUAL = 0.95
"""Of translations by float32 on both sides; below, something else than ties makes them differ."""
TIE = 1e-3
"""Nats: of hypotheses this close either may win."""


@dataclass(frozen=True)
class Sample:
    """Sentences to translate, with references or without."""

    sources: list[str]
    references: list[str]


@dataclass(frozen=True)
class Side:
    """The translations of a sample by one of the two."""

    name: str
    texts: list[str]
    ids: list[list[int]]
    seconds: float
    megabytes: float

    def describe(self, sample: Sample, data: DataConfig) -> str:
        """One line: sentences a second, megabytes, and BLEU where the sample has references."""
        score = ""
        if sample.references:
            found = bleu(self.texts, sample.references, data.target, data.bleu_tokenizer)
            score = f", BLEU {found:.1f}"
        speed = len(self.texts) / self.seconds
        return f"{self.name:12}  {speed:6.1f} sentences/s, {self.megabytes:,.1f} MB{score}"


def read_sample(data: DataConfig, files: tuple[str, ...], count: int) -> Sample | None:
    """The first lines of a file of sentences and of one of references, or of the validation set.

    Prints why there is none, and returns None. Raises UserError for files that cannot be read.
    """
    if len(files) > 2:
        raise UserError(f"--sample takes a file of sentences and one of references, not {files}")
    if files:
        sides = [read_lines("--sample", file) for file in files]
        if len({len(side) for side in sides}) > 1:
            raise UserError(f"{files[0]} and {files[1]} have different numbers of lines")
        sources, references = sides if len(sides) == 2 else (sides[0], [])
        return Sample([*map(one_line, sources[:count])], references[:count])
    try:
        if data.dataset.startswith(CONVERTED):
            raise UserError("the run has no data of its own")
        pairs = list(islice(read_pairs(data, "validation"), count))
    except UserError as error:
        print(f"not compared with the original: {error}; name a file of sentences with --sample")
        return None
    return Sample([one_line(source) for source, _ in pairs], [target for _, target in pairs])


def compare(model: Run, folder: Path, sample: Sample, quantization: str, tag: str = "") -> None:
    """Translates the text with both, and prints how far they agree; `tag` is the target tag that is
    built into the converted model. Raises UserError when, without quantization, they differ in
    more than ties."""
    sample = _without_long_texts(model, sample, tag)
    beam = model.config.decode.beam_size
    sources = [tag + source for source in sample.sources]
    longest = max(map(len, model.tokenizers.source.encode(sources)), default=0)
    decode = model.config.decode
    few = replace(decode, max_extra_length=min(decode.max_extra_length, 50), max_length=0)
    limit = longest_output([model.config.model], few, longest)
    print(
        f"{len(sample.sources):,} sentences, beam {beam}, without length normalisation, on "
        f"{os.cpu_count()} cores:"
    )
    original = ours(model, sources, beam, limit)
    converted = theirs(model, folder, sample.sources, Search(beam, limit))
    sides = [original, converted]
    if (folder / "vmap.txt").exists():
        mapped = theirs(model, folder, sample.sources, Search(beam, limit, use_vmap=True))
        sides.append(replace(mapped, name="with vmap"))
    for side in sides:
        print(f"  {side.describe(sample, model.config.data)}")
    for side in sides[2:]:
        same = sum(a == b for a, b in zip(side.ids, converted.ids)) / max(1, len(side.ids))
        print(f"{same:.1%} of the translations are the same with vmap and without it")
    pairs = zip(original.ids, converted.ids)
    different = [number for number, (a, b) in enumerate(pairs) if a != b]
    equal = 1 - len(different) / max(1, len(sample.sources))
    print(f"{len(sample.sources) - len(different):,} translations are the same ({equal:.1%})")
    if quantization != "none" or not different:
        return
    print_differences(model, sources, original, converted, different)
    if equal < FEWEST_EQUAL:
        raise UserError(
            f"only {equal:.1%} of the translations are the same as those of the original, so the "
            "model was not kept"
        )


def _without_long_texts(model: Run, sample: Sample, tag: str) -> Sample:
    """The sentences that both can read; prints how many are left out."""
    most = longest_text([model.config.model], model.config.decode)
    rows = model.tokenizers.source.encode([tag + source for source in sample.sources])
    kept = [number for number, row in enumerate(rows) if len(row) <= most]
    if len(kept) < len(rows):
        print(f"{len(rows) - len(kept):,} sentences of more than {most:,} tokens are left out")
    references = [sample.references[number] for number in kept] if sample.references else []
    return Sample([sample.sources[number] for number in kept], references)


def ours(model: Run, sources: list[str], beam: int, limit: int) -> Side:
    """The original's translations, by a float32 search with the settings that CTranslate2 gets."""
    config = replace(
        model.config,
        decode=replace(
            model.config.decode,
            beam_size=beam,
            alpha=0.0,
            stop="bound",
            max_length=limit,
            max_extra_length=limit,
            forced_end=False,
            renormalise=True,
            min_length=0,
            no_repeat_ngram=0,
            repetition_penalty=1.0,
            copy_without_letters=False,
            restore_case=False,
            dtype="float32",
        ),
    )
    translator = make_translator(config, model.params, model.tokenizers)
    best_hypotheses(translator, sources)  # compiles
    start = time.perf_counter()
    found = best_hypotheses(translator, sources)
    seconds = time.perf_counter() - start
    ids = [[token for token in best.tokens if token != EOS] for best in found]
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
    return Side("original", [best.text for best in found], ids, seconds, size / 1e6)


def theirs(model: Run, folder: Path, sources: list[str], settings: Search) -> Side:
    """CTranslate2's translations of raw text with the tokenizers in the folder, on all cores."""
    cutter, joiner = (
        SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        for side in ("source", "target")
    )
    translator = open_translator(folder, "default", os.cpu_count() or 1)
    rows = cutter.encode(sources, out_type=str)
    kept = [number for number, row in enumerate(rows) if row]  # as ours, nothing of nothing
    translate = partial(search, translator, [rows[n] for n in kept], settings)
    translate()  # the first call is slower
    start = time.perf_counter()
    found = dict(zip(kept, translate()))
    seconds = time.perf_counter() - start
    pieces = [found.get(number, []) for number in range(len(sources))]
    numbers = {name: number for number, name in enumerate(token_names(model.tokenizers.target))}
    ids = [[numbers[piece] for piece in row] for row in pieces]
    texts = [one_line(joiner.decode_pieces(row).replace(BLANK, " ").strip()) for row in pieces]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Side("CTranslate2", texts, ids, seconds, size / 1e6)


def print_differences(
    model: Run, sources: list[str], original: Side, converted: Side, different: list[int]
) -> None:
    """Prints the sentences that the two translate differently, and which our model prefers."""
    source_rows = model.tokenizers.source.encode(sources)
    for number in different:
        a, b = (
            log_probabilities(
                model.config.model,
                model.params,
                np.array([[*source_rows[number], EOS]]),
                np.array([[*side.ids[number], EOS]]),
            )[0]
            for side in (original, converted)
        )
        verdict = (
            "a tie" if abs(a - b) < TIE else f"better: {'original' if a > b else 'CTranslate2'}"
        )
        print(
            f"  {number + 1}: {verdict} ({a:.4f} and {b:.4f} nats)\n"
            f"    original     {original.texts[number]}\n"
            f"    CTranslate2  {converted.texts[number]}"
        )
