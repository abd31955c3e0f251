"""Prompts in, continuations out: a decoder alone continues texts."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int

from transformer.config import Config, DecodeConfig, GenerateConfig, ModelConfig
from transformer.data.batching import pad
from transformer.data.tokenizer import Tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.batches import last_position, longest_text, power_of_two, round_up
from transformer.decoding.continuous import (
    State,
    ensure_capacity,
    search_to_end,
    search_until_pause,
)
from transformer.decoding.ensemble import Caches, Ensemble, make_ensemble
from transformer.decoding.lines import continued, distinct, one_line
from transformer.decoding.sampling import Choice, Sampling, start_sampling
from transformer.decoding.search import BeamSearch, SearchResult, keep_more, start
from transformer.model.batch import BOS, EOS
from transformer.model.cached_decoder import FIRST_CAPACITY, init_cache, prefill
from transformer.model.params import Params

PROMPT_LENGTHS = (8, 16, 32, 64, 128, 256)
"""Lengths that prompts are padded to, so that few shapes are compiled; then powers of two."""


@dataclass(frozen=True)
class Generator:
    """A language model, or several of one vocabulary, and how they continue a text.

    With `lines`, EOS ends a line of a longer text (`data.windows`) and not the text: samples
    continue after it.
    """

    ensemble: Ensemble
    settings: GenerateConfig
    tokenizer: Tokenizer
    lines: bool
    decode: DecodeConfig

    @property
    def width(self) -> int:
        """Hypotheses or samples of each text, side by side."""
        return self.settings.beam_size or self.settings.samples

    @property
    def batch_prompts(self) -> int:
        """Prompts of a batch, which has as many rows as a translator has sentences."""
        return max(1, self.decode.batch_sentences // self.width)

    @property
    def method(self) -> BeamSearch | Sampling:
        """How the next tokens are chosen."""
        asked = self.settings
        settings = DecodeConfig(
            beam_size=max(1, asked.beam_size),
            alpha=0.0,
            min_length=asked.min_length,
            no_repeat_ngram=asked.no_repeat_ngram,
            repetition_penalty=asked.repetition_penalty,
        )
        if not asked.beam_size:
            return Sampling(settings)
        return BeamSearch(settings, 1 if asked.samples == 1 else asked.beam_size)


@dataclass(frozen=True)
class Continuation:
    """A text with its prompt, and the log-probability of what was added, in nats; `truncated` if
    learned positions ended before EOS and before `max_tokens`."""

    text: str
    log_prob: float
    tokens: tuple[int, ...]
    truncated: bool = False


def make_generator(
    config: Config, settings: GenerateConfig, params: Params, tokenizers: Tokenizers
) -> Generator:
    """The generator of one model, in the precision `decode.dtype`."""
    ensemble = make_ensemble([(config.model, params)], config.decode.dtype)
    return Generator(ensemble, settings, tokenizers.target, config.data.windows, config.decode)


def continuations(
    generator: Generator, prompts: Sequence[str], numbers: Sequence[int] | None = None
) -> list[list[Continuation]]:
    """`samples` continuations of each prompt, or the best `beam_size` that a search finds, best
    first, no two of the same text.

    The samples of a prompt depend on the seed and its number (its place, without `numbers`), not on
    other prompts. Of a prompt that is longer than `decode.max_source_length` or the learned
    positions, the end is read, with a warning; another counts the truncated texts.
    """
    numbers = range(len(prompts)) if numbers is None else numbers
    encoded = [_fitting(generator, prompt) for prompt in prompts]
    found: list[list[Continuation]] = [[] for _ in prompts]
    order = iter(sorted(range(len(prompts)), key=lambda i: len(encoded[i])))
    while batch := list(islice(order, generator.batch_prompts)):
        state = _start(generator, [encoded[i] for i in batch], [numbers[i] for i in batch])
        result = search_to_end(generator.ensemble, generator.method, state)
        for row, i in enumerate(batch):
            found[i] = _read(generator, prompts[i], encoded[i], result, row)
    _warn_of_truncated(generator, sum(any(o.truncated for o in of_one) for of_one in found))
    return found


def _warn_of_truncated(generator: Generator, count: int) -> None:
    if count:
        last = last_position(generator.ensemble.models)
        warnings.warn(
            f"{count:,} texts end after {last:,} tokens, at the last position of the model "
            "(model.max_positions): use shorter prompts",
            stacklevel=3,
        )


def stream(generator: Generator, prompt: str, number: int = 0) -> Iterator[str]:
    """The first sample as it grows: the prompt, then what each token adds."""
    ids = _fitting(generator, prompt)
    state = _start(generator, [ids], [number])
    shown = ""
    while not np.asarray(state.done).all():
        state = ensure_capacity(state)
        state, result = search_until_pause(generator.ensemble, generator.method, state, tokens=1)
        one = _read(generator, prompt, ids, result, 0)[0]
        text = one.text.rstrip("\ufffd")  # a character of which bytes are still missing
        if text.startswith(shown):
            yield text[len(shown) :]
            shown = text
    _warn_of_truncated(generator, int(one.truncated))


def _fitting(generator: Generator, prompt: str) -> list[int]:
    """BOS and the tokens of a prompt on one line, or as many of the last ones as are read."""
    [ids] = generator.tokenizer.encode([one_line(prompt)])
    most = longest_text(generator.ensemble.models, generator.decode)
    if len(ids) > most:
        warnings.warn(
            f"a text of {len(ids):,} tokens was truncated to its last {most:,} "
            f"(decode.max_source_length or model.max_positions): {prompt[:60]!r} ...",
            stacklevel=3,
        )
        ids = ids[len(ids) - most :]
    return [BOS, *ids]


def _start(generator: Generator, prompts: list[list[int]], numbers: list[int]) -> State:
    """A search that has read all tokens of the prompts except the last."""
    settings, ensemble = generator.settings, generator.ensemble
    table, limits = _padded(generator, prompts)
    prompt = table[:, :-1]
    capacity = first_capacity(prompt.shape[1], prompt.shape[1] + settings.max_tokens)
    caches = _read_prompts(ensemble.models, generator.width, capacity, ensemble.params, prompt)
    limits, last = jnp.asarray(limits), jnp.asarray(table[:, -1])
    if isinstance(generator.method, BeamSearch):
        state = start(generator.method.settings, caches, limits, settings.max_tokens, last)
        return state if settings.samples == 1 else keep_more(state, 2 * settings.beam_size)
    keys = np.resize(np.asarray(numbers, np.uint32), len(table))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(settings.seed), keys)
    choice = Choice(
        temperature=jnp.float32(settings.temperature),
        top_k=jnp.int32(settings.top_k),
        top_p=jnp.float32(settings.top_p),
        end=jnp.int32(-1 if generator.lines else EOS),
    )
    length, samples = settings.max_tokens, generator.width
    return start_sampling(choice, caches, limits, last, keys, (samples, length))


def first_capacity(taken: int, most: int) -> int:
    """Tokens that a cache holds at first: more than `taken`, and such that doubling reaches `most`
    and hardly more."""
    capacity = most
    while (half := -(-capacity // 2)) >= taken + FIRST_CAPACITY:
        capacity = half
    return capacity


def _padded(
    generator: Generator, prompts: list[list[int]]
) -> tuple[Int[np.ndarray, "B P"], Int[np.ndarray, "B"]]:
    """The prompts as a table of one of few shapes, padded on the left; and the most tokens that are
    added to each row, 0 for rows of padding."""
    last = last_position(generator.ensemble.models)
    length = min(round_up(max(map(len, prompts)), PROMPT_LENGTHS), last)
    rows = min(power_of_two(len(prompts)), generator.batch_prompts)
    limits = np.zeros(rows, np.int32)
    for row, ids in enumerate(prompts):
        limits[row] = min(generator.settings.max_tokens, _most_added(generator, ids))
    return pad(prompts, rows, length, left=True), limits


def _most_added(generator: Generator, prompt: list[int]) -> int:
    """Tokens that learned positions allow after a prompt. The last one that is chosen is never
    read, so it needs no position."""
    return last_position(generator.ensemble.models) - len(prompt) + 1


@partial(jax.jit, static_argnums=(0, 1, 2))
def _read_prompts(
    models: tuple[ModelConfig, ...],
    width: int,
    capacity: int,
    params: tuple[Params, ...],
    prompts: Int[Array, "B P"],
) -> Caches:
    """Caches after reading the prompts in one pass, for `width` hypotheses of each."""
    return tuple(
        prefill(*member, init_cache(*member, None, len(prompts), capacity, width), prompts)
        for member in zip(models, params)
    )


def _read(
    generator: Generator, typed: str, prompt: list[int], result: SearchResult, row: int
) -> list[Continuation]:
    """What was found for one prompt; of a search, each text once."""
    known, most = _text(generator, prompt), _most_added(generator, prompt)
    found = result.hypotheses(row)
    texts = [continued(typed, known, _text(generator, [*prompt, *added])) for added, _ in found]
    is_search = isinstance(generator.method, BeamSearch)
    pairs = distinct(texts, found) if is_search else [*zip(texts, found)]
    return [
        Continuation(
            text,
            score,
            tuple(added),
            truncated=most <= len(added) < generator.settings.max_tokens and added[-1] != EOS,
        )
        for text, (added, score) in pairs[: generator.width]
    ]


def _text(generator: Generator, ids: list[int]) -> str:
    """The text of some tokens; with `lines`, EOS ends one."""
    if not generator.lines:
        return generator.tokenizer.decode([ids])[0]
    lines: list[list[int]] = [[]]
    for token in ids:
        lines.append([]) if token == EOS else lines[-1].append(token)
    return "\n".join(generator.tokenizer.decode(lines))
