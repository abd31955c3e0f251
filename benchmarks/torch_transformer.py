"""The same Transformer from torch.nn's layers, with our weights: the peer of training_step.py."""

import math
import operator
from collections.abc import Iterator

import jax
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from transformer.config import ModelConfig
from transformer.model.batch import PAD
from transformer.model.layers import position_encoding
from transformer.model.params import Attention, DecoderLayer, EncoderLayer, Norm, Params


class TorchTransformer(nn.Module):
    """nn.TransformerEncoder and nn.TransformerDecoder around one embedding for all three uses.

    Has biases in attention, as torch's layers do when their norms and feed-forward layers have.
    """

    def __init__(self, config: ModelConfig, length: int):
        super().__init__()
        shape = {
            "d_model": config.d_model,
            "nhead": config.num_heads,
            "dim_feedforward": config.d_ff,
            "dropout": config.dropout,
            "layer_norm_eps": config.norm_epsilon,
            "batch_first": True,
        }
        self.embedding = nn.Embedding(config.source_vocab_size, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(**shape), config.encoder_layers, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(**shape), config.decoder_layers
        )
        positions = position_encoding(None, np.arange(length)[None], config.d_model)
        self.register_buffer("positions", torch.tensor(np.asarray(positions, np.float32)))
        self.register_buffer("future", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, source: torch.Tensor, target_in: torch.Tensor) -> torch.Tensor:
        padding = source == PAD
        memory = self.encoder(self.embed(source), src_key_padding_mask=padding)
        states = self.decoder(
            self.embed(target_in),
            memory,
            tgt_mask=self.future,
            tgt_is_causal=True,
            memory_key_padding_mask=padding,
        )
        return F.linear(states, self.embedding.weight)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        scaled = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(scaled + self.positions[:, : tokens.shape[1]])


def copy_weights(params: Params, model: TorchTransformer) -> None:
    """Gives the torch model our parameters."""
    with torch.no_grad():
        model.embedding.weight.copy_(as_tensor(params.embedding.source))
        for ours, theirs in zip(layers(params.encoder.layers), model.encoder.layers):
            copy_attention(ours.self_attention, theirs.self_attn)
            copy_norm(ours.self_attention_norm, theirs.norm1)
            copy_feed_forward(ours, theirs)
            copy_norm(ours.feed_forward_norm, theirs.norm2)
        for ours, theirs in zip(layers(params.decoder.layers), model.decoder.layers):
            copy_attention(ours.self_attention, theirs.self_attn)
            copy_norm(ours.self_attention_norm, theirs.norm1)
            copy_attention(ours.cross_attention, theirs.multihead_attn)
            copy_norm(ours.cross_attention_norm, theirs.norm2)
            copy_feed_forward(ours, theirs)
            copy_norm(ours.feed_forward_norm, theirs.norm3)


def layers(stack: EncoderLayer | DecoderLayer) -> Iterator[EncoderLayer | DecoderLayer]:
    """The layers of a stack one by one."""
    count = jax.tree.leaves(stack)[0].shape[0]
    for number in range(count):
        yield jax.tree.map(operator.itemgetter(number), stack)


def copy_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    width = ours.w_q.shape[0]
    weights = [as_tensor(w).reshape(width, width).T for w in (ours.w_q, ours.w_k, ours.w_v)]
    biases = [as_tensor(b).reshape(width) for b in (ours.b_q, ours.b_k, ours.b_v)]
    theirs.in_proj_weight.copy_(torch.cat(weights))
    theirs.in_proj_bias.copy_(torch.cat(biases))
    theirs.out_proj.weight.copy_(as_tensor(ours.w_o).reshape(width, width).T)
    theirs.out_proj.bias.copy_(as_tensor(ours.b_o))


def copy_feed_forward(ours: EncoderLayer | DecoderLayer, theirs: nn.Module) -> None:
    theirs.linear1.weight.copy_(as_tensor(ours.feed_forward.w_1).T)
    theirs.linear1.bias.copy_(as_tensor(ours.feed_forward.b_1))
    theirs.linear2.weight.copy_(as_tensor(ours.feed_forward.w_2).T)
    theirs.linear2.bias.copy_(as_tensor(ours.feed_forward.b_2))


def copy_norm(ours: Norm, theirs: nn.LayerNorm) -> None:
    theirs.weight.copy_(as_tensor(ours.scale))
    theirs.bias.copy_(as_tensor(ours.bias))


def as_tensor(array) -> torch.Tensor:
    return torch.tensor(np.asarray(array))
