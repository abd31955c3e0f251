"""Training steps with torch: its loop, and the same Transformer from torch.nn's layers.

A contestant of training_step.py, with torch eager or torch.compile.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import jax
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor.utils import fresh_cache

from benchmarks.measure import cores
from benchmarks.shapes import LENGTH
from transformer.config import Config, ModelConfig
from transformer.model.batch import PAD, Batch
from transformer.model.params import Attention, Layer, Norm, Params, unstack


def torch_step(
    config: Config, batches: Sequence[Batch], params: Params | None = None, compiled: bool = False
) -> Callable[[], float]:
    """`training_step` with torch.nn's layers, from our `params` or from random weights."""
    model = TorchTransformer(config.model, LENGTH)
    if params is not None:
        copy_weights(params, model)
    return training_step(config, batches, model, compiled)


def training_step(
    config: Config, batches: Sequence[Batch], model: nn.Module, compiled: bool = False
) -> Callable[[], float]:
    """A function that makes an update and returns its loss in nats a target token.

    The model gives logits for (source, target_in). `compiled`: torch.compile makes one graph of
    forward pass and loss, and one of its gradient, for this shape, when first called.
    """
    torch.set_num_threads(cores())
    settings = config.optimizer
    betas = (settings.beta_1, settings.beta_2)
    optimizer = torch.optim.Adam(model.parameters(), 1, betas, settings.epsilon, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: learning_rate(config, n + 1))
    turns = itertools.cycle([[as_tensor(ids).long() for ids in vars(b).values()] for b in batches])

    def loss_of(source: torch.Tensor, target_in: torch.Tensor, target_out: torch.Tensor):
        return F.cross_entropy(
            model(source, target_in).flatten(0, 1),
            target_out.flatten(),
            ignore_index=PAD,
            label_smoothing=config.train.label_smoothing,
        )

    if compiled:
        torch.compiler.reset()
        loss_of = torch.compile(loss_of, fullgraph=True, dynamic=False)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*next(turns))
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.item()

    return compiling_first(step) if compiled else step


def compiling_first(step: Callable[[], float]) -> Callable[[], float]:
    """`step`, whose first call finds nothing that was compiled before, in memory or on disk."""
    contexts = itertools.chain([fresh_cache()], itertools.repeat(nullcontext()))

    def step_in_context() -> float:
        with next(contexts):
            return step()

    return step_in_context


def learning_rate(config: Config, step: int) -> float:
    """Equation 3, without jax: it would stand in the memory that is measured of torch."""
    warmup = config.optimizer.warmup_steps
    return config.model.d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


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
        self.register_buffer("positions", position_table(length, config.d_model))
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
        return self.dropout(scaled + self.positions[: tokens.shape[1]])


def position_table(length: int, width: int) -> torch.Tensor:
    """The sinusoids of section 3.5 [length, width], sine and cosine in turn, as ours."""
    angles = torch.arange(length)[:, None] * 10000 ** (-torch.arange(0, width, 2) / width)
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def copy_weights(params: Params, model: TorchTransformer) -> None:
    """Gives the torch model our parameters."""
    with torch.no_grad():
        model.embedding.weight.copy_(as_tensor(params.embedding.source))
        for ours, theirs in zip(unstack(params.encoder), model.encoder.layers):
            copy_attention(ours.self_attention, theirs.self_attn)
            copy_norm(ours.self_attention_norm, theirs.norm1)
            copy_feed_forward(ours, theirs)
            copy_norm(ours.feed_forward_norm, theirs.norm2)
        for ours, theirs in zip(unstack(params.decoder), model.decoder.layers):
            copy_attention(ours.self_attention, theirs.self_attn)
            copy_norm(ours.self_attention_norm, theirs.norm1)
            copy_attention(ours.cross_attention, theirs.multihead_attn)
            copy_norm(ours.cross_attention_norm, theirs.norm2)
            copy_feed_forward(ours, theirs)
            copy_norm(ours.feed_forward_norm, theirs.norm3)


def copy_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    width = ours.w_q.shape[0]
    weights = [as_tensor(w).reshape(width, width).T for w in (ours.w_q, ours.w_k, ours.w_v)]
    biases = [as_tensor(b).reshape(width) for b in (ours.b_q, ours.b_k, ours.b_v)]
    theirs.in_proj_weight.copy_(torch.cat(weights))
    theirs.in_proj_bias.copy_(torch.cat(biases))
    copy_linear(ours.w_o, ours.b_o, theirs.out_proj)


def copy_feed_forward(ours: Layer, theirs: nn.Module) -> None:
    copy_linear(ours.feed_forward.w_1, ours.feed_forward.b_1, theirs.linear1)
    copy_linear(ours.feed_forward.w_2, ours.feed_forward.b_2, theirs.linear2)


def copy_linear(weight: jax.Array, bias: jax.Array, theirs: nn.Linear) -> None:
    """Heads, where a weight has them, are side by side in torch's."""
    theirs.weight.copy_(as_tensor(weight).reshape(theirs.in_features, theirs.out_features).T)
    theirs.bias.copy_(as_tensor(bias).flatten())


def copy_norm(ours: Norm, theirs: nn.LayerNorm) -> None:
    theirs.weight.copy_(as_tensor(ours.scale))
    theirs.bias.copy_(as_tensor(ours.bias))


def as_tensor(array) -> torch.Tensor:
    return torch.tensor(np.asarray(array))
