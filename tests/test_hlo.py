"""Reading compiled programs (benchmarks/hlo.py): what runs, how often, and what it costs."""

import jax
import jax.numpy as jnp
import pytest

from benchmarks.hlo import collectives, executed, moved, parse, products

N, ROUNDS = 64, 5


def costs(text: str, loops: int = 1) -> tuple[int, int]:
    """Operations of all products, and bytes moved."""
    program = parse(text)
    lines = list(executed(program, loops))
    operations = sum(
        times * product.operations
        for computation, line, times in lines
        for product in products(program, computation, line)
    )
    return operations, sum(times * moved(program, *line) for *line, times in lines)


def test_products_in_a_loop_count_as_often_as_it_runs():
    def rounds(x, weights):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((N, N), (ROUNDS, N, N))]
    operations, size = costs(jax.jit(rounds).lower(*shapes).compile().as_text())
    assert operations == ROUNDS * 2 * N**3
    # At least each weight is read, and x read and written, in every round.
    assert ROUNDS * 3 * 4 * N**2 <= size <= ROUNDS * 9 * 4 * N**2


def test_a_loop_whose_end_nobody_knows_counts_as_often_as_one_says():
    def until_small(x):
        return jax.lax.while_loop(lambda x: x.sum() > 1, lambda x: x @ x, x)

    text = jax.jit(until_small).lower(jax.ShapeDtypeStruct((N, N), jnp.float32)).compile().as_text()
    assert costs(text, loops=7)[0] == 7 * 2 * N**3


def program(body: str, others: str = "") -> str:
    return f"HloModule test\n\n{others}\nENTRY %main (p: f32[8]) -> f32[8] {{\n{body}\n}}\n"


A = "  %a = bf16[4,8,16]{2,1,0} parameter(0)\n  %b = bf16[4,16,32]{2,1,0} parameter(1)\n"


@pytest.mark.parametrize(
    "line, operations, size",
    [
        (  # a product with a batch
            "dot(%a, %b), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, "
            "rhs_contracting_dims={1}",
            2 * 4 * 8 * 32 * 16,
            2 * (4 * 8 * 16 + 4 * 16 * 32) + 4 * 4 * 8 * 32,
        ),
        (  # the same by cuBLAS, whose second result is space to work in
            'custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", backend_config='
            '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_batch_dimensions":["0"],'
            '"lhs_contracting_dimensions":["2"],"rhs_contracting_dimensions":["1"]}}}',
            2 * 4 * 8 * 32 * 16,
            2 * (4 * 8 * 16 + 4 * 16 * 32) + 4 * 4 * 8 * 32,
        ),
    ],
    ids=["dot", "cublas"],
)
def test_a_product_costs_its_terms_and_what_it_reads_and_writes(line, operations, size):
    shape = "f32[4,8,32]{2,1,0}"
    shape = f"({shape}, s8[1000]{{0}})" if "custom-call" in line else shape
    assert costs(program(f"{A}  ROOT %c = {shape} {line}")) == (operations, size)


@pytest.mark.parametrize("backwards, count", [("", 2), ("Backward", 5)])
def test_fused_attention_costs_its_products(backwards, count):
    text = program(
        "  %q = bf16[4,8,2,16] parameter(0)\n  %k = bf16[4,10,2,16] parameter(1)\n"
        "  ROOT %c = (bf16[4,2,8,16], u8[999]) custom-call(%q, %k, %k), "
        f'custom_call_target="__cudnn$fmhaSoftmax{backwards}"'
    )
    size = 2 * (4 * 8 * 2 * 16 * 2 + 2 * 4 * 10 * 2 * 16)
    assert costs(text) == (count * 2 * 4 * 2 * 8 * 10 * 16, size)


@pytest.mark.parametrize("kernel, count", [("fwd", 2), ("dq", 3), ("dkv", 4)])
def test_fused_attention_of_tpus_costs_its_products(kernel, count):
    text = program(
        "  %m = s8[1,4,4] parameter(0)\n  %q = bf16[4,2,8,16] parameter(1)\n"
        "  %k = bf16[4,2,10,16] parameter(2)\n"
        f"  ROOT %splash_mha_{kernel}_segmented.1 = bf16[4,2,8,16] custom-call(%m, %q, %k, %k), "
        'custom_call_target="tpu_custom_call"'
    )
    size = 1 * 4 * 4 + 2 * (2 * 4 * 2 * 8 * 16 + 2 * 4 * 2 * 10 * 16)
    assert costs(text) == (count * 2 * 4 * 2 * 8 * 10 * 16, size)
    one_sentence = text.replace("bf16[4,", "bf16[")
    assert costs(one_sentence)[0] == count * 2 * 2 * 8 * 10 * 16


def test_an_instruction_may_go_over_several_lines():
    text = program(
        "  %q = bf16[2,8] parameter(0)\n"
        '  %c = bf16[2,8] custom-call(%q), attributes={kernel={\n"deep":"one"\n}}, '
        'metadata={op_name="jit(f)/self_attention/call"}\n'
        "  ROOT %d = bf16[2,8] copy(%c)"
    )
    (_, call, _), (_, copy, _) = executed(parse(text))
    assert (call.opcode, call.scope) == ("custom-call", "jit(f)/self_attention/call")
    assert (copy.opcode, copy.operands) == ("copy", ("c",))


