"""Reading a compiled program: XLA's text of it, instruction by instruction.

XLA prints what it compiled as computations of one instruction a line (the format stands nowhere but
in its parser, https://github.com/openxla/xla/blob/main/xla/hlo/parser/hlo_parser.cc):

    %fusion.1 = (f32[8,128]{1,0}, f32[8]{0}) fusion(%p, %q), calls=%fused, metadata={...}

Here is what an estimate needs of it: which instructions run, how often, how many operations their
matrix products take and how many bytes they move between the device's memory and its processors.
"""

import math
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

BITS = {"pred": 8, "token": 0, "opaque": 0}
"""Of the types whose name does not say how many they have."""
FREE = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "replica-id", "iota", "opt-barrier",
}  # fmt: skip
"""Instructions that move nothing: they name, or make up, what others read."""
COLLECTIVES = (
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
)  # fmt: skip
FUSIONS = {"fusion", "fusion-start"}
SLICES = {"dynamic-slice", "slice", "gather"}


class Shape(NamedTuple):
    """An array: its type, its axes, and whether it stands in memory on the chip (TPUs name it)."""

    dtype: str
    dims: tuple[int, ...]
    on_chip: bool

    @property
    def elements(self) -> int:
        return math.prod(self.dims)

    @property
    def size(self) -> int:
        """Bytes."""
        named = self.dtype in BITS
        bits = BITS[self.dtype] if named else int(re.search(r"\d+", self.dtype)[0])
        return self.elements * bits // 8

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"


class Instruction(NamedTuple):
    """One line. `shapes` are those of the result, one for each element of a tuple."""

    name: str
    shapes: tuple[Shape, ...]
    opcode: str
    operands: tuple[str, ...]
    attributes: str
    literal: str
    is_root: bool

    def attribute(self, pattern: str) -> str:
        """What the first group of the pattern finds in the attributes; "" if it finds nothing."""
        found = re.search(pattern, self.attributes)
        return found[1] if found else ""

    @property
    def scope(self) -> str:
        """Where in the program's source it comes from: `jax.named_scope`s and functions."""
        return self.attribute(r'op_name="([^"]*)"')

    @property
    def called(self) -> list[str]:
        """Computations that it runs or is made of."""
        several = self.attribute(r"branch_computations=\{([^}]*)\}")
        one = re.findall(
            r"(?:calls|body|to_apply|called_computations)=\{?%?([\w.\-]+)", self.attributes
        )
        return one + re.findall(r"%([\w.\-]+)", several)


class Computation:
    """A list of instructions; the last, or the one marked ROOT, is the result."""

    def __init__(self, instructions: list[Instruction]):
        self.instructions = instructions

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @cached_property
    def root(self) -> Instruction:
        marked = [instruction for instruction in self.instructions if instruction.is_root]
        return (marked or self.instructions)[-1]

    @cached_property
    def readers(self) -> dict[str, list[Instruction]]:
        """The instructions that read the result of each instruction."""
        found: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for operand in set(instruction.operands):
                found.setdefault(operand, []).append(instruction)
        return found

    @cached_property
    def parameters(self) -> list[Instruction]:
        found = [line for line in self.instructions if line.opcode == "parameter"]
        return sorted(found, key=lambda line: int(line.literal))


class Program(NamedTuple):
    """All computations by name, and the name of the one that is run."""

    computations: dict[str, Computation]
    entry: str


def parse(text: str) -> Program:
    """The program that XLA printed."""
    computations, entry = {}, ""
    name, lines = "", []
    for line in _joined(text):
        header = re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line)
        if header:
            name, lines = header[2], []
            entry = name if header[1] else entry
        elif line == "}":
            computations[name] = Computation(lines)
        elif name and " = " in line:
            lines.append(_instruction(line))
    return Program(computations, entry)


def _joined(text: str) -> Iterator[str]:
    """Lines, and instructions of several lines as one: those of a TPU's kernels."""
    instruction = ""
    for line in text.splitlines():
        begins = re.match(r"\s+(ROOT )?%?[\w.\-]+ = |\}$|(ENTRY )?%?[\w.\-]+ \(|HloModule|$", line)
        if begins:
            yield instruction
            instruction = line
        else:
            instruction += line
    yield instruction


def _instruction(line: str) -> Instruction:
    left, _, right = line.strip().partition(" = ")
    end = _closing(right) if right.startswith("(") else right.index(" ")
    rest = right[end:].lstrip()
    opcode, _, rest = rest.partition("(")
    end = _closing("(" + rest) - 1
    inside, attributes = rest[: end - 1], rest[end:]
    return Instruction(
        name=left.removeprefix("ROOT ").removeprefix("%"),
        shapes=tuple(_shapes(right[: right.index(f" {opcode}(")])),
        opcode=opcode,
        operands=tuple(re.findall(r"%([\w.\-]+)", inside)),
        attributes=attributes,
        literal=inside,
        is_root=left.startswith("ROOT "),
    )


