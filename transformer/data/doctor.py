"""What is wrong with a corpus, before hours are spent on it: counts and examples, no changes.

It takes two passes over the text, and the token ids that training uses anyway.
"""

import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np
from jaxtyping import Bool, Integer

from transformer.config import Config, DataConfig
from transformer.config.advice import advice
from transformer.data.alignment import alignment_warning
from transformer.data.buckets import BatchPlan, make_plan
from transformer.data.corpus import check_corpora, has_test_split, read_pairs
from transformer.data.size import corpus_size, most_common, script_of
from transformer.data.summary import MARKS, processing_of, sample_of
from transformer.data.tag_names import parse_tag
from transformer.data.token_store import TokenPairs, cut, encode_pairs
from transformer.data.tokenizer import Tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.model.batch import UNK

RATIO = 3.0
"""A pair of LONG sentences whose ratio of lengths differs by this factor from that of the corpus
is unusual."""
LONG = 30
"""Characters of the longer sentence of such a pair."""
RARE = 3
"""A character that occurs less often is likely a stray."""
EMPTY, REPEATED, EQUAL = "one side empty", "the same pair again", "source equal to target"
UNUSUAL = f"unusual length ratio (factor {RATIO:.0f})"
STRANGE, OTHER_SCRIPT = "control or unassigned characters", "another script than most"
"""The names of findings."""
EXAMPLES = 3
"""Pairs that are printed for each finding."""

Pairs = Iterable[tuple[str, str]]


@dataclass
class Finding:
    """How many pairs have a problem, and the first of them."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, number: int, text: str) -> None:
        """Counts one more pair, and keeps the first few as examples."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"pair {number:,}: {text[:70]!r}")


def diagnosis(config: Config, tokenizers: Callable[[DataConfig], Tokenizers]) -> Iterator[str]:
    """All findings as text: those of the text, then those of the tokens, for which `tokenizers` is
    called in between. Raises UserError if the data cannot be read."""
    data = config.data
    check_corpora(data)
    tests = ["test"] if has_test_split(data) else []
    others = {split: read_pairs(data, split) for split in ("validation", *tests)}
    yield from examine(data, read_pairs(data, "train"), others).lines()
    yield from advice(data, corpus_size(data))
    made = tokenizers(data)
    pairs = cut(data, encode_pairs(data, made, "train"))
    plan = make_plan(pairs, data)
    yield from token_lines(data, made, pairs, plan, sample_of(read_pairs(data, "train")))


def examine(data: DataConfig, training: Pairs, others: Mapping[str, Pairs]) -> "Report":
    """One pass over the training pairs; `others` are validation and test sets, by name."""
    report = Report(data, others)
    for pair in training:
        report.add(pair)
    report.compare()
    return report


class Report:
    """What the text of the training split is like, and its overlap with validation and test set.

    Findings count pairs; a pair may be in several.
    """

    def __init__(self, data: DataConfig, others: Mapping[str, Pairs]):
        self.sides, self.is_paired = data.sides, len(data.sides) == 2
        self.others = {name: {_key(*pair) for pair in pairs} for name, pairs in others.items()}
        self.sources = {
            name: {source for source, _ in pairs if self.is_paired}
            for name, pairs in self.others.items()
        }
        names = [
            EMPTY, REPEATED, *[EQUAL, UNUSUAL] * self.is_paired, STRANGE, OTHER_SCRIPT, *MARKS,
            *(f"pair also in {name}" for name in others),
            *(f"source also in {name}" for name in others if self.is_paired),
        ]  # fmt: skip
        self.findings = {name: Finding() for name in names}
        self.warning = ""
        self.keys: set[int] = set()
        self.characters = {side: Counter[str]() for side in self.sides}
        self.scripts: list[tuple[str, ...]] = []
        self.tags: list[str] = []
        self.lengths = array("L")

    @property
    def pairs(self) -> int:
        """How many have been examined."""
        return len(self.scripts)

    def add(self, pair: tuple[str, str]) -> None:
        """Examines one more pair."""
        by_side = dict(zip(("source", "target"), pair))
        texts = [by_side[side] for side in self.sides]
        for side, text in zip(self.sides, texts):
            self.characters[side].update(text)
        self.scripts.append(tuple(map(script_of, texts)))
        self.tags.append(parse_tag(texts[0])[0])
        self.lengths.extend(len(text.strip()) for text in texts)
        key, line = _key(*pair), " | ".join(texts)
        for name in self._problems(texts, key):
            self.findings[name].add(self.pairs, line)
        self.keys.add(hash(key))

    def _problems(self, texts: Sequence[str], key: tuple[str, str]) -> Iterator[str]:
        if not all(text.strip() for text in texts):
            yield EMPTY
        if hash(key) in self.keys:
            yield REPEATED
        if self.is_paired and parse_tag(key[0])[1].strip() == key[1] > "":
            yield EQUAL
        if any(map(_is_strange, "".join(texts))):
            yield STRANGE
        yield from set().union(*map(processing_of, texts))
        for name, pairs in self.others.items():
            if key in pairs:
                yield f"pair also in {name}"
            elif key[0] in self.sources[name]:
                yield f"source also in {name}"

    def compare(self) -> None:
        """Compares each pair with the whole corpus."""
        usual = {
            tag: [
                most_common(Counter(filter(None, column)))
                for column in zip(*compress(self.scripts, (tag == own for own in self.tags)))
            ]
            for tag in {*self.tags}
        }
        for number, (scripts, tag) in enumerate(zip(self.scripts, self.tags), start=1):
            if any(script and script != most for script, most in zip(scripts, usual[tag])):
                self.findings[OTHER_SCRIPT].add(number, ", ".join(filter(None, scripts)))
        if self.is_paired:
            lengths = np.array(self.lengths).reshape(-1, 2).T
            for index in np.flatnonzero(unusual_ratios(*lengths)).tolist():
                both = f"{lengths[0, index]:,} and {lengths[1, index]:,} characters"
                self.findings[UNUSUAL].add(index + 1, both)
            self.warning = alignment_warning(*lengths)

    def lines(self) -> Iterator[str]:
        """The report as text."""
        yield f"{self.pairs:,} pairs read"
        for name, finding in self.findings.items():
            percentage = f"{finding.count / max(self.pairs, 1):.2%}"
            yield f"  {name:34} {finding.count:>9,}  {percentage}"
            for example in finding.examples:
                yield f"      {example}"
        if self.warning:
            yield f"  {self.warning}"
        for side, counted in self.characters.items():
            rare = sorted(c for c, n in counted.items() if n < RARE)
            names = (c if c.isprintable() else f"U+{ord(c):04X}" for c in rare[:20])
            yield (
                f"{side}: {len(counted):,} different characters, {len(rare):,} of them fewer than "
                f"{RARE} times" + (f": {' '.join(names)}" if rare else "")
            )


