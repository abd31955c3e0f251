"""An encoder alone: the words for the masks of a text, or its class."""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from transformer.config import Config, ModelConfig
from transformer.data.tokenizer import Tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.batches import longest_text, pad_batch
from transformer.decoding.lines import one_line
from transformer.model.batch import BOS, EOS, PAD, UNK, Batch
from transformer.model.encoder_decoder import predict
from transformer.model.params import Params

MASK = re.compile(r"_{2,}")
"""How a text marks a word to be predicted: two underscores or more."""


@dataclass(frozen=True)
class Prediction:
    """A word, or a class, and its probability; "##" before a piece that continues a word."""

    word: str
    probability: float


def fill_mask(
    config: Config, params: Params, tokenizers: Tokenizers, texts: Sequence[str], count: int
) -> list[list[list[Prediction]]]:
    """For each text and each of its masks the `count` likeliest words or pieces of words.

    A text that is longer than `decode.max_source_length` or the learned positions is cut, with a
    warning, and has no predictions for masks after the cut.
    """
    tokenizer = tokenizers.source
    masked = [with_masks(tokenizer, one_line(text)) for text in texts]
    rows = [_fitting(config, ids) for ids, _ in masked]
    found = []
    for (_, places), row, logits in zip(masked, rows, logits_of(config, params, rows)):
        words = logits.copy()
        words[:, [PAD, BOS, EOS, UNK]] = -np.inf  # which are no words
        seen = [place for place in places if place < len(row)]
        found.append([_best(words[place], count, partial(_words, tokenizer)) for place in seen])
    return found


def classify(
    config: Config, params: Params, tokenizers: Tokenizers, texts: Sequence[str], count: int
) -> list[list[Prediction]]:
    """For each text its `count` likeliest classes. Texts are cut as by `fill_mask`."""
    names = tokenizers.target.names
    found = []
    rows = [_fitting(config, ids) for ids in tokenizers.source.encode([*map(one_line, texts)])]
    for logits in logits_of(config, params, rows):
        found.append(_best(logits[0, 1:], count, lambda ids: [names[id] for id in ids]))
    return found


def with_masks(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[int]]:
    """The tokens of a text, UNK for each mask, and the places of the masks."""
    ids: list[int] = []
    places = []
    for number, part in enumerate(MASK.split(text)):
        if number:
            places.append(len(ids))
            ids.append(UNK)
        tokens = tokenizer.encode([part])[0]
        # SentencePiece begins every text with a space, which there may not be after a mask.
        begins_with_space = tokens and tokenizer.pieces(tokens[:1]) == ["\u2581"]
        ids += tokens[1:] if number and begins_with_space and part[:1] != " " else tokens
    return ids, places


def _words(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    """Pieces that begin a word, without its mark; the others after "##"."""
    return [
        piece.removeprefix("\u2581") or piece if piece.startswith("\u2581") else f"##{piece}"
        for piece in tokenizer.pieces(ids)
    ]


def _best(
    logits: Float[np.ndarray, "V"], count: int, name: Callable[[list[int]], list[str]]
) -> list[Prediction]:
    """The likeliest of the alternatives, likeliest first."""
    probabilities = np.asarray(jax.nn.softmax(logits))
    chosen = np.argsort(-probabilities, kind="stable")[:count].tolist()
    return [Prediction(word, float(probabilities[id])) for word, id in zip(name(chosen), chosen)]


def _fitting(config: Config, ids: list[int]) -> list[int]:
    """The tokens of a text, or as many of the first ones as are read together with EOS."""
    longest = longest_text([config.model], config.decode)
    if len(ids) > longest:
        warnings.warn(
            f"a text of {len(ids):,} tokens was truncated to {longest:,} "
            "(decode.max_source_length or model.max_positions)",
            stacklevel=4,
        )
    return ids[:longest]


def logits_of(
    config: Config, params: Params, rows: Sequence[list[int]]
) -> Iterator[Float[np.ndarray, "T V"]]:
    """The logits of each row of tokens, which must not be too long, computed in batches."""
    size = config.decode.batch_sentences
    for start in range(0, len(rows), size):
        batch = rows[start : start + size]
        source = pad_batch([config.model], config.decode, batch)
        yield from np.asarray(_predicted(config.model, params, source))[: len(batch)]


@partial(jax.jit, static_argnums=0)
def _predicted(
    config: ModelConfig, params: Params, source: Int[Array, "B S"]
) -> Float[Array, "B T V"]:
    return predict(config, params, Batch(source, None, None))
