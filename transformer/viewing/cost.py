"""What a run has cost: operations, hours, energy; what is not measured is called an estimate."""

from collections.abc import Sequence

from transformer.config import ModelConfig
from transformer.runs.starts import Start

WATTS = {"core": 10, "device": 400}
"""An assumption, with memory and cooling: of a core of a server, and of a GPU or TPU at work."""


def pair_operations(model: ModelConfig, source: int, target: int) -> int:
    """Float operations of the matrix products of a forward pass with so many tokens, which are
    nearly all of its operations; gradients cost twice as many again.

    A weight costs 2 at each position, multiply and add. So does an element of queries and keys, and
    one of values, for each pair of positions that attention compares; those that causal masks hide
    are computed too.
    """
    width, encoder, decoder = model.d_model, model.encoder_layers, model.decoder_layers
    cross = decoder if encoder else 0
    feed_forward = 2 * width * model.d_ff
    at_source = encoder * (4 * width**2 + feed_forward) + cross * 2 * width**2
    at_target = decoder * (4 * width**2 + feed_forward) + cross * 2 * width**2
    if decoder:
        at_target += width * model.target_vocab_size
    else:
        at_source += width * (model.classes or model.source_vocab_size)
    pairs = encoder * source**2 + decoder * target**2 + cross * source * target
    return 2 * (source * at_source + target * at_target + 2 * width * pairs)


def unit_hours(starts: Sequence[Start], seconds: float) -> dict[str, float]:
    """Hours of cores or devices, of training that took so many seconds in all."""
    hours: dict[str, float] = {}
    ends = [*(start.seconds for start in starts[1:]), seconds]
    for start, end in zip(starts, ends):
        used = max(end - start.seconds, 0) * start.count / 3600
        hours[start.unit] = hours.get(start.unit, 0) + used
    return hours


def kilowatt_hours(hours: dict[str, float]) -> float:
    """By the assumption WATTS."""
    return sum(WATTS[unit] * spent for unit, spent in hours.items()) / 1000
