"""The whole model against torch's encoder and decoder layers with the same weights."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.model.batch import PAD, Batch
from transformer.model.encoder_decoder import predict
from transformer.model.layers import layer_norm
from transformer.model.params import Norm, unstack

torch = pytest.importorskip("torch", reason="torch is in the extra `oracles`")

pytestmark = pytest.mark.slow  # needs an extra


def to_torch(array):
    return torch.tensor(np.asarray(array))


def copy_attention(layer, ours, width):
    inward = [w.reshape(width, width).T for w in (ours.w_q, ours.w_k, ours.w_v)]
    layer.in_proj_weight.copy_(to_torch(jnp.concatenate(inward)))
    layer.out_proj.weight.copy_(to_torch(ours.w_o.reshape(width, width).T))
    layer.in_proj_bias.zero_()
    layer.out_proj.bias.zero_()
    if ours.b_q is not None:
        layer.in_proj_bias.copy_(to_torch(jnp.stack([ours.b_q, ours.b_k, ours.b_v]).reshape(-1)))
        layer.out_proj.bias.copy_(to_torch(ours.b_o))


def copy_norm(layer, ours):
    layer.weight.copy_(to_torch(ours.scale))
    layer.bias.copy_(to_torch(ours.bias))


def torch_layer(model, ours, kind):
    """A torch layer with our weights."""
    layer = kind(
        *(model.d_model, model.num_heads, model.d_ff),
        dropout=0.0,
        activation=model.activation,
        layer_norm_eps=model.norm_epsilon,
        batch_first=True,
        norm_first=model.norm == "pre",
    )
    norms = [ours.self_attention_norm, ours.feed_forward_norm]
    copy_attention(layer.self_attn, ours.self_attention, model.d_model)
    if kind is torch.nn.TransformerDecoderLayer:
        copy_attention(layer.multihead_attn, ours.cross_attention, model.d_model)
        norms.insert(1, ours.cross_attention_norm)
    for number, norm in enumerate(norms, start=1):
        copy_norm(getattr(layer, f"norm{number}"), norm)
    layer.linear1.weight.copy_(to_torch(ours.feed_forward.w_1.T))
    layer.linear1.bias.copy_(to_torch(ours.feed_forward.b_1))
    layer.linear2.weight.copy_(to_torch(ours.feed_forward.w_2.T))
    layer.linear2.bias.copy_(to_torch(ours.feed_forward.b_2))
    return layer


def torch_embed(table, ids):
    """Scaled embeddings plus the sinusoids, written out."""
    width = table.shape[1]
    encoding = torch.zeros(ids.shape[1], width, dtype=torch.float64)
    for position in range(ids.shape[1]):
        for i in range(0, width, 2):
            angle = position / 10000 ** (i / width)
            encoding[position, i], encoding[position, i + 1] = math.sin(angle), math.cos(angle)
    return to_torch(table)[to_torch(ids).long()] * math.sqrt(width) + encoding.float()


@pytest.mark.parametrize("bias", [False, True], ids=["no attention biases", "attention biases"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_whole_model_equals_torchs_layers(
    small_model, random_params, random_batch, norm, activation, bias
):
    model = small_model(norm=norm, activation=activation, attention_bias=bias, norm_epsilon=0.01)
    params, batch = random_params(model), random_batch()
    table = params.embedding.source
    padding = to_torch(batch.source == PAD)
    x = torch_embed(table, batch.source)
    for ours in unstack(params.encoder):
        x = torch_layer(model, ours, torch.nn.TransformerEncoderLayer)(
            x, src_key_padding_mask=padding
        )
    final = torch.nn.LayerNorm(model.d_model, eps=model.norm_epsilon)
    if norm == "pre":
        copy_norm(final, params.encoder.norm)
        x = final(x)
    memory = x
    x = torch_embed(table, batch.target_in)
    future = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), diagonal=1)
    for ours in unstack(params.decoder):
        x = torch_layer(model, ours, torch.nn.TransformerDecoderLayer)(
            x, memory, tgt_mask=future, memory_key_padding_mask=padding
        )
    if norm == "pre":
        copy_norm(final, params.decoder.norm)
        x = final(x)
    expected = x @ to_torch(table).T
    ours = predict(model, params, batch)
    np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_an_encoder_alone_equals_torchs_with_the_same_head(
    small_model, random_params, random_batch, norm
):
    model = small_model(norm=norm, decoder_layers=0, output_bias=True, activation="gelu")
    params, source = random_params(model), random_batch().source
    padding = to_torch(source == PAD)
    x = torch_embed(params.embedding.source, source)
    for ours in unstack(params.encoder):
        layer = torch_layer(model, ours, torch.nn.TransformerEncoderLayer)
        x = layer(x, src_key_padding_mask=padding)
    if norm == "pre":
        final = torch.nn.LayerNorm(model.d_model, eps=model.norm_epsilon)
        copy_norm(final, params.encoder.norm)
        x = final(x)
    expected = x @ to_torch(params.embedding.source).T + to_torch(params.embedding.output_bias)
    ours = predict(model, params, Batch(source, None, None))
    real = np.asarray(source != PAD)
    np.testing.assert_allclose(ours[real], expected[~padding], atol=1e-4)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_layer_norm_equals_torchs(small_model, epsilon):
    x = 3 + 0.5 * jax.random.normal(jax.random.key(0), (2, 3, 16))
    scale, bias = jax.random.normal(jax.random.key(1), (2, 16))
    ours = layer_norm(small_model(norm_epsilon=epsilon), Norm(scale, bias), x)
    torchs = torch.nn.functional.layer_norm(
        to_torch(x), (16,), to_torch(scale), to_torch(bias), epsilon
    )
    np.testing.assert_allclose(ours, torchs, atol=1e-5)
