"""What is wrong with a corpus, before hours are spent on it: counts, examples, nothing is changed.

All of it is found in one pass over the text, and from the token ids that training uses anyway.
"""

import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Integer

from transformer.config import Config, DataConfig
from transformer.data.alignment import alignment_warning
from transformer.data.buckets import BatchPlan, make_plan
from transformer.data.corpus import check_corpora, read_pairs
from transformer.data.processing import MARKS, processing_of
from transformer.data.summary import sample_of
from transformer.data.token_store import TokenPairs, cut, encode_pairs
from transformer.data.tokenizer import Tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.model.batch import UNK

RATIO = 3.0
"""Times by which the ratio of lengths, in characters, differs from the usual one of the corpus in a
pair that looks wrong, of LONG ones."""
LONG = 30
"""Characters of the longer sentence from which on the ratio says something."""
RARE = 3
"""A character that occurs less often is likely a stray."""
UNUSUAL = f"lengths differ {RATIO:.0f} times from the usual"
"""The name of what `unusual_ratios` finds."""
EXAMPLES = 3
"""Lines that are named for each finding."""

EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC")
"""Scripts that stand in one sentence."""

Pairs = Iterable[tuple[str, str]]


@dataclass
class Finding:
    """How many pairs something is the matter with, and the first of them."""

    name: str
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, number: int, text: str) -> None:
        """Counts one more pair, and keeps the first few as examples."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"pair {number:,}: {text[:70]!r}")


@dataclass(frozen=True)
class Report:
    """What the text of the training split is like, and how it overlaps with what it is tested on.

    Findings count pairs; a pair may be in several.
    """

    pairs: int
    findings: tuple[Finding, ...]
    characters: dict[str, Counter]
    warning: str = ""

    def lines(self) -> Iterator[str]:
        """For people to read."""
        yield f"{self.pairs:,} pairs read"
        for finding in self.findings:
            share = finding.count / max(self.pairs, 1)
            yield f"  {finding.name:34} {finding.count:>9,}  {share:.2%}"
            for example in finding.examples:
                yield f"      {example}"
        if self.warning:
            yield f"  {self.warning}"
        for side, counted in self.characters.items():
            rare = sorted(c for c, n in counted.items() if n < RARE)
            shown = " ".join(map(_shown, rare[:20]))
            yield (
                f"{side}: {len(counted):,} different characters, {len(rare):,} of them less than "
                f"{RARE} times" + (f": {shown}" if rare else "")
            )


def diagnosis(config: Config, tokenizers: Callable[[DataConfig], Tokenizers]) -> Iterator[str]:
    """All that is found, for people to read: of the text, then of the tokens, for which
    `tokenizers` is called in between. Raises UserError where the data cannot be read."""
    data = config.data
    check_corpora(data)
    tests = ["test"] if data.dataset or data.test_files else []
    others = {split: read_pairs(data, split) for split in ("validation", *tests)}
    yield from examine(data, read_pairs(data, "train"), others).lines()
    made = tokenizers(data)
    pairs = cut(data, encode_pairs(data, made, "train"))
    plan = make_plan(pairs, data)
    yield from token_lines(data, made, pairs, plan, sample_of(read_pairs(data, "train")))


def examine(data: DataConfig, training: Pairs, others: Mapping[str, Pairs]) -> Report:
    """One pass over the training pairs; `others` are validation and test sets, by name."""
    held_out = {name: {_key(*pair) for pair in pairs} for name, pairs in others.items()}
    sources = {name: {source for source, _ in pairs} for name, pairs in held_out.items()}
    two_sides = len(data.sides) == 2
    finding = {
        name: Finding(name)
        for name in (
            "one side empty", "the same pair again", "source equal to target",
            *[UNUSUAL] * two_sides, "control or unassigned characters",
            "another script than most", *MARKS,
            *(f"pair also in {name}" for name in held_out),
            *(f"source also in {name}" for name in held_out),
        )
    }  # fmt: skip
    seen: set[int] = set()
    characters = {side: Counter() for side in data.sides}
    scripts: dict[str, Counter] = {side: Counter() for side in data.sides}
    by_script: list[tuple[str, ...]] = []
    all_lengths = array("L")
    count = 0
    for count, pair in enumerate(training, start=1):
        texts = dict(zip(("source", "target"), pair))
        texts = {side: texts[side] for side in data.sides}
        shown, key = " | ".join(texts.values()), _key(*pair)
        for side, text in texts.items():
            characters[side].update(text)
        own = tuple(script_of(text) for text in texts.values())
        by_script.append(own)
        for side, script in zip(texts, own):
            scripts[side][script] += bool(script)
        lengths = [len(text.strip()) for text in texts.values()]
        all_lengths.extend(lengths)
        checks = {
            "one side empty": min(lengths) == 0,
            "the same pair again": hash(key) in seen,
            "source equal to target": two_sides and key[0] == key[1] and key[0] > "",
            **dict.fromkeys(set().union(*map(processing_of, texts.values())), True),
            "control or unassigned characters": any(map(_is_strange, shown)),
            **{f"pair also in {name}": key in held_out[name] for name in held_out},
            **{
                f"source also in {name}": key not in held_out[name] and key[0] in sources[name]
                for name in held_out
                if two_sides
            },
        }
        seen.add(hash(key))
        for name, is_so in checks.items():
            if is_so:
                finding[name].add(count, shown)
    usual = tuple(max(scripts[side], key=scripts[side].get, default="") for side in data.sides)
    for number, own in enumerate(by_script, start=1):
        if any(script and script != most for script, most in zip(own, usual)):
            finding["another script than most"].add(number, ", ".join(filter(None, own)))
    warning = ""
    if two_sides:
        lengths = np.array(all_lengths).reshape(-1, 2).T
        for number in np.flatnonzero(unusual_ratios(*lengths)).tolist():
            both = f"{lengths[0, number]:,} and {lengths[1, number]:,} characters"
            finding[UNUSUAL].add(number + 1, both)
        warning = alignment_warning(*lengths)
    kept = [one for one in finding.values() if two_sides or not one.name.startswith("source ")]
    return Report(count, tuple(kept), characters, warning)


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
        changed = [text for text, again in zip(texts, back) if text.split() != again.split()]
        example = f", such as {changed[0][:70]!r}" if changed else ""
        yield (
            f"{side}: {tokens / words:.2f} tokens a word, {unknown:,} unknown tokens "
            f"({unknown / max(len(ids), 1):.3%}); {len(changed):,} of {len(texts):,} sentences do "
            f"not come back from tokens as they were{example}"
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


def script_of(text: str) -> str:
    """The script of most letters, such as LATIN or CYRILLIC; "" without letters."""
    names = (unicodedata.name(letter, "").partition(" ")[0] for letter in text if letter.isalpha())
    letters = Counter("JAPANESE OR CHINESE" if name in EAST_ASIAN else name for name in names)
    return max(letters, key=letters.get, default="")


def _key(source: str, target: str) -> tuple[str, str]:
    """What makes two pairs the same: their words."""
    return " ".join(source.split()), " ".join(target.split())


def _is_strange(character: str) -> bool:
    is_control = unicodedata.category(character) in ("Cc", "Cn", "Co", "Cs")
    return character == "\ufffd" or (is_control and character != "\t")


def _shown(character: str) -> str:
    return character if character.isprintable() else f"U+{ord(character):04X}"
