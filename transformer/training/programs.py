"""The programs of training, an update for each shape of batches: compiled before they are needed.

The largest comes first, since what does not fit should be known at once. The others follow in the
background, in the order in which they are needed, while updates are made with those that there are.
"""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

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
from transformer.training.step import (
    StepMetrics,
    TrainState,
    init_state,
    state_shapes,
    update,
)
from transformer.training.validation import sentence_sums

USABLE = 0.9
"""Of the memory that is left: libraries take some that XLA does not know of, and some lies idle."""

HELD = 3
"""So many times what is in between may stay with a process on a CPU (docs/reliability.md)."""

Shape = tuple[tuple[int, ...], ...]


def new_state(mesh: Mesh, config: Config, params: Params | None = None) -> TrainState:
    """The state before the first update on the devices, with these parameters or those that
    `train.seed` gives."""
    places = sharding.shardings(mesh, config, state_shapes(config))
    build = jax.jit(partial(init_state, config), out_shardings=places)
    return build(jax.random.key(config.train.seed), params)


def jit_update(
    mesh: Mesh, config: Config
) -> Callable[[TrainState, Batch, np.float32], tuple[TrainState, StepMetrics]]:
    """`step.update` compiled for the mesh: of a state, which it gives up, a batch from
    `shard_batch` and a learning rate."""
    config = replace(config, model=sharding.fitted(config.model, mesh.devices.flat[0]))
    copied, places = (
        sharding.replicated(mesh),
        sharding.shardings(mesh, config, state_shapes(config)),
    )
    return jax.jit(
        partial(update, config, layout=sharding.Layout(mesh, places.params)),
        in_shardings=(places, sharding.split_over(mesh), copied),
        out_shardings=(places, copied),
        donate_argnums=0,
    )


def jit_sentence_sums(mesh: Mesh, config: ModelConfig) -> Callable[[Params, Batch], LossSums]:
    """`sentence_sums` compiled for the mesh; what it finds is in every process."""
    compiled = jax.jit(
        partial(sentence_sums, config),
        in_shardings=(sharding.replicated(mesh), sharding.split_over(mesh)),
        out_shardings=sharding.replicated(mesh),
    )
    return lambda params, batch: compiled(params, sharding.shard_batch(mesh, batch))


@dataclass(frozen=True)
class Program:
    """An update compiled for one shape, and what it takes on each device.

    run         from a state, which it gives up, a batch and a learning rate to the next state and
                the metrics of the update
    arguments   bytes of state and batch, which are there when it begins
    results     bytes that its results need beside them: the new state takes the place of the old
    temporaries bytes in between
    moved       bytes read and written, where the compiler says so
    seconds     that compiling took
    """

    run: Callable[[TrainState, Batch, np.float32], tuple[TrainState, StepMetrics]]
    arguments: int
    results: int
    temporaries: int
    moved: float | None
    seconds: float

    @property
    def beside(self) -> int:
        """Bytes beside the arguments."""
        return self.results + self.temporaries

    @property
    def memory(self) -> int:
        """Bytes in all."""
        return self.arguments + self.beside


def compile_update(
    mesh: Mesh, config: Config, batch: Batch, platform: str | None = None
) -> Program:
    """The update of such batches, for devices that need not be there: then name their platform."""
    begun = time.perf_counter()
    traced = traced_update(mesh, config, batch)
    lowered = traced.lower(lowering_platforms=(platform,) if platform else None)
    # Which kernel is quickest an absent GPU cannot try.
    compiled = lowered.compile({"xla_gpu_autotune_level": 0} if platform == "cuda" else None)
    memory, costs = compiled.memory_analysis(), compiled.cost_analysis() or {}
    steps = config.train.micro_batches
    return Program(
        lambda state, batch, rate: compiled(state, sharding.shard_batch(mesh, batch, steps), rate),
        memory.argument_size_in_bytes,
        memory.output_size_in_bytes - memory.alias_size_in_bytes,
        memory.temp_size_in_bytes,
        costs.get("bytes accessed"),
        time.perf_counter() - begun,
    )


