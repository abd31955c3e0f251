"""What XLA makes of training and search for accelerators that are not there; and an estimate.

    python -m benchmarks.compiled configs/wmt14_base.py --target h100
    python -m benchmarks.compiled configs/wmt14_base.py --target v5e:2x2 --program update

Needs x86 Linux and pip install -e '.[plan]' (the compilers for NVIDIA's GPUs and for TPUs, some 3
GB), best in a virtual environment of its own; no accelerator, no driver. Targets: those of
transformer/machine/targets.py, with a number of devices (h100:8) or a topology (v5e:2x2) behind a
colon.

A program is compiled as train.py and translate.py have it for such devices, for full batches:
as many sentences of `length` tokens as make `tokens` target tokens, all vocabularies as large as
`data.vocab_size`. Then it is read: memory by XLA's own plan, products and collectives with their
types, the largest arrays, all for one device.

The time is estimated, not measured: each instruction takes what its products need at the rate the
device is sold for, or what its bytes need at the memory's, whichever is more; the sum is a floor
that ignores starting kernels, and that none reaches what is printed on the box. On an H100 the
updates in docs/benchmarks.md took 1.3 to 1.5 times as long. Kernels are not the ones that a GPU
would get: which is quickest, XLA finds out by trying, and here it cannot.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import tyro
from jax.sharding import Mesh, SingleDeviceSharding

from benchmarks.hlo import Product, Program, collectives, executed, moved, parse, products
from benchmarks.measure import full_batch, table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config
from transformer.config.files import load_config
from transformer.config.rules import check
from transformer.config.settings import Positive
from transformer.decoding.batches import SearchInput
from transformer.decoding.continuous import search_until_pause
from transformer.decoding.ensemble import Ensemble
from transformer.decoding.search import BeamSearch
from transformer.decoding.translator import begin_search
from transformer.errors import UserError
from transformer.machine.targets import Target, mesh_of
from transformer.model.cached_decoder import decoding_params, grow
from transformer.model.params import init_params
from transformer.training.programs import traced_update

PARTS = {
    "vocabulary": ("logits", "loss", "embed"),
    "attention": ("self_attention", "cross_attention", "shard_map"),  # a TPU's kernel
    "feed-forward": ("feed_forward",),
    "norms": ("norm",),
    "dropout": ("dropout",),
    "optimizer": ("optimizer",),
}
"""Parts of the model, and the `jax.named_scope`s that they stand in; the innermost counts."""


@dataclass(frozen=True)
class Compiled:
    """Compile for an accelerator that is not there, and read what came out."""

    config_file: tyro.conf.Positional[Path]
    """A Python file that defines `config = Config(...)`, such as configs/wmt14_base.py."""
    target: str = "h100"
    """h100, a100, v4, v5e, v5p or v6e; with a number or a topology: h100:8, v5e:2x2."""
    program: Literal["update", "search", "both"] = "both"
    """An update of training, beam search for a batch, or both."""
    tokens: Positive = 25_000
    """Target tokens of an update, on all devices, about."""
    length: Positive = 32
    """Tokens of a sentence; of an output too."""
    recompute: bool = False
    """Compute layers again for their gradients."""
    rows: Positive = 8
    """Of the tables of products and arrays: the largest."""


class Part(NamedTuple):
    """Some of the work: seconds that it takes at least, operations, and bytes of memory moved."""

    seconds: float
    operations: float
    bytes: float


def main(words: list[str]) -> None:
    command = parse_script(Compiled, words, "python -m benchmarks.compiled")
    config = prepared(command)
    translates = config.model.encoder_layers and config.model.decoder_layers
    if command.program == "search" and not translates:
        raise UserError("--program search is for translators: an encoder and a decoder")
    target, mesh = mesh_of(command.target)
    lowered = {"update": partial(lowered_update, mesh, config, command)}
    if translates:
        lowered["search"] = partial(lowered_search, mesh, config, command.length)
    print(f"{command.config_file} for {command.target}, {mesh.size} devices; {versions('jax')}")
    for name, lower in lowered.items():
        if command.program in (name, "both"):
            print(f"\n## {name}\n", flush=True)
            report(command, target, partial(lower, target.platform))


def prepared(command: Compiled) -> Config:
    """The config with the sizes that training would fill in."""
    config = load_config(command.config_file)
    if not config.model.target_vocab_size:
        config = config.with_vocabularies(config.data.vocab_size, config.data.vocab_size)
    if config.model.classes:
        raise UserError("classifiers are not compiled here: name the config of another model")
    model = replace(config.model, recompute=command.recompute)
    check(config := replace(config, model=model))
    return config


def lowered_update(
    mesh: Mesh, config: Config, command: Compiled, platform: str
) -> jax.stages.Lowered:
    """An update as in train.py."""
    rows = mesh.size * config.train.micro_batches
    sentences = max(1, round(command.tokens / command.length / rows)) * rows
    size = config.model.target_vocab_size
    batch = full_batch(sentences, command.length, command.length, size)
    print(f"{sentences} sentences of {command.length} tokens on either side")
    return traced_update(mesh, config, batch).lower(lowering_platforms=(platform,))


def lowered_search(mesh: Mesh, config: Config, length: int, platform: str) -> jax.stages.Lowered:
    """A search as translate.py has it until it pauses for the first time, on one device."""
    settings, model = config.decode, config.model
    params = jax.eval_shape(partial(init_params, model), jax.random.key(0))
    params = jax.eval_shape(partial(decoding_params, model), params)
    source = jax.ShapeDtypeStruct((settings.batch_sentences, length), jnp.int32)

    def search(params, source):
        state = begin_search((model,), settings, (params,), SearchInput(source))
        state = state.replace(cache=tuple(map(grow, state.cache)))
        return search_until_pause(Ensemble((model,), (params,)), BeamSearch(settings), state)[1]

    place = SingleDeviceSharding(mesh.devices.flat[0])
    print(f"{settings.batch_sentences} sentences of {length} tokens, beam {settings.beam_size}")
    traced = jax.jit(search, in_shardings=place).trace(params, source)
    return traced.lower(lowering_platforms=(platform,))


def compiled_for(target: Target, lower: Callable[[], jax.stages.Lowered]) -> jax.stages.Compiled:
    """A program as a target that is not there would run it."""
    with mock.patch("jax.default_backend", return_value=target.platform):  # caches ask
        lowered = lower()
    options = {"xla_gpu_autotune_level": 0} if target.platform == "cuda" else {}
    return lowered.compile(compiler_options=options)


def report(command: Compiled, target: Target, lower: Callable[[], jax.stages.Lowered]) -> None:
    """Compiles a program and prints what it is made of."""
    start = time.perf_counter()
    compiled = compiled_for(target, lower)
    print(f"compiled in {time.perf_counter() - start:.0f} s\n")
    plan, program = compiled.memory_analysis(), parse(compiled.as_text())
    parts = estimate(program, target, command.length)
    whole = total(parts.values())
    floor = whole.operations / target.bfloat16
    print(
        f"estimated: {1000 * whole.seconds:.2f} ms, {whole.operations / 1e12:.3g} T operations "
        f"({floor / whole.seconds:.1%} of them at {target.bfloat16 / 1e12:.0f} TFLOP/s), "
        f"{whole.bytes / 1e9:.3g} GB moved\n"
        f"memory: {plan.argument_size_in_bytes / 1e9:.2f} GB of arguments, of which "
        f"{plan.alias_size_in_bytes / 1e9:.2f} become results, "
        f"{plan.temp_size_in_bytes / 1e9:.2f} GB of temporaries; the device has "
        f"{target.memory / 1e9:.0f} GB\n"
    )
    print(table(part_rows(parts, whole)), end="\n\n")
    print(table(product_rows(program, command)), end="\n\n")
    print(table(array_rows(program, command.rows)), end="\n\n")
    print(table(collective_rows(program, command.length)))


def estimate(program: Program, target: Target, loops: int) -> dict[str, Part]:
    """The work of each part of the model."""
    found: dict[str, list[Part]] = {}
    for computation, line, times in executed(program, loops):
        work = products(program, computation, line)
        size = moved(program, computation, line)
        seconds = max(sum(map(partial(product_seconds, target), work)), size / target.bandwidth)
        operations = sum(product.operations for product in work)
        part = Part(*(times * number for number in (seconds, operations, size)))
        found.setdefault(part_of(line.scope), []).append(part)
    return {name: total(parts) for name, parts in found.items()}


def total(parts: Iterable[Part]) -> Part:
    return Part(*map(sum, zip(*parts)))


def product_seconds(target: Target, product: Product) -> float:
    narrow = {product.a.dtype, product.b.dtype} <= {"bf16", "f16"}
    return product.operations / (target.bfloat16 if narrow else target.float32)


def part_of(scope: str) -> str:
    """The part of the model that a scope belongs to: its innermost name that is known."""
    places = {part: max(scope.rfind(name) for name in names) for part, names in PARTS.items()}
    part = max(places, key=places.get)
    return part if places[part] >= 0 else "the rest"


def part_rows(parts: dict[str, Part], whole: Part) -> list[dict[str, str]]:
    return [
        {
            "part": name,
            "estimated ms": f"{1000 * part.seconds:.2f}",
            "share": f"{part.seconds / whole.seconds:.0%}",
            "T operations": f"{part.operations / 1e12:.2f}",
            "GB moved": f"{part.bytes / 1e9:.2f}",
        }
        for name, part in sorted(parts.items(), key=lambda item: -item[1].seconds)
    ]


def product_rows(program: Program, command: Compiled) -> list[dict[str, str]]:
    """All kinds of products, those of other types than bfloat16 first, then the largest."""
    kinds: Counter[tuple[str, str, str, str, str]] = Counter()
    operations: Counter[tuple[str, str, str, str, str]] = Counter()
    for computation, line, times in executed(program, command.length):
        for product in products(program, computation, line):
            shapes = (str(product.a), str(product.b), str(product.result))
            equation = product.scope.rpartition("/")[0].rpartition("/")[2]
            kind = (part_of(product.scope), equation, *shapes)
            kinds[kind] += times
            operations[kind] += times * product.operations
    wide = [kind for kind in kinds if not all(shape.startswith("bf16") for shape in kind[2:4])]
    largest = [kind for kind, _ in operations.most_common() if kind not in wide]
    sums = sum(operations.values())
    return [
        {
            "product of": part,
            "equation": equation,
            "multiplied": f"{a} x {b}",
            "result": result,
            "times": str(kinds[kind]),
            "share of operations": f"{operations[kind] / sums:.1%}",
        }
        for kind in [*wide, *largest[: command.rows]]
        for part, equation, a, b, result in [kind]
    ]


def array_rows(program: Program, rows: int) -> list[dict[str, str]]:
    """The largest results of instructions; XLA lets those share memory that do not meet."""
    found = Counter(
        {
            (str(shape), part_of(line.scope), line.scope.rsplit("/", 1)[-1]): shape.size
            for _, line, _ in executed(program)
            for shape in line.shapes
        }
    )
    return [
        {"array": name, "GB": f"{size / 1e9:.2f}", "part": part, "made by": made_by}
        for (name, part, made_by), size in found.most_common(rows)
    ]


def collective_rows(program: Program, loops: int) -> list[dict[str, str]]:
    """The communication between devices."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for kind, size, times in collectives(program, loops):
        counts[kind] += times
        sizes[kind] += times * size
    return [
        {"collective": kind, "times": str(counts[kind]), "GB": f"{sizes[kind] / 1e9:.3f}"}
        for kind in counts
    ] or [{"collective": "none", "times": "0", "GB": "0"}]


if __name__ == "__main__":
    run_command(main)