@pytest.mark.parametrize(
    "window, labels, terms",
    [
        ("", "bf_io->bf", 16),  # a plain product
        ("window={size=3}, ", "b0f_0io->b0f", 3 * 16),  # summed over the window too
        ("window={size=3 pad=2_2 rhs_reversal=1}, ", "b0f_0io->b0f", 16),  # a batch in disguise
        ("window={size=3 stride=2 lhs_dilate=3}, ", "b0f_0io->b0f", 16),
    ],
)
def test_tpus_write_products_as_convolutions(window, labels, terms):
    middle = "3," if window else ""
    text = program(
        f"  %a = bf16[8,{middle}16] parameter(0)\n"
        f"  %b = bf16[{middle}16,32] parameter(1)\n"
        f"  ROOT %c = f32[8,{middle}32] convolution(%a, %b), {window}dim_labels={labels}"
    )
    assert costs(text)[0] == 2 * 8 * (3 if window else 1) * 32 * terms


SLICED = """
%sliced (p: f32[6,100], i: s32[]) -> f32[1,100] {
  %p = f32[6,100]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %s = f32[1,100]{1,0} dynamic-slice(%p, %i, %zero), dynamic_slice_sizes={1,100}
  ROOT %n = f32[1,100]{1,0} negate(%s)
}

%written (p: f32[6,100], x: f32[1,100], i: s32[]) -> f32[6,100] {
  %p = f32[6,100]{1,0} parameter(0)
  %x = f32[1,100]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %u = f32[6,100]{1,0} dynamic-update-slice(%p, %x, %i, %zero)
}
"""


def test_a_fusion_that_reads_or_writes_a_part_moves_that_part():
    text = program(
        "  %p = f32[6,100]{1,0} parameter(0)\n  %i = s32[] parameter(1)\n"
        "  %x = f32[1,100]{1,0} fusion(%p, %i), kind=kLoop, calls=%sliced\n"
        "  ROOT %y = f32[6,100]{1,0} fusion(%p, %x, %i), kind=kLoop, calls=%written",
        SLICED,
    )
    assert costs(text) == (0, 4 * (100 + 100 + 1) + 4 * (100 + 100 + 1))


def test_memory_on_the_chip_is_no_memory_of_the_device():
    text = program(
        "  %p = bf16[6,100]{1,0:T(8,128)(2,1)} parameter(0)\n"
        "  %s = (bf16[6,100]{1,0:T(8,128)(2,1)S(1)}, bf16[6,100]{1,0:T(8,128)(2,1)}, u32[]{:S(2)}) "
        "copy-start(%p)\n"
        "  %d = bf16[6,100]{1,0:T(8,128)(2,1)S(1)} copy-done(%s)\n"
        "  ROOT %n = bf16[6,100]{1,0:T(8,128)(2,1)S(1)} negate(%d)"
    )
    assert costs(text) == (0, 1200)


WHOLE, PART = "f32[80,10]{1,0}", "f32[10,10]{1,0}"
FUSED = f"""%all-reduce-scatter (p: f32[80,10]) -> f32[10,10] {{
  %p = {WHOLE} parameter(0)
  %r = {WHOLE} all-reduce(%p), channel_id=1
  %i = s32[] partition-id()
  ROOT %d = {PART} dynamic-slice(%r, %i, %i)
}}
"""


@pytest.mark.parametrize(
    "body, kind, sent",
    [
        (f"ROOT %y = {WHOLE} all-reduce(%w), channel_id=1", "all-reduce", 2 * 7 / 8),
        (f"ROOT %y = {WHOLE} all-gather(%x), channel_id=1", "all-gather", 7 / 8),
        (f"ROOT %y = {PART} reduce-scatter(%w), channel_id=1", "reduce-scatter", 7 / 8),
        (
            f"%s = (({PART}), {WHOLE}) all-gather-start(%x), channel_id=1\n"
            f"  ROOT %y = {WHOLE} all-gather-done(%s)",
            "all-gather",
            7 / 8,
        ),
        (
            f"%s = (({WHOLE}), {PART}) reduce-scatter-start(%w), channel_id=1\n"
            f"  ROOT %y = {PART} reduce-scatter-done(%s)",
            "reduce-scatter",
            7 / 8,
        ),
        (
            f"%s = ({WHOLE}, {WHOLE}, u32[], u32[]) collective-permute-start(%w), channel_id=1\n"
            f"  ROOT %y = {WHOLE} collective-permute-done(%s)",
            "collective-permute",
            1,
        ),
        (
            f"ROOT %y = {PART} fusion(%w), kind=kCustom, calls=%all-reduce-scatter",
            "reduce-scatter",
            7 / 8,
        ),
        (  # a TPU's program has parts of one in several fusions
            f"%z = {PART} fusion(%w), kind=kCustom, calls=%all-reduce-scatter\n"
            f"  ROOT %y = {PART} fusion(%w), kind=kCustom, calls=%all-reduce-scatter",
            "reduce-scatter",
            7 / 8,
        ),
    ],
)
def test_a_collective_sends_what_a_ring_of_its_devices_does(body, kind, sent):
    inputs = f"  %w = {WHOLE} parameter(0)\n  %x = {PART} parameter(1)\n  "
    [found] = collectives(parse(program(inputs + body, FUSED)))
    assert (found.kind, found.times) == (kind, 1)
    assert found.sent(8) == pytest.approx(sent * 80 * 10 * 4)
    assert found.sent(1) == (0 if kind != "collective-permute" else 80 * 10 * 4)
