"""The same Transformer as Hugging Face's MarianMTModel: a contestant of training_step.py.

Marian is the paper's model in Hugging Face's library: post-norm, sinusoidal positions, one
embedding for source, target and output. What differs by default is set to ours: relu, the epsilon
of the norms, sine and cosine in turn rather than in halves. `final_logits_bias` is a buffer of
zeros, added but not learned.
"""

from collections.abc import Callable, Sequence

import torch
from torch import nn
from transformers import MarianConfig, MarianMTModel

from benchmarks.shapes import LENGTH
from benchmarks.torch_transformer import (
    as_tensor,
    copy_linear,
    copy_norm,
    position_table,
    training_step,
)
from transformer.config import Config, ModelConfig
from transformer.model.batch import BOS, EOS, PAD, Batch
from transformer.model.params import Attention, Layer, Params, unstack


def marian_step(
    config: Config, batches: Sequence[Batch], params: Params | None = None
) -> Callable[[], float]:
    """`training_step` with Marian, from our `params` or from random weights."""
    model = MarianTransformer(config.model, LENGTH)
    if params is not None:
        copy_weights(params, model.marian)
    return training_step(config, batches, model)


class MarianTransformer(nn.Module):
    """MarianMTModel with our norms and positions."""

    def __init__(self, config: ModelConfig, length: int):
        super().__init__()
        self.marian = MarianMTModel(marian_config(config, length)).train()
        for module in self.modules():
            if isinstance(module, nn.LayerNorm):
                module.eps = config.norm_epsilon
        for stack in (self.marian.model.encoder, self.marian.model.decoder):
            stack.embed_positions.weight.copy_(position_table(length, config.d_model))

    def forward(self, source: torch.Tensor, target_in: torch.Tensor) -> torch.Tensor:
        output = self.marian(
            source, attention_mask=source != PAD, decoder_input_ids=target_in, use_cache=False
        )
        return output.logits


def marian_config(config: ModelConfig, length: int) -> MarianConfig:
    return MarianConfig(
        vocab_size=config.source_vocab_size,
        max_position_embeddings=length,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        d_model=config.d_model,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        encoder_attention_heads=config.num_heads,
        decoder_attention_heads=config.num_heads,
        activation_function="relu",
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=config.activation_dropout,
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        forced_eos_token_id=EOS,
        decoder_start_token_id=BOS,
        attn_implementation="sdpa",
    )


@torch.no_grad()
def copy_weights(params: Params, marian: MarianMTModel) -> None:
    """Gives Marian our parameters."""
    marian.model.shared.weight.copy_(as_tensor(params.embedding.source))
    for ours, theirs in zip(unstack(params.encoder), marian.model.encoder.layers):
        copy_layer(ours, theirs)
    for ours, theirs in zip(unstack(params.decoder), marian.model.decoder.layers):
        copy_layer(ours, theirs)
        copy_attention(ours.cross_attention, theirs.encoder_attn)
        copy_norm(ours.cross_attention_norm, theirs.encoder_attn_layer_norm)


def copy_layer(ours: Layer, theirs: nn.Module) -> None:
    """What encoder and decoder layers have in common."""
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_norm(ours.self_attention_norm, theirs.self_attn_layer_norm)
    copy_linear(ours.feed_forward.w_1, ours.feed_forward.b_1, theirs.fc1)
    copy_linear(ours.feed_forward.w_2, ours.feed_forward.b_2, theirs.fc2)
    copy_norm(ours.feed_forward_norm, theirs.final_layer_norm)


def copy_attention(ours: Attention, theirs: nn.Module) -> None:
    copy_linear(ours.w_q, ours.b_q, theirs.q_proj)
    copy_linear(ours.w_k, ours.b_k, theirs.k_proj)
    copy_linear(ours.w_v, ours.b_v, theirs.v_proj)
    copy_linear(ours.w_o, ours.b_o, theirs.out_proj)