def unusual_ratios(
    source: Integer[np.ndarray, "N"], target: Integer[np.ndarray, "N"]
) -> Bool[np.ndarray, "N"]:
    """Which pairs have a ratio of lengths far from the usual one, the median of the corpus: English
    has three characters for one of Chinese."""
    long = np.maximum(source, target) >= LONG
    ratios = np.log(np.maximum(target, 1) / np.maximum(source, 1))
    both = ratios[long & (source > 0) & (target > 0)]
    usual = np.median(both) if len(both) else 0.0
    return long & (abs(ratios - usual) > np.log(RATIO))


def token_lines(
    data: DataConfig,
    tokenizers: Tokenizers,
    pairs: TokenPairs,
    plan: BatchPlan,
    sample: Sequence[tuple[str, str]],
) -> Iterator[str]:
    """What becomes of the text as tokens: how many, how long, unknown, and back to text."""
    yield (
        f"{plan.left_out:,} of {len(pairs):,} pairs are left out of training: empty, or longer "
        f"than data.max_length ({data.max_length})"
    )
    columns = dict(zip(("source", "target"), zip(*sample))) if sample else {}
    for side in data.sides:
        tokenizer: Tokenizer = getattr(tokenizers, side)
        ids, lengths = getattr(pairs, side).ids, getattr(pairs, side).lengths
        unknown = int((np.asarray(ids) == UNK).sum())
        texts = columns.get(side, ())
        words = max(sum(len(text.split()) for text in texts), 1)
        tokens = sum(map(len, tokenizer.encode(texts)))
        back = tokenizer.reproduce(texts)
        read = [text.lower() if data.lowercase else text for text in texts]
        changed = [text for text, again in zip(read, back) if text.split() != again.split()]
        example = f", such as {changed[0][:70]!r}" if changed else ""
        yield (
            f"{side}: {tokens / words:.2f} tokens per word, {unknown:,} unknown tokens "
            f"({unknown / max(len(ids), 1):.3%}); {len(changed):,} of {len(texts):,} sentences "
            f"change when they are encoded and decoded{example}"
        )
        yield from histogram(side, lengths)
    yield f"padding: {plan.padding():.1%} of all positions, in {len(plan.buckets)} batch shapes"


def histogram(side: str, lengths: np.ndarray, width: int = 40) -> Iterator[str]:
    """How many sentences have which length, in tokens, as bars."""
    edges = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2**62]
    counts = np.histogram(lengths, edges)[0]
    yield f"  {side} tokens, EOS included"
    for low, high, count in zip(edges, edges[1:], counts):
        if count:
            name = f"{low} to {high - 1}" if high < 2**62 else f"{low} and more"
            yield f"  {name:>12} {count:>10,} {'#' * max(1, round(width * count / counts.max()))}"


def _key(source: str, target: str) -> tuple[str, str]:
    """What makes two pairs the same: their words."""
    return " ".join(source.split()), " ".join(target.split())


MISPLACED = "\ufffd\ufeff\u2028\u2029"
"""The replacement character, a byte order mark within a file, and separators of lines and
paragraphs, which do not end a line here."""


def _is_strange(character: str) -> bool:
    is_control = unicodedata.category(character) in ("Cc", "Cn", "Co", "Cs")
    return character in MISPLACED or (is_control and character != "\t")
