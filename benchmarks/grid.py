"""Train one model with many learning rates at once, on one GPU, and judge them on validation.

    python -m benchmarks.grid configs/quickstart.py --settings="--optimizer.name muon" \\
        --scales 0.5 1 2 3 --warmups 200 400 --updates 600 960

An update is a pure function, so `jax.vmap` makes it one of many states: the models of all settings
are updated by one program, with the same batches. A small model alone leaves most of a GPU idle, so
eight of them should take little longer than one there (not measured yet; an update of three models
of configs/multi30k.py with R-Drop takes 28 ms on an H200). On a CPU they take eight times as long:
there benchmarks/recipes.py does the same with train.py.

Trained are all combinations of `optimizer.scale`, `optimizer.warmup_steps`, `train.steps` and
`train.seed`; with `--confirm` then the best of them with other seeds. A seed changes the initial
weights and the dropout, but here neither the batches nor their order. `--settings` has other
settings of train.py. Needs nothing besides the project. BLEU is that of greedy search on the
validation set, and on the test set (`--test`) that of the config's search.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import tyro
from jax import Array

from benchmarks.measure import machine, table, versions
from transformer.commands.command_line import parse_script, parse_train
from transformer.commands.program import run_command
from transformer.config import Config, DecodeConfig, ModelConfig
from transformer.config.settings import Count, Fraction, Positive
from transformer.data.batching import Position, arrangement, batches, one_epoch, pad_sources, sample
from transformer.data.corpus import read_pairs
from transformer.data.prepare import (
    Prepared,
    prepare_tokenizers,
    prepare_training,
    prepare_validation,
)
from transformer.decoding.batches import longest_output
from transformer.decoding.ensemble import ensemble_step, make_ensemble, reorder_all
from transformer.decoding.search import BeamSearch, SearchResult, search, start
from transformer.evaluation.scores import References, value_of
from transformer.machine import devices
from transformer.model.batch import Batch
from transformer.model.cached_decoder import init_cache
from transformer.model.encoder_decoder import encode, pad_memory
from transformer.model.params import Params
from transformer.training import sharding
from transformer.training.optimizer import learning_rate
from transformer.training.step import TrainState, init_state, update
from transformer.training.validation import losses_of, sentence_sums


@dataclass(frozen=True)
class Grid:
    """Train with all combinations of some settings at once."""

    config: tyro.conf.Positional[Path]
    """The config file."""
    scales: tuple[float, ...]
    """Values of optimizer.scale."""
    warmups: tuple[Positive, ...]
    """Values of optimizer.warmup_steps."""
    updates: tuple[Positive, ...]
    """Values of train.steps."""
    seeds: tuple[Count, ...] = (0,)
    """Values of train.seed."""
    confirm: tuple[Count, ...] = ()
    """Seeds of a second training, of as many of the best settings as there is room for."""
    cooldown: Fraction = 0.5
    """The share of the updates in which the rate falls to zero; 0 for schedule_free."""
    settings: str = ""
    """Settings of train.py, in one string."""
    test: bool = False
    """Score the models of the last training on the test set too."""


class Outcome(NamedTuple):
    """What a setting reached; `config` has its scale, warm-up, updates and seed."""

    config: Config
    scores: dict[str, float]


def main(words: list[str]) -> None:
    command = parse_script(Grid, words, "python -m benchmarks.grid")
    devices.configure_devices("any")
    data = prepared(parse_train([str(command.config), *command.settings.split()]).settings)
    values = product(command.scales, command.warmups, command.updates, command.seeds)
    variants = [with_values(data.config, command.cooldown, *some) for some in values]
    began = time.perf_counter()
    training = Training(data, len(variants))
    print(f"{command.config} {command.settings}\n{machine()}, {versions('jax')}")
    print(f"compiled in {time.perf_counter() - began:.0f} s", flush=True)
    first = training.outcomes(variants, command.test and not command.confirm)
    print_outcomes(first)
    if command.confirm:
        room = max(1, len(variants) // len(command.confirm))
        again = [with_seed(one, seed) for one in best(first)[:room] for seed in command.confirm]
        print_outcomes(training.outcomes(again[: len(variants)], command.test))


def best(outcomes: list[Outcome]) -> list[Config]:
    """The settings, best first by the mean over seeds: of BLEU, or of the loss without BLEU."""
    found: dict[Config, list[float]] = {}
    for config, scores in outcomes:
        score = scores.get("bleu", -scores["loss"])
        found.setdefault(with_seed(config, 0), []).append(score)
    return sorted(found, key=lambda config: statistics.mean(found[config]), reverse=True)


def prepared(config: Config) -> Prepared:
    """Vocabulary, training and validation set."""
    config, tokenizers = prepare_tokenizers(config, None)
    config, training = prepare_training(config, tokenizers, derive=True)
    return Prepared(config, tokenizers, training, prepare_validation(config, tokenizers))


def with_values(
    config: Config, cooldown: float, scale: float, warmup: int, updates: int, seed: int
) -> Config:
    optimizer = replace(
        config.optimizer,
        scale=scale,
        warmup_steps=warmup,
        cooldown_steps=round(cooldown * updates),
    )
    return replace(
        config, optimizer=optimizer, train=replace(config.train, steps=updates, seed=seed)
    )


def with_seed(config: Config, seed: int) -> Config:
    return replace(config, train=replace(config.train, seed=seed))


class Training:
    """Trains a fixed number of variants of a config at once, by programs that are compiled once."""

    def __init__(self, data: Prepared, count: int):
        self.data, self.config, self.count = data, data.config, count
        self.validation = list(one_epoch(self.config, data.validation.tokens, data.validation.plan))
        model = sharding.for_device(self.config.model, jax.devices()[0])
        every = jax.vmap(partial(update, replace(self.config, model=model)), (0, None, 0))
        self.update = jax.jit(every, donate_argnums=0)
        states = jax.eval_shape(lambda: self.states([self.config] * count))
        with ThreadPoolExecutor() as pool:
            shapes = data.training.plan.buckets
            compiled = pool.map(partial(self._compile, states), shapes)
            self.programs = dict(zip(shapes, compiled))

    @cached_property
    def test_pairs(self) -> list[tuple[str, str]]:
        """The test set, read once."""
        return list(read_pairs(self.config.data, "test"))

    def states(self, variants: Sequence[Config]) -> TrainState:
        """The states of all variants, along a leading axis."""
        seeds = np.array([one.train.seed for one in variants], np.uint32)
        build = jax.jit(jax.vmap(lambda seed: init_state(self.config, jax.random.key(seed))))
        return build(seeds)

    def _compile(self, states, bucket):
        rates = jax.ShapeDtypeStruct((self.count,), np.float32)
        return self.update.lower(states, sample(self.config, bucket), rates).compile()

    def outcomes(self, variants: list[Config], test: bool) -> list[Outcome]:
        """Trains the variants, and scores each after its last update."""
        steps = np.arange(1, max(one.train.steps for one in variants) + 1)
        rates = np.zeros((len(steps), self.count), np.float32)
        for place, one in enumerate(variants):
            rates[:, place] = np.where(steps <= one.train.steps, learning_rate(one, steps), 0)
        states = self.states([*variants, *variants[:1] * (self.count - len(variants))])
        found, seconds = {}, 0.0
        began = time.perf_counter()
        for step, (batch, rate) in enumerate(zip(self._batches(), rates), 1):
            states, _ = self.programs[shape_of(batch)](states, batch, rate)
            ending = [place for place, one in enumerate(variants) if one.train.steps == step]
            if not ending:
                continue
            jax.block_until_ready(states)
            seconds += time.perf_counter() - began
            print(f"{step:,} updates, {1000 * seconds / step:.2f} ms each", flush=True)
            for place in ending:
                scores = self.scores(at(states, place).result, test)
                found[place] = Outcome(variants[place], scores)
            began = time.perf_counter()
        return [found[place] for place in range(len(variants))]

    def _batches(self) -> Iterator[Batch]:
        training, config = self.data.training, self.config
        arrange = arrangement(config)
        stream = batches(
            training.pairs,
            training.plan,
            config.train.seed,
            Position(),
            arrange,
            training.sample_epoch,
        )
        return (batch for batch, _ in stream)

    def scores(self, params: Params, test: bool) -> dict[str, float]:
        """Of the validation set, and of the test set if that is asked for."""
        data, config = self.data, self.config
        found = losses_of(partial(sentence_sums, config.model), params, self.validation).scores
        del found["perplexity"]
        if data.validation.pairs:
            greedy = replace(config.decode, beam_size=1)
            found |= self._bleu(params, data.validation.pairs, greedy, "")
        if test and data.validation.pairs:
            found |= self._bleu(params, self.test_pairs, config.decode, "test ")
        return found

    def _bleu(self, params, pairs, settings, prefix) -> dict[str, float]:
        found = translated(self.data, params, pairs, settings)
        lower = [text.lower() for text in found]
        lower_pairs = [(source, target.lower()) for source, target in pairs]
        of = partial(References.of, self.config.data)
        return {
            f"{prefix}bleu": value_of("bleu", found, of(pairs)),
            f"{prefix}lower-cased": value_of("bleu", lower, of(lower_pairs)),
        }


def translated(
    data: Prepared, params: Params, pairs: Sequence[tuple[str, str]], settings: DecodeConfig
) -> list[str]:
    """The best translations of all sources as one batch."""
    tokenizers, model = data.tokenizers, data.config.model
    rows = tokenizers.source.encode([source for source, _ in pairs])
    sources = pad_sources(rows, len(rows), max(map(len, rows)) + 1)
    ensemble = make_ensemble([(model, params)], settings.dtype)
    result = found_by(model, settings, ensemble.params[0], sources)
    best = [result.hypotheses(row)[0][0] for row in range(len(rows))]
    return tokenizers.target.decode(best)


def at(states: TrainState, place: int) -> TrainState:
    """One of several states."""
    return jax.tree.map(lambda leaf: leaf[place], states)


def shape_of(batch: Batch) -> tuple:
    """The bucket of a batch."""
    source, target = batch.source, batch.target_out
    return len(target), 0 if source is None else source.shape[1], target.shape[1]


@partial(jax.jit, static_argnums=(0, 1))
def found_by(
    model: ModelConfig, settings: DecodeConfig, params: Params, source: Array
) -> SearchResult:
    """Greedy or beam search for a batch, without pauses: one program."""
    memory = encode(model, params, source)
    tokens, length = memory.lengths - 1, source.shape[1]
    longest = longest_output([model], settings, length)
    cache = init_cache(
        model, params, pad_memory(memory, length), len(source), longest, settings.beam_size
    )
    limits = longest_output([model], settings, tokens)
    method = BeamSearch(settings)
    step = partial(ensemble_step, (model,), (params,))
    state = start(settings, (cache,), limits, longest)
    return method.finish(search(method, step, reorder_all, state, lambda one: ~one.done.all()))


def print_outcomes(outcomes: list[Outcome]) -> None:
    rows = [
        {
            "scale": f"{one.config.optimizer.scale:g}",
            "warm-up": f"{one.config.optimizer.warmup_steps}",
            "updates": f"{one.config.train.steps:,}",
            "seed": f"{one.config.train.seed}",
            **{name: f"{value:.4g}" for name, value in one.scores.items()},
        }
        for one in outcomes
    ]
    print(f"\n{table(rows)}\n", flush=True)


if __name__ == "__main__":
    run_command(main)
