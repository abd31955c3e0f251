"""A decoder alone against GPT-2 of Hugging Face with the same weights."""

import jax
import numpy as np
import pytest

from transformer.model.batch import Batch
from transformer.model.encoder_decoder import predict
from transformer.model.params import unstack

torch = pytest.importorskip("torch", reason="torch is in the extra `oracles`")
transformers = pytest.importorskip("transformers", reason="it is in the extra `oracles`")

pytestmark = pytest.mark.slow  # needs an extra


@pytest.fixture
def model(small_model):
    return small_model(
        encoder_layers=0,
        norm="pre",
        norm_epsilon=1e-5,
        positions="learned",
        attention_bias=True,
        activation="gelu_tanh",
        embedding_scale=False,
    )


def as_tensor(array):
    return torch.tensor(np.asarray(array))


def copy_norm(ours, theirs):
    theirs.weight.copy_(as_tensor(ours.scale))
    theirs.bias.copy_(as_tensor(ours.bias))


def copy_linear(weight, bias, theirs):
    """Their Conv1D holds a weight as [inputs, outputs]."""
    theirs.weight.copy_(as_tensor(weight))
    theirs.bias.copy_(as_tensor(bias))


def gpt2(model, params):
    """GPT-2 with our parameters."""
    settings = transformers.GPT2Config(
        vocab_size=model.target_vocab_size,
        n_positions=model.max_positions,
        n_embd=model.d_model,
        n_layer=model.decoder_layers,
        n_head=model.num_heads,
        n_inner=model.d_ff,
        attn_implementation="eager",
    )
    theirs = transformers.GPT2LMHeadModel(settings).eval()
    width = model.d_model
    with torch.no_grad():
        theirs.transformer.wte.weight.copy_(as_tensor(params.embedding.target))
        theirs.transformer.wpe.weight.copy_(as_tensor(params.embedding.target_positions))
        for layer, block in zip(unstack(params.decoder), theirs.transformer.h):
            attention = layer.self_attention
            weights = [attention.w_q, attention.w_k, attention.w_v]
            biases = [attention.b_q, attention.b_k, attention.b_v]
            inward = np.concatenate([w.reshape(width, width) for w in weights], 1)
            copy_linear(inward, np.concatenate([b.reshape(-1) for b in biases]), block.attn.c_attn)
            copy_linear(attention.w_o.reshape(width, width), attention.b_o, block.attn.c_proj)
            copy_linear(layer.feed_forward.w_1, layer.feed_forward.b_1, block.mlp.c_fc)
            copy_linear(layer.feed_forward.w_2, layer.feed_forward.b_2, block.mlp.c_proj)
            copy_norm(layer.self_attention_norm, block.ln_1)
            copy_norm(layer.feed_forward_norm, block.ln_2)
        copy_norm(params.decoder.norm, theirs.transformer.ln_f)
    return theirs


def test_a_decoder_alone_equals_gpt2(model, random_params):
    params = random_params(model)
    tokens = np.random.default_rng(0).integers(0, 23, (3, 12))
    with torch.no_grad():
        theirs = gpt2(model, params)(torch.tensor(tokens)).logits
    ours = jax.jit(lambda tokens: predict(model, params, Batch(None, tokens, tokens)))(tokens)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