def traced_update(mesh: Mesh, config: Config, batch: Batch) -> jax.stages.Traced:
    """The update of such batches, not yet compiled; no weight is made."""
    rows = sharding.pad_rows(mesh, batch, config.train.micro_batches)
    rows = jax.tree.map(lambda ids: jax.ShapeDtypeStruct(ids.shape, ids.dtype), rows)
    return jit_update(mesh, config).trace(state_shapes(config), rows, np.float32(0))


def operations(config: Config, batch: Batch) -> int:
    """Of the products of an update, on all devices: forwards, and twice as many for gradients."""
    source = 0 if batch.source is None else batch.source.shape[1]
    target = 0 if batch.target_in is None else batch.target_in.shape[1]
    passes = (3 + config.model.recompute) * (2 if config.train.r_drop else 1)
    return passes * len(batch.target_out) * pair_operations(config.model, source, target)


def check_fits(program: Program, free: int | None) -> None:
    """Raises UserError when a program cannot have the memory that it takes beside its arguments."""
    if free is not None and program.beside > USABLE * free:
        raise UserError(
            f"an update takes {program.beside / 1e9:.2f} GB beside the state, and a device has "
            f"{free / 1e9:.2f} left: lower data.batch_tokens, raise train.micro_batches, or set "
            "model.recompute or, on several devices, train.shard_state"
        )


class Updates:
    """`step.update` on batches of these shapes, each compiled once.

    told      what the largest takes, for people
    is_tight  whether a CPU has no room for HELD times what the largest takes in between
    """

    def __init__(
        self,
        mesh: Mesh,
        config: Config,
        samples: Iterable[Batch],
        free: Callable[[], int | None],
    ):
        """`samples`: a batch of each shape, in the order in which they are needed; none where no
        update is to be made. `free`: tells the bytes that a device has left, when the largest is
        compiled, since compiling takes memory too. Raises UserError where that needs more."""
        self.told, self.is_tight = "", False
        self._learning_rate = partial(learning_rate, config)
        self._compiler = ThreadPoolExecutor(1, "compiler")
        self._programs: dict[Shape, Future[Program]] = {}
        by_size = sorted(samples := list(samples), key=partial(operations, config))
        for batch in (*by_size[-1:], *samples):
            if (shape := _shape(batch)) not in self._programs:
                self._programs[shape] = self._compiler.submit(compile_update, mesh, config, batch)
        for batch in by_size[-1:]:
            self._check(self._programs[_shape(batch)], free)

    def _check(self, largest: Future[Program], free: Callable[[], int | None]) -> None:
        try:
            program = largest.result()
            left = free()
            check_fits(program, left)
        except BaseException:
            self.cancel()
            raise
        self.told = (
            f"{program.beside / 1e9:.2f} GB in an update, beside {program.arguments / 1e9:.2f} GB "
            f"of state and batch; compiled in {program.seconds:.0f} s, "
            f"{len(self._programs) - 1} smaller ones follow"
        )
        on_cpu = jax.default_backend() == "cpu"
        self.is_tight = on_cpu and left is not None and HELD * program.beside > USABLE * left

    def __call__(
        self, state: TrainState, batch: Batch, step: int
    ) -> tuple[TrainState, StepMetrics]:
        """Update number `step`, the first of which is 1. Waits where the program is not there yet.
        Gives up the old state."""
        program = self._programs[_shape(batch)].result()
        return program.run(state, batch, self._learning_rate(step))

    def cancel(self) -> None:
        """Compiles no more than what is being compiled."""
        self._compiler.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Compiles no more; waits for what is being compiled."""
        self._compiler.shutdown(cancel_futures=True)


def _shape(batch: Batch) -> Shape:
    return tuple(leaf.shape for leaf in jax.tree.leaves(batch))
