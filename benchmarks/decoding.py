"""Decoding with ours against CTranslate2, the same weights on both sides, on the CPU.

    python -m benchmarks.decoding
    python -m benchmarks.decoding --shape tiny --rounds 2      tries the script

Needs CTranslate2: pip install -e '.[oracles]'

Shape B (6+6 layers, d_model 512, d_ff 2048, 8 heads, vocabulary 8,000); source sentences of 32
tokens with the end of sentence; exactly 32 tokens of output, since the end of sentence is made
impossible in ours and min_decoding_length is max_decoding_length in CTranslate2. 1 and 32
sentences, greedy and beam 4, no length penalty, one process on all cores. A repetition goes from
token ids (names of tokens for CTranslate2) to token ids: encoder, cache and search.

Beside the times stand the share of the sentences to which both give the same 32 tokens, the
largest difference between the log-probabilities of their outputs, and how many of the 32 tokens
of an output differ from each other, on average. Weights are random, but such that the last
number is not 1, which would make equal tokens mean little: see `varied_params`.
"""

import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import ctranslate2
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array

from benchmarks.ctranslate2_model import open_translator, save_model, vocabulary
from benchmarks.measure import (
    alternate,
    cores,
    machine,
    milliseconds,
    table,
    timed,
    versions,
)
from benchmarks.shapes import LENGTH, SHAPES, VOCABULARY, ShapeName, model_config
from transformer.config import Config, DecodeConfig, ModelConfig
from transformer.data.batching import pad_sources
from transformer.decoding.search import IMPOSSIBLE, SearchResult, search
from transformer.model.batch import EOS
from transformer.model.cached_decoder import decode_step, init_cache, reorder, unrolled
from transformer.model.encoder_decoder import encode
from transformer.model.params import Params, init_params


@dataclass(frozen=True)
class Decoding:
    """Time decoding with ours and with CTranslate2 in turn."""

    shape: ShapeName = "B"
    """Model shape."""
    sentences: tuple[int, ...] = (1, 32)
    """Sentences decoded together."""
    beams: tuple[int, ...] = (1, 4)
    """Beam sizes; 1: greedy."""
    rounds: int = 15
    """Repetitions of each contestant that are timed."""
    compute_type: Literal["float32", "int8"] = "float32"
    """Precision of CTranslate2's weights; ours are float32."""


def main(command: Decoding) -> None:
    # With a shared embedding, random weights would just repeat the token that they last read.
    model = replace(model_config(SHAPES[command.shape]), tying="none")
    params = varied_params(model)
    print(f"{machine()}\n{versions('jax', 'ctranslate2')}")
    print(f"shape {command.shape}: {SHAPES[command.shape]}, vocabulary {VOCABULARY:,}\n")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, params, Path(folder) / "model", max_length=2 * LENGTH)
        translator = open_translator(Path(folder) / "model", command.compute_type, cores())
        for count in command.sentences:
            sources = random_sources(count)
            for beam in command.beams:
                config = Config(model=model, decode=DecodeConfig(beam_size=beam, alpha=0.0))
                rows += compare(command, config, params, translator, sources)
    print(f"{table(rows)}\n\n{command.rounds} rounds, contestants in turn")


def compare(
    command: Decoding,
    config: Config,
    params: Params,
    translator: ctranslate2.Translator,
    sources: np.ndarray,
) -> list[dict[str, str]]:
    """The two rows of the table for one number of sentences and one beam."""
    beam = config.decode.beam_size
    ours, compile_seconds = our_decoding(config, params, sources)
    theirs = their_decoding(beam, translator, sources)
    our_tokens, our_scores = ours()
    their_tokens, their_scores = theirs()
    same = np.mean((our_tokens == their_tokens).all(1))
    furthest = np.abs(our_scores - their_scores).max()
    different = np.mean([len(set(output)) for output in our_tokens.tolist()])

    contestants = {"ours": ours, f"CTranslate2 {command.compute_type}": theirs}
    timings = alternate(contestants, command.rounds)
    return [
        {
            "sentences": str(len(sources)),
            "search": "greedy" if beam == 1 else f"beam {beam}",
            "contestant": name,
            **milliseconds(timing),
            "compile s": f"{compile_seconds:.1f}" if name == "ours" else "-",
            "time / ours": f"{timing.median / timings['ours'].median:.2f}",
            "same tokens": "-" if name == "ours" else f"{same:.0%}",
            "score difference": "-" if name == "ours" else f"{furthest:.1e}",
            "different tokens": f"{different:.0f}" if name == "ours" else "-",
        }
        for name, timing in timings.items()
    ]


