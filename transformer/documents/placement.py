"""Markup transfer: the markup of a sentence is put into its translation by word alignment.

Zenkel et al. (2021), "Automatic Bilingual Markup Transfer", compare such methods.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from transformer.documents.document import Pieces
from transformer.documents.segment import Item, Segment
from transformer.documents.units import Span, units


class Aligned(NamedTuple):
    """A translation, how strongly each of its units is aligned with each unit of the source, and
    whether it reached its longest length without an end."""

    text: str
    weights: Float[np.ndarray, "T S"]
    truncated: bool = False


class Node(NamedTuple):
    """The numbers of the two tags of an element, and the markup in it; of other markup, its own
    number twice."""

    first: int
    last: int
    inner: "list[Node]"


class Range(NamedTuple):
    """Units from `first` to before `last`; without units, the gap before `first`."""

    first: int
    last: int


def put_back(segment: Segment, translation: Aligned) -> Pieces:
    """The translation with the markup of its segment.

    Each item occurs once, and elements are nested as they were. An element stands around the run
    of units most of whose alignment is with its words. Other markup stands before the unit that is
    aligned with the word after it. A break replaces the space that divides the translation like the
    source; one of whitespace is left out if the translation has too few words, and of line breaks
    that do not matter, if it has no spaces.
    """
    if not segment.items:
        return [(translation.text, None)]
    pieces: Pieces = []
    done, text = 0, translation.text
    for place, number in Placing.of(segment, translation).places():
        item, place = segment.items[number], max(place, done)
        end = place + (item.role == "break" and text[place : place + 1] == " ")
        pieces += [(text[done:place], None), (text[place:end], item)]
        done = end
    return [*pieces, (text[done:], None)]


@dataclass(frozen=True)
class Placing:
    """How the items of a segment are placed in its translation: the units of both, and the share of
    each target unit's alignment that goes to each source unit."""

    segment: Segment
    source: list[Span]
    target: list[Span]
    shares: Float[np.ndarray, "T S"]
    is_broken: Bool[np.ndarray, "N"]
    """Whether there is a break in each gap of the target; it is set when breaks are placed."""
    length: int

    @classmethod
    def of(cls, segment: Segment, translation: Aligned) -> "Placing":
        """The units are cut where markup stands inside a word. A target unit that is aligned with
        the same word is cut in the same places."""
        text, whole, source = segment.text, units(segment.text), []
        parts: list[range] = []
        cuts = {item.place for item in segment.items}
        for start, end in whole:
            inner = (place for place in range(start + 1, end) if place in cuts)
            edges = [*pairwise([start, *inner, end])]
            parts.append(range(len(source), len(source) + len(edges)))
            source += edges
        counts = np.array([*map(len, parts)], int)
        target, rows = [], []
        found = units(translation.text)
        for (start, end), weights in zip(found, translation.weights, strict=True):
            best = int(weights.argmax()) if weights.any() else -1
            if best >= 0 and text[slice(*whole[best])] == translation.text[start:end]:
                first = whole[best][0]
                for part in parts[best]:
                    target.append(tuple(start + place - first for place in source[part]))
                    rows.append(np.zeros(len(source)))
                    rows[-1][part] = 1
            else:
                target.append((start, end))
                rows.append(np.repeat(weights / counts, counts))
        shares = np.array(rows).reshape(len(target), len(source))
        shares = shares / np.maximum(shares.sum(1, keepdims=True), 1e-9)
        is_broken = np.zeros(len(target) + 1, bool)
        return cls(segment, source, target, shares, is_broken, len(translation.text))

    @cached_property
    def has_space(self) -> Bool[np.ndarray, "N"]:
        """Whether there is a space in each gap of the target."""
        edges = (_edges(self.target, gap, self.length) for gap in range(len(self.target) + 1))
        return np.array([left < right for left, right in edges])

    @cached_property
    def across(self) -> Float[np.ndarray, "gaps source_gaps"]:
        """The alignment between units on different sides, if the target is divided at one gap and
        the source at another."""
        before = np.pad(self.shares, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
        return (before[:, -1:] + before[-1:] - 2 * before).round(3)

    def places(self) -> Iterator[tuple[int, int]]:
        """The place in the translation and the number of each item, in order."""
        whole = Range(0, len(self.source)), Range(0, len(self.target))
        return self._placed(tree(self.segment.items), *whole)

    def _placed(self, nodes: list[Node], source: Range, target: Range) -> Iterator[tuple[int, int]]:
        """Those of the markup in an element that has these units."""
        ranges = self._elements(nodes, source, target)
        inside = [gap for first, last in ranges.values() for gap in range(first + 1, last)]
        gaps = np.setdiff1d(np.arange(target.first, target.last + 1), inside)
        for first, *_ in nodes:
            if first not in ranges:
                gap = self._gap(self.segment.items[first], source, target, gaps)
                if gap is not None:
                    ranges[first] = Range(gap, gap)
        placed = []
        for node in nodes:
            if node.first in ranges:
                own = ranges[node.first]
                start = self._character(self.segment.items[node.first], own.first)
                end = self._character(self.segment.items[node.last], own.last)
                placed.append((start, max(start, end), node, own))
        for start, end, node, own in sorted(placed, key=lambda one: (*one[:2], one[2].first)):
            yield start, node.first
            if node.last != node.first:
                yield from self._placed(node.inner, self._words(node), own)
                yield end, node.last

    def _elements(self, nodes: list[Node], source: Range, target: Range) -> dict[int, Range]:
        """The target units of each element with source units, by its first item; no two elements
        share one."""
        ranges: dict[int, Range] = {}
        is_free = np.zeros(len(self.target), bool)
        is_free[slice(*target)] = True
        for node in nodes:
            words = self._words(node)
            if words.first == words.last:
                continue
            if words == source:
                ranges[node.first] = target
            elif found := best_run(self.shares[:, slice(*words)].sum(1), is_free):
                ranges[node.first] = found
                is_free[slice(*found)] = False
        return ranges

    def _words(self, node: Node) -> Range:
        """The source units in an element."""
        return Range(*(self._units_before(self.segment.items[number].place) for number in node[:2]))

    def _units_before(self, place: int) -> int:
        return bisect_right(self.source, place, key=lambda unit: unit[1])

    def _gap(
        self, item: Item, source: Range, target: Range, gaps: Int[np.ndarray, "N"]
    ) -> int | None:
        """The unit before which the item stands, by the gaps outside all other elements. None if
        there is no place for a break of whitespace."""
        before = self._units_before(item.place)
        share = (before - source.first) / max(1, source.last - source.first)
        gap = target.first + round(share * (target.last - target.first))
        if item.role == "break":
            return self._gap_of_break(item, gaps, gap)
        if source.first < before < source.last and target.first < target.last:
            aligned = self.shares[slice(*target), before]
            if aligned.any():
                gap = target.first + int(aligned.argmax())
        return int(gaps[abs(gaps - gap).argmin()])

    def _gap_of_break(self, item: Item, gaps: Int[np.ndarray, "N"], near: int) -> int | None:
        """The gap that divides the translation as the break divides the source: at a space, if
        there is one without a break; with the least alignment across; nearest to `near`."""
        before = self._units_before(item.place)
        free = gaps[(gaps > 0) & (gaps < len(self.target)) & ~self.is_broken[gaps]]
        if item.raw.isspace():
            if self.segment.lines != "kept":
                free = free[self.has_space[free]]
            if not len(free):
                return None
        gaps = free if len(free) else gaps
        costs = abs(gaps - near), self.across[gaps, before], ~self.has_space[gaps]
        gap = int(gaps[np.lexsort(costs)[0]])
        self.is_broken[gap] = True
        return gap

    def _character(self, item: Item, gap: int) -> int:
        """The place of an item in a gap between units: before or after the space as in the source,
        otherwise a closing tag at the word before it, and other markup at the word after it."""
        before = self._units_before(item.place)
        left, right = _edges(self.source, before, item.place)
        is_left = item.place == left if left < right else item.role == "close"
        edges = _edges(self.target, gap, self.length)
        return edges[0] if is_left or item.role == "break" else edges[1]


def tree(items: tuple[Item, ...]) -> list[Node]:
    """The markup of a text by element."""
    top: list[Node] = []
    around = [top]
    for number, item in enumerate(items):
        if item.role == "close":
            around.pop()
        else:
            node = Node(number, item.other, [])
            around[-1].append(node)
            if item.role == "open":
                around.append(node.inner)
    return top


def best_run(shares: Float[np.ndarray, "T"], is_free: Bool[np.ndarray, "T"]) -> Range | None:
    """The run of free units whose shares exceed one half by the largest sum; the unit of the
    largest share if none exceeds it. None if all shares are 0."""
    if not (shares * is_free).any():
        return None
    own = np.flatnonzero(is_free & (shares > 0.5))
    if not len(own):
        unit = int((shares * is_free).argmax())
        return Range(unit, unit + 1)
    best, found = 0.0, None
    start, total = 0, 0.0
    for number in range(own[0], own[-1] + 1):
        gain = shares[number] - 0.5 if is_free[number] else -np.inf
        start, total = (number, gain) if total <= 0 else (start, total + gain)
        if total > best:
            best, found = total, Range(start, number + 1)
    return found


def _edges(spans: list[Span], gap: int, end: int) -> Span:
    """The end of the unit before a gap, and the start of the unit after it."""
    left = spans[gap - 1][1] if gap else 0
    return left, spans[gap][0] if gap < len(spans) else end
