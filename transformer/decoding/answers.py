"""Answers to requests: translations, log-probabilities of given ones, alignments."""

from collections.abc import Sequence
from typing import Any

from transformer.data.tags import target_tag, with_tag
from transformer.decoding.alignment import Links, alignments, pharaoh
from transformer.decoding.confidence import mean_confidence, words_with_confidence
from transformer.decoding.lines import one_line
from transformer.decoding.requests import Answer, Request
from transformer.decoding.scoring import score_pairs
from transformer.decoding.translator import Translator, hypotheses
from transformer.model.batch import EOS


def translated(
    translator: Translator,
    requests: Sequence[Request],
    count: int,
    aligned: bool,
    with_confidence: bool = False,
) -> list[list[Answer]]:
    """The `count` best translations of each request, best first."""
    texts = tagged_texts(translator, requests)
    prefixes = [request.prefix for request in requests]
    found = hypotheses(translator, texts, count, prefixes if any(prefixes) else None)
    sources = [text for text, of_one in zip(texts, found) for _ in of_one]
    flat = [one for of_one in found for one in of_one]
    tokens = [one.tokens for one in flat]
    added = [
        text != request.text
        for request, text, of_one in zip(requests, texts, found)
        for _ in of_one
    ]
    links = _links(translator, sources, tokens, added, aligned)
    known: list[Any] = [None] * len(flat)
    if with_confidence:
        known = words_with_confidence(translator, sources, tokens)
    answers = (
        Answer(
            one.text,
            score=one.score,
            log_prob=one.log_prob,
            tokens=_pieces(translator, one.tokens),
            alignment=link,
            confidence=mean_confidence(words) if with_confidence else None,
            words=words,
            truncated=one.truncated or None,
        )
        for one, link, words in zip(flat, links, known)
    )
    return [[next(answers) for _ in of_one] for of_one in found]


def scored(
    translator: Translator, requests: Sequence[Request], aligned: bool
) -> list[list[Answer]]:
    """How likely the translation of each request is, token by token."""
    tagged = tagged_texts(translator, requests)
    added = [text != request.text for request, text in zip(requests, tagged)]
    texts = [one_line(text) for text in tagged]
    found = score_pairs(translator, texts, [one_line(one.translation) for one in requests])
    links = _links(translator, texts, [one.tokens for one in found], added, aligned)
    return [
        [
            Answer(
                request.translation,
                log_prob=one.log_prob,
                tokens=translator.tokenizers.target.pieces(one.tokens),
                log_probs=one.log_probs,
                alignment=next(links),
            )
        ]
        for request, one in zip(requests, found)
    ]


def tagged_texts(translator: Translator, requests: Sequence[Request]) -> list[str]:
    """The texts, each with the tag of its target language, if it names one."""
    source = translator.tokenizers.source
    return [
        with_tag(source, request.text, target_tag(source, request.target)) for request in requests
    ]


def _links(translator: Translator, sources, found, added: Sequence[bool], aligned: bool):
    """The alignment of each as text, or None for each. An `added` tag does not count as a word."""
    if not aligned:
        return iter([None] * len(sources))
    links = alignments(translator, sources, found)
    return (pharaoh(without_tag(own) if tag else own) for own, tag in zip(links, added))


def without_tag(links: Links) -> Links:
    """The links between words where the first word of the source was a tag."""
    return [(s - 1, t) for s, t in links if s > 0]


def _pieces(translator: Translator, tokens: Sequence[int]) -> list[str]:
    return translator.tokenizers.target.pieces([token for token in tokens if token != EOS])