Decoder = Callable[[], tuple[np.ndarray, np.ndarray]]
"""Decodes; returns the tokens [B, LENGTH] and the log-probabilities [B] of the best outputs."""


def our_decoding(config: Config, params: Params, sources: np.ndarray) -> tuple[Decoder, float]:
    """Our contestant, and the seconds of tracing and compiling it."""
    padded = pad_sources(sources, len(sources), LENGTH)
    jitted = jax.jit(partial(forced_search, config))
    compiled, compile_seconds = timed(lambda: jitted.lower(params, padded).compile())

    def decode() -> tuple[np.ndarray, np.ndarray]:
        result = compiled(params, padded)
        return np.asarray(result.tokens[:, 0]), np.asarray(result.scores[:, 0])

    return decode, compile_seconds


def forced_search(config: Config, params: Params, source: Array) -> SearchResult:
    """`translator.search_batch` with exactly LENGTH tokens of output."""
    memory = encode(config.model, params, source)
    params = unrolled(params)

    def step(cache, tokens):
        logits, cache = decode_step(config.model, params, cache, tokens)
        return logits.at[:, EOS].set(IMPOSSIBLE), cache

    cache = init_cache(config.model, params, memory, LENGTH, config.decode.beam_size)
    limits = jnp.full(source.shape[0], LENGTH)
    return search(config.decode, step, reorder, cache, limits, LENGTH)


def their_decoding(beam: int, translator: ctranslate2.Translator, sources: np.ndarray) -> Decoder:
    """CTranslate2 as the contestant. It adds the end of sentence to the source itself."""
    names = vocabulary(VOCABULARY)
    ids = {name: number for number, name in enumerate(names)}
    sentences = [[names[number] for number in source] for source in sources]

    def decode() -> tuple[np.ndarray, np.ndarray]:
        results = translator.translate_batch(
            sentences,
            beam_size=beam,
            length_penalty=0,
            min_decoding_length=LENGTH,
            max_decoding_length=LENGTH,
            return_scores=True,
        )
        tokens = [[ids[name] for name in result.hypotheses[0]] for result in results]
        return np.array(tokens), np.array([result.scores[0] for result in results])

    return decode


def varied_params(model: ModelConfig) -> Params:
    """Random parameters whose outputs depend on every weight and do not repeat one token.

    Freshly initialised, each sublayer adds as much as it is given, and after a few the token that
    was read is forgotten. Here sublayers add a quarter of that, and biases and norms are not all
    zeros and ones.
    """

    def vary(path: tuple, leaf: Array) -> Array:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if name.endswith((".w_o", ".w_2")):
            return leaf / 4
        if name.endswith((".scale", ".bias", ".b_1", ".b_2")):
            key = jax.random.key(zlib.crc32(name.encode()))
            return leaf + 0.05 * jax.random.normal(key, leaf.shape)
        return leaf

    return jax.tree_util.tree_map_with_path(vary, init_params(model, jax.random.key(0)))


def random_sources(count: int) -> np.ndarray:
    """Sentences of LENGTH tokens with the end of sentence, which is left for others to add."""
    return np.random.default_rng(0).integers(4, VOCABULARY, (count, LENGTH - 1))


if __name__ == "__main__":
    main(tyro.cli(Decoding, prog="python -m benchmarks.decoding"))
