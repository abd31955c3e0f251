"""Attention as one kernel that never stores the weights (Dao et al., 2022), where a device has one.

The kernels compute what `layers.attend` does, the oracle of their tests. Neither supports a bias or
dropout on the weights; both compute in 16 bits.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import PartitionSpec
from jaxtyping import Bool, Float

LONG = {"gpu": 96, "tpu": 256}
"""Queries and keys from which the kernel is quicker than products, by the kind of accelerator:
measured (benchmarks/attention.py) and, for TPUs, estimated (benchmarks/compiled.py)."""
LANES = 128
"""A TPU's kernel takes multiples of this many queries and keys."""
LARGEST_BLOCK = 512
WIDEST = {"gpu": 128, "tpu": 1024}
"""Largest width of a head: what cuDNN supports on every GPU, and what was tried on TPUs."""


def fits_kernel(
    accelerator: str, q: Array, k: Array, bias: Array | None, dropout_rate: float
) -> bool:
    """Whether `attend_in_kernel` computes the same as `attend`, and quicker."""
    if accelerator not in LONG or bias is not None or dropout_rate:
        return False
    is_long = min(q.shape[2], k.shape[3]) >= LONG[accelerator]
    fits = q.shape[3] % 8 == 0 and q.shape[3] <= WIDEST[accelerator]
    return is_long and fits and q.dtype == k.dtype == jnp.bfloat16


def attend_in_kernel(
    accelerator: str,
    q: Float[Array, "B H T K"],
    k: Float[Array, "B H K S"],
    v: Float[Array, "B H S K"],
    mask: Bool[Array, "#B 1 #T S"],
) -> Float[Array, "B H T K"]:
    """`attend` in the kernel that a "gpu" or "tpu" has.

    The mask is one of padding, [B, 1, 1, S], or the causal one, [1, 1, T, T]: a TPU's kernel skips
    what the causal mask hides, so it goes by the shape. Where all keys are padding, values are
    finite, and gradients are right if nothing depends on them.
    """
    if mask.shape[0] > 1 and mask.shape[2] > 1:
        raise ValueError("kernels take a mask of padding, or the causal one, not both in one")
    attention = {"gpu": _attend_on_gpu, "tpu": _attend_on_tpu}[accelerator]
    return attention(q, k.swapaxes(2, 3), v, mask)


def _attend_on_gpu(q, k, v, mask):
    """cuDNN's, on NVIDIA's GPUs, which takes even numbers of queries and keys."""
    queries = q.shape[2]
    mask = jnp.broadcast_to(mask, (*mask.shape[:2], queries, k.shape[2]))
    mask = _padded(_padded(mask, 2, multiple=2), 3, multiple=2)
    q, k, v = (_padded(array, 2, multiple=2).swapaxes(1, 2) for array in (q, k, v))
    values = jax.nn.dot_product_attention(q, k, v, mask=mask, implementation="cudnn")
    return values.swapaxes(1, 2)[:, :, :queries]


def _attend_on_tpu(q, k, v, mask):
    """Splash attention, which jax brings along. Compilers do not split it over devices: each calls
    it for its own sentences."""
    is_causal = mask.shape[2] > 1
    real = jnp.ones((q.shape[0], k.shape[2]), bool) if is_causal else mask[:, 0, 0]
    call = partial(_splash, splash.CausalMask if is_causal else splash.FullMask)
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty:
        rows = PartitionSpec(mesh.axis_names)
        call = jax.shard_map(call, in_specs=rows, out_specs=rows, check_vma=False)
    return call(q, k, v, real)


def _splash(make_mask, q, k, v, real):
    """Queries and keys are padded to whole blocks; the added keys count as padding."""
    _, heads, queries, width = q.shape
    q, k, v = (_padded(array, axis=2) for array in (q / math.sqrt(width), k, v))
    shape = q.shape[2], k.shape[2]
    kernel = splash.make_splash_mha(
        splash.MultiHeadMask([make_mask(shape)] * heads),
        block_sizes=_blocks(*shape),
        head_shards=1,
        q_seq_shards=1,
    )
    is_query = jnp.ones(shape[0], jnp.int32)

    def sentence(q, k, v, real):
        return kernel(q, k, v, segment_ids=splash.SegmentIds(is_query, real))

    return jax.vmap(sentence)(q, k, v, _padded(real.astype(jnp.int32), axis=1))[:, :, :queries]


def _padded(array: Array, axis: int, multiple: int = LANES) -> Array:
    """The array padded with zeros to a multiple."""
    more = [(0, 0)] * array.ndim
    more[axis] = (0, -array.shape[axis] % multiple)
    return jnp.pad(array, more)


def _blocks(queries: int, keys: int) -> splash.BlockSizes:
    """The largest blocks that divide both, forwards and backwards."""
    q, kv = (math.gcd(length, LARGEST_BLOCK) for length in (queries, keys))
    of_queries = dict.fromkeys(("block_q", "block_q_dkv", "block_q_dq"), q)
    of_keys = (
        "block_kv",
        "block_kv_compute",
        "block_kv_dkv",
        "block_kv_dkv_compute",
        "block_kv_dq",
    )
    return splash.BlockSizes(**of_queries, **dict.fromkeys(of_keys, kv))
