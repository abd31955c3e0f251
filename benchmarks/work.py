"""Work that several scripts measure, and its size."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from benchmarks.measure import Ceilings, full_batch
from benchmarks.shapes import LENGTH
from transformer.config import Config, DecodeConfig, ModelConfig
from transformer.decoding.ensemble import make_ensemble
from transformer.decoding.search import IMPOSSIBLE
from transformer.decoding.translator import search_batch
from transformer.model.batch import BOS, EOS, PAD, Batch
from transformer.model.operations import pair_operations
from transformer.model.params import Params, init_params
from transformer.training import sharding
from transformer.training.optimizer import learning_rate
from transformer.training.programs import jit_update, new_state

Updates: TypeAlias = Callable[[int], float]
"""Makes this many updates; returns the loss of the last, in nats per target token."""


def our_updates(config: Config, batch: Batch, mesh: Mesh | None = None) -> Updates:
    """Updates of a new model on one batch as in train.py, on all devices or those of the mesh; only
    the last one is waited for."""
    mesh = mesh or sharding.make_mesh()
    update, state = jit_update(mesh, config), new_state(mesh, config)
    batch, rate = sharding.shard_batch(mesh, batch), learning_rate(config, 1)

    def run(count: int) -> float:
        nonlocal state
        for _ in range(count):
            state, metrics = update(state, batch, rate)
        jax.block_until_ready(state)
        return float(metrics.sums.loss / metrics.sums.tokens)

    return run


def step_operations(model: ModelConfig, sentences: int) -> int:
    """Float operations of the matrix products of a step: forward, for the gradients of what each
    reads, and for those of its weights."""
    return 3 * sentences * pair_operations(model, LENGTH, LENGTH)


def floor_seconds(model: ModelConfig, sentences: int, beam: int, most: Ceilings) -> float:
    """What no float32 decoding can beat that reads LENGTH tokens and writes LENGTH.

    Either the matrix products with the weights, two operations for each weight and position, at
    the speed of large ones; or reading the weights, those of decoder and output for each token
    anew, since they do not fit into a cache, at the speed of a large copy. All else is free. The
    first token has one hypothesis.
    """
    square, feed_forward = model.d_model**2, 2 * model.d_model * model.d_ff
    encoder = model.encoder_layers * (4 * square + feed_forward)
    encoder += model.decoder_layers * 2 * square  # the keys and values of cross-attention
    decoder = model.decoder_layers * (6 * square + feed_forward)
    decoder += model.d_model * model.target_vocab_size
    hypotheses = 1 + beam * (LENGTH - 1)
    operations = 2 * sentences * (encoder * LENGTH + decoder * hypotheses)
    return max(operations / most.flops, 4 * (encoder + decoder * LENGTH) / most.bytes)


def endless_search(model: ModelConfig, sentences: int, length: int) -> Callable[[], object]:
    """Beam search (beam 4, no length penalty) for exactly `length` tokens; returns the result.

    Random weights, with a bias on the output that makes the end of a sentence impossible.
    """
    model = replace(model, output_bias=True)
    settings = DecodeConfig(beam_size=4, alpha=0.0, max_extra_length=1)  # the source's EOS
    params = never_ending(init_params(model, jax.random.key(0)))
    ensemble = make_ensemble([(model, params)], settings.dtype)
    source = full_batch(sentences, length, length, model.source_vocab_size).source
    return lambda: jax.block_until_ready(search_batch(ensemble, settings, source))


def never_ending(params: Params) -> Params:
    """The same parameters, with a bias that makes the end of a sentence impossible.

    And PAD and BOS, which ours never chooses: others might, with weights that are random.
    """
    bias = params.embedding.output_bias.at[jnp.array([PAD, BOS, EOS])].set(IMPOSSIBLE)
    return params.replace(embedding=params.embedding.replace(output_bias=bias))