def _closing(text: str) -> int:
    """Just behind the parenthesis that closes the first."""
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return index + 1
    raise ValueError(f"parentheses do not match: {text[:80]}")


def _shapes(text: str) -> Iterator[Shape]:
    for dtype, dims, layout in re.findall(r"(\w+)\[([\d,<=]*)\](\{[^}]*\})?", text):
        axes = tuple(int(axis.strip("<=")) for axis in dims.split(",") if axis)
        yield Shape(dtype, axes, re.search(r"S\([1-9]\d*\)", layout) is not None)


def executed(program: Program, loops: int = 1) -> Iterator[tuple[Computation, Instruction, int]]:
    """Each instruction that is run, the computation it stands in, and how often it is.

    Loops whose end the compiler does not know count as `loops` rounds. What a fusion is made of
    is not run by itself.
    """
    yield from _executed(program, program.computations[program.entry], 1, loops)


def _executed(program, computation, times, loops):
    for line in computation.instructions:
        if line.opcode == "while":
            rounds = _rounds(program, line) or loops
            body = program.computations[line.attribute(r"body=%?([\w.\-]+)")]
            yield from _executed(program, body, times * rounds, loops)
        elif line.opcode in ("call", "conditional", "async-start"):
            for name in line.called:
                yield from _executed(program, program.computations[name], times, loops)
        elif line.opcode not in FREE and not line.opcode.endswith(("-done", "-update")):
            yield computation, line, times


def _rounds(program: Program, loop: Instruction) -> int | None:
    """How often a loop runs, where the compiler says so, or the condition is that of a scan: a
    counter below the only number there is."""
    known = loop.attribute(r'known_trip_count[":={\s]+n[":\s]+(\d+)')
    if known:
        return int(known)
    condition = program.computations[loop.attribute(r"condition=%?([\w.\-]+)")]
    numbers = [line.literal for line in condition.instructions if line.opcode == "constant"]
    others = [line for line in condition.instructions if line.opcode not in FREE]
    return int(numbers[0]) if len(numbers) == 1 and len(others) == 1 else None


class Product(NamedTuple):
    """A matrix product: the types and shapes of what it multiplies, and of the result."""

    a: Shape
    b: Shape
    result: Shape
    operations: int
    """Float operations: 2 for each multiplication and its addition."""
    scope: str


def products(program: Program, computation: Computation, line: Instruction) -> list[Product]:
    """The matrix products that an instruction computes, those inside a fusion included."""
    if line.opcode in FUSIONS:
        inner = program.computations[line.called[0]]
        return [p for each in inner.instructions for p in products(program, inner, each)]
    if "__cudnn$fmha" in line.attributes or line.name.startswith("splash_mha"):
        return [_fused_attention(computation, line)]
    is_custom = "matmul" in line.attributes or "gemm" in line.attributes
    if line.opcode not in ("dot", "convolution") and not (
        line.opcode == "custom-call" and is_custom
    ):
        return []
    a, b = (computation.by_name[name].shapes[0] for name in line.operands[:2])
    result = line.shapes[0]
    if line.opcode == "convolution":
        summed = _convolution_terms(line, b)
    else:
        axes = line.attribute(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)')
        summed = math.prod(a.dims[int(axis)] for axis in re.findall(r"\d+", axes))
    return [Product(a, b, result, 2 * result.elements * summed, line.scope)]


def _fused_attention(computation: Computation, line: Instruction) -> Product:
    """Scores and values, of q and k; backwards five such products, or three for the gradient of q
    and four for those of k and v. Axes are [B, T, H, K] in cuDNN's kernel, [B, H, T, K] in a
    TPU's (or [H, T, K] of one sentence), whose first operands are blocks of the mask. Counts what a
    mask hides, too."""
    operands = [computation.by_name[name].shapes[0] for name in line.operands]
    q, k = [shape for shape in operands if shape.dtype == "bf16" and len(shape.dims) > 2][:2]
    if "fmha" in line.attributes:
        count, keys = (5 if "Backward" in line.attributes else 2), k.dims[1]
    else:
        count, keys = {"fwd": 2, "dq": 3, "dkv": 4}[line.name.split("_")[2]], k.dims[-2]
    return Product(q, k, line.shapes[0], count * 2 * q.elements * keys, line.scope)


def _convolution_terms(line: Instruction, b: Shape) -> int:
    """Products that are added up for one element: TPUs write matrix products as convolutions.

    The kernel's input features are summed over. Its window either is summed over too or, where the
    input is padded or spread so that one element of the window meets it, stands for a batch.
    """
    kernel = line.attribute(r"dim_labels=\w+_(\w+)->")
    features = b.dims[kernel.index("i")]
    sizes = [int(n) for n in line.attribute(r"window=\{size=([\dx]+)").split("x") if n]
    spread = line.attribute(r"window=\{[^}]*lhs_dilate=([\dx]+)").split("x")
    padded = line.attribute(r"window=\{[^}]*pad=([\d_x\-]+)").split("x")
    for axis, size in enumerate(sizes):
        is_batch = (axis < len(spread) and spread[axis] not in ("", "1")) or (
            axis < len(padded) and padded[axis] not in ("", "0_0")
        )
        features *= 1 if is_batch else size
    return features


