"""Float operations of the model."""

from transformer.config import ModelConfig


def pair_operations(model: ModelConfig, source: int, target: int) -> int:
    """Float operations of the matrix products of a forward pass of a pair with these token counts,
    nearly all of its operations; gradients cost twice as many again.

    A weight costs 2 at each position, multiply and add. So does an element of queries and keys, and
    one of values, for each pair of positions in attention, masked ones included.
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
