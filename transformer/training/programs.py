"""The programs of training, an update for each batch shape, compiled ahead of time.

The largest is compiled first, so that too little memory is known at once. The others follow in a
background thread, in the order in which they are needed, while training runs.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer.config import Config, ModelConfig
from transformer.errors import UserError
from transformer.model.batch import Batch
from transformer.model.operations import pair_operations
from transformer.model.params import Params
from transformer.training import sharding
from transformer.training.loss import LossSums
from transformer.training.optimizer import learning_rate
from transformer.training.step import StepMetrics, TrainState, init_state, state_shapes, update
from transformer.training.validation import sentence_sums

USABLE = 0.9
"""Share of the free memory: libraries take some that XLA does not know of, and some is
fragmented."""

RETAINED = 3
"""A process on a CPU may retain this many times the temporaries (docs/reliability.md)."""

Shape = tuple[tuple[int, ...], ...]


def new_state(mesh: Mesh, config: Config, params: Params | None = None) -> TrainState:
    """The state before the first update on the devices, with these parameters or random ones."""
    places = sharding.shardings(mesh, config, state_shapes(config))
    build = jax.jit(partial(init_state, config), out_shardings=places)
    return build(jax.random.key(config.train.seed), params)


def jit_update(
    mesh: Mesh, config: Config
) -> Callable[[TrainState, Batch, np.float32], tuple[TrainState, StepMetrics]]:
    """`step.update` compiled for the mesh, a function of a state, which is donated, a batch from
    `shard_batch` and a learning rate."""
    config = replace(config, model=sharding.for_device(config.model, mesh.devices.flat[0]))
    copied = sharding.replicated(mesh)
    places = sharding.shardings(mesh, config, state_shapes(config))
    return jax.jit(
        partial(update, config, layout=sharding.Layout(mesh, places.params)),
        in_shardings=(places, sharding.split_over(mesh), copied),
        out_shardings=(places, copied),
        donate_argnums=0,
    )


def jit_sentence_sums(mesh: Mesh, config: ModelConfig) -> Callable[[Params, Batch], LossSums]:
    """`sentence_sums` compiled for the mesh, with the result in every process."""
    compiled = jax.jit(
        partial(sentence_sums, config),
        in_shardings=(sharding.replicated(mesh), sharding.split_over(mesh)),
        out_shardings=sharding.replicated(mesh),
    )
    return lambda params, batch: compiled(params, sharding.shard_batch(mesh, batch))


@dataclass(frozen=True)
class Program:
    """An update compiled for one batch shape, and its memory on each device in bytes.

    run          a function of a state, which is donated, a batch and a learning rate, which returns
                 the next state and the metrics of the update
    arguments    state and batch
    results      results in addition to them: the new state overwrites the old one
    temporaries  temporary arrays
    moved        bytes read and written, if the compiler says so
    seconds      compile time
    """

    run: Callable[[TrainState, Batch, np.float32], tuple[TrainState, StepMetrics]]
    arguments: int
    results: int
    temporaries: int
    moved: float | None
    seconds: float

    @property
    def additional(self) -> int:
        """Memory in addition to the arguments."""
        return self.results + self.temporaries

    @property
    def memory(self) -> int:
        """Memory in all."""
        return self.arguments + self.additional


def compile_update(
    mesh: Mesh, config: Config, batch: Batch, platform: str | None = None
) -> Program:
    """The update of such batches; `platform` names that of devices that are not there."""
    start = time.perf_counter()
    traced = traced_update(mesh, config, batch)
    lowered = traced.lower(lowering_platforms=(platform,) if platform else None)
    # An absent GPU cannot try which kernel is fastest.
    compiled = lowered.compile({"xla_gpu_autotune_level": 0} if platform == "cuda" else None)
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis() or {}
    steps = config.train.micro_batches
    return Program(
        lambda state, batch, rate: compiled(state, sharding.shard_batch(mesh, batch, steps), rate),
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes - memory.alias_size_in_bytes,
        memory.temp_size_in_bytes,
        costs.get("bytes accessed"),
        time.perf_counter() - start,
    )


def traced_update(mesh: Mesh, config: Config, batch: Batch) -> jax.stages.Traced:
    """The update of such batches, traced and not compiled; it allocates no arrays."""
    rows = sharding.pad_rows(mesh, batch, config.train.micro_batches)
    rows = jax.tree.map(lambda ids: jax.ShapeDtypeStruct(ids.shape, ids.dtype), rows)
    jitted: Any = jit_update(mesh, config)
    return jitted.trace(state_shapes(config), rows, np.float32(0))


def operations(config: Config, batch: Batch) -> int:
    """Float operations of the products of an update on all devices, forward and backward."""
    source = 0 if batch.source is None else batch.source.shape[1]
    target = 0 if batch.target_in is None else batch.target_in.shape[1]
    passes = (3 + config.model.recompute) * (2 if config.train.r_drop else 1)
    return passes * len(batch.target_out) * pair_operations(config.model, source, target)


class Updates:
    """`step.update` on batches of these shapes, each compiled once.

    summary   a sentence on the memory of the largest, or ""
    is_tight  whether a CPU lacks memory for RETAINED times the temporaries of the largest
    """

    def __init__(
        self, mesh: Mesh, config: Config, samples: Iterable[Batch], free: Callable[[], int | None]
    ):
        """`samples`: a batch of each shape, in the order in which they are needed, or none. `free`:
        returns the free bytes of a device, once the largest is compiled, since compiling takes
        memory too. Raises UserError if the largest needs more."""
        self.summary, self.is_tight = "", False
        self._learning_rate = partial(learning_rate, config)
        self._compiler = ThreadPoolExecutor(1, "compiler")
        self._programs: dict[Shape, Future[Program]] = {}
        by_size = sorted(samples := list(samples), key=partial(operations, config))
        for batch in (*by_size[-1:], *samples):
            if (shape := _shape(batch)) not in self._programs:
                self._programs[shape] = self._compiler.submit(compile_update, mesh, config, batch)
        if samples:
            self._check(self._programs[_shape(by_size[-1])], free)

    def _check(self, largest: Future[Program], free: Callable[[], int | None]) -> None:
        try:
            program = largest.result()
            left = free()
            if left is not None and program.additional > USABLE * left:
                raise UserError(
                    f"an update takes {program.additional / 1e9:.2f} GB beside the state, but a "
                    f"device has {left / 1e9:.2f} GB left: lower data.batch_tokens, raise "
                    "train.micro_batches, or set model.recompute or, on several devices, "
                    "train.shard_state"
                )
        except BaseException:
            self.cancel()
            raise
        others = len(self._programs) - 1
        self.summary = (
            f"{program.additional / 1e9:.2f} GB in an update, beside "
            f"{program.arguments / 1e9:.2f} GB of state and batch; compiled in "
            f"{program.seconds:.0f} s" + f", {others} smaller ones follow" * (others > 0)
        )
        if jax.default_backend() == "cpu" and left is not None:
            self.is_tight = RETAINED * program.additional > USABLE * left

    def __call__(
        self, state: TrainState, batch: Batch, step: int
    ) -> tuple[TrainState, StepMetrics]:
        """Update number `step`, counted from 1; waits for the program if necessary. The old state
        is donated."""
        program = self._programs[_shape(batch)].result()
        return program.run(state, batch, self._learning_rate(step))

    def cancel(self) -> None:
        """Cancels what is not being compiled yet."""
        self._compiler.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Cancels what is not being compiled yet, and waits for the rest."""
        self._compiler.shutdown(cancel_futures=True)


def _shape(batch: Batch) -> Shape:
    return tuple(leaf.shape for leaf in jax.tree.leaves(batch))