def moved(program: Program, computation: Computation, line: Instruction) -> int:
    """Bytes that an instruction reads from and writes to the device's memory, at least.

    A part that is sliced out of an array, or written into one in place, counts as that part.
    """
    operands = [computation.by_name[name] for name in line.operands if name in computation.by_name]
    written = _from_memory(line.shapes)
    if line.opcode in FUSIONS:
        inner = program.computations[line.called[0]]
        results = line.shapes if line.opcode == "fusion" else inner.root.shapes
        return _moved_by_fusion(inner, operands, results)
    if line.opcode == "custom-call":  # bytes that nobody asked for are space to work in
        written = _from_memory(shape for shape in line.shapes if shape.dtype not in ("s8", "u8"))
    if line.opcode in SLICES:
        return 2 * written
    if line.opcode == "slice-start":  # ((whole), part, context)
        return line.shapes[1].size + _from_memory(line.shapes[1:2])
    if line.opcode == "copy-start":  # (new, old, context)
        return _from_memory(line.shapes[:2])
    if line.opcode == "dynamic-update-slice":
        return 2 * _from_memory(operands[1].shapes)
    return written + sum(_from_memory(operand.shapes) for operand in operands)


class Collective(NamedTuple):
    """A communication between devices."""

    kind: str
    """One of COLLECTIVES."""
    size: int
    """Bytes of the whole arrays, on all devices together."""
    times: int
    """How often it runs."""

    def sent(self, devices: int) -> float:
        """Bytes that each device sends, if the devices form a ring."""
        shares = {"all-reduce": 2 * (devices - 1) / devices, "collective-permute": 1.0}
        return self.times * self.size * shares.get(self.kind, (devices - 1) / devices)


def collectives(program: Program, loops: int = 1) -> list[Collective]:
    """All communication, each channel once: a TPU's program has parts of one in several fusions."""
    found: dict[str, Collective] = {}
    for computation, line, times in executed(program, loops):
        fused = line.called[0] if line.opcode in FUSIONS else ""
        where = program.computations[fused] if fused else computation
        for each in where.instructions if fused else [line]:
            kind = each.opcode.removesuffix("-start")
            channel = each.attribute(r"channel_id=(\d+)") or each.name
            if kind in COLLECTIVES and channel not in found:
                size = _whole(where, each, kind)
                # A TPU sums all, and keeps its own part.
                kind = "reduce-scatter" if "reduce-scatter" in fused else kind
                found[channel] = Collective(kind, size, times)
    return [*found.values()]


def _whole(where: Computation, line: Instruction, kind: str) -> int:
    """Bytes of what is gathered, summed or sent. The result of the first half of an asynchronous
    instruction names operands too, that of its second half does not."""
    if kind == "reduce-scatter":
        shapes = [shape for name in line.operands for shape in where.by_name[name].shapes]
    else:
        readers = where.readers.get(line.name, [])
        ends = [reader for reader in readers if reader.opcode.endswith("-done")]
        shapes = (ends[0] if ends else line).shapes
    return sum(shape.size for shape in shapes)


def _from_memory(shapes: Iterable[Shape]) -> int:
    return sum(shape.size for shape in shapes if not shape.on_chip)


def _moved_by_fusion(
    inner: Computation, operands: list[Instruction], results: tuple[Shape, ...]
) -> int:
    read = 0
    for parameter, operand in zip(inner.parameters, operands):
        most = _from_memory(operand.shapes)
        read += min(most, _read(inner, parameter)) if most else 0
    root = inner.root
    roots = [root] if root.opcode != "tuple" else [inner.by_name[name] for name in root.operands]
    return read + sum(
        0 if shape.on_chip else _written(inner, each, shape) for each, shape in zip(roots, results)
    )


def _read(inner: Computation, line: Instruction) -> int:
    """Bytes of a parameter of a fusion that are read: less than all if only slices are."""
    total = 0
    for reader in inner.readers.get(line.name, []):
        if reader.opcode in SLICES:
            total += reader.shapes[0].size
        elif reader.opcode == "bitcast":
            total += _read(inner, reader)
        elif reader.opcode == "dynamic-update-slice" and reader.operands[0] == line.name:
            continue  # written in place
        else:
            return line.shapes[0].size
    return total


def _written(inner: Computation, line: Instruction, shape: Shape) -> int:
    """Bytes that a result of a fusion writes: less than all if it is written into in place."""
    while line.opcode in ("bitcast", "copy", "convert") and line.operands:
        line = inner.by_name[line.operands[0]]
    if line.opcode == "dynamic-update-slice":
        return inner.by_name[line.operands[1]].shapes[0].size
    return shape.size
