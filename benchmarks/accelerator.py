"""Training the paper's models on a GPU, against PyTorch there, and decoding, against CTranslate2.

    python -m benchmarks.accelerator
    python -m benchmarks.accelerator --shape tiny     tries the script, without a GPU too

Needs a GPU with bfloat16 and pip install -e '.[cuda,bench]'; without PyTorch and CTranslate2 only
ours is measured. Meant to take less than ten minutes on a GPU like the H100. Only one GPU is used.

Training: the models of configs/wmt14_base.py and wmt14_big.py (vocabulary 37,000, one embedding),
32 source and 32 target tokens a sentence, nothing padded, label smoothing 0.1, Adam; on both sides
biases in attention, and dropout 0.1 on sums of embeddings and positions, on sublayer outputs, on
attention weights and inside the feed-forward layers. Ours keeps parameters and Adam's moments in
float32 and multiplies in bfloat16, as those configs say. The peer is torch.nn.TransformerEncoder
and TransformerDecoder (scaled_dot_product_attention) in float32 under bfloat16 autocast, forward
pass and loss compiled by torch.compile for the one shape, fused Adam. The losses of the first
update, from the same weights, stand in the table: they differ by what dropout drops.

A batch that does not fit into the device's memory passes in 2, 4, ... parts, whose gradients are
added up. Each measurement has a process of its own, so that the memory is its own too; the peak
is of what arrays and temporaries take, not of what allocators keep in reserve.

Utilisation is the float operations of the model's matrix products (counted as in training_step.py)
over what the device is sold for in dense bfloat16; beside it over what a large product reaches.

Decoding: shape B, beam 4, exactly as many tokens of output as of source, as in decoding.py: ours in
bfloat16 and float32, CTranslate2 in float16 and float32, of which each has the same weights.
CTranslate2 loads the libraries of CUDA 12 (pip install nvidia-cublas-cu12).
"""

import os

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]

import importlib.util
import itertools
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import jax

from benchmarks.decoding import NAMES, OURS, Task, decoder, forced_model, varied_params
from benchmarks.measure import (
    alternate,
    full_batch,
    in_own_process,
    machine,
    parse_lists,
    product_speed,
    table,
    timed,
    versions,
)
from benchmarks.parameter_table import paper_model
from benchmarks.shapes import LENGTH, SHAPES, Shape, model_config
from benchmarks.work import Updates, our_updates, step_operations
from transformer.commands.program import run_command
from transformer.config import Config, ModelConfig, TrainConfig
from transformer.config.settings import Positive
from transformer.errors import UserError, is_out_of_memory
from transformer.interchange.ctranslate2 import model_spec, save_model
from transformer.model.batch import PAD, Batch
from transformer.training.step import init_state

PEAKS = {"H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12}
"""Dense bfloat16 operations a second by NVIDIA's data sheets; the first name that fits counts."""
MOST_PARTS = 16
"""Sentences of a batch are a multiple of it."""
REPETITIONS = 5
"""Updates, or searches, per repetition, dispatched without waiting."""


@dataclass(frozen=True)
class Accelerator:
    """Measure training, against PyTorch, and decoding on a GPU."""

    shape: Literal["paper", "tiny"] = "paper"
    """tiny: small models and batches on any device, to try the script; its times mean nothing."""
    models: tuple[Literal["base", "big"], ...] = ("base", "big")
    """Which of the paper's models to train."""
    tokens: tuple[Positive, ...] = (25_000, 100_000)
    """Target tokens an update, about."""
    sentences: tuple[Positive, ...] = (1, 32, 256)
    """Sentences decoded together."""
    lengths: tuple[Positive, ...] = (32, 128)
    """Tokens of the decoded sentences."""
    rounds: Positive = 5
    """Repetitions that are timed, each of five updates or searches."""


class Measured(NamedTuple):
    """The results of a separate process."""

    seconds: float
    """Of an update or a search: the median."""
    first_seconds: float
    """Of the first one, compiling included."""
    peak: int
    """Bytes of device memory; 0 where the device does not tell."""
    loss: float = 0.0
    """Of the first update, in nats a target token."""


def main(words: list[str]) -> None:
    command = parse_lists(Accelerator, words, "python -m benchmarks.accelerator")
    backend, kind = in_own_process(device)
    tiny = command.shape == "tiny"
    if backend == "cpu" and not tiny:
        raise UserError("JAX found no GPU: pip install -e '.[cuda]', or try --shape tiny")
    if tiny:
        command = replace(command, tokens=(512, 1024), sentences=(1, 4), lengths=(8,), rounds=2)
        kind += ", tiny shapes: only a trial of the script, its numbers mean nothing"
    objection = torch_objection(backend)
    contestants = {"ours": "jax"} | ({} if objection else {"torch": "torch"})
    print(f"{kind}\n{machine()}\n{versions(*dict.fromkeys(contestants.values()))}{objection}")
    sold = next((peak for name, peak in PEAKS.items() if name in kind), 0)
    product = in_own_process(product_speed, 512 if tiny else 8192)
    ceilings = {"utilisation": sold, "of the large product": product}
    shown = f"sold for {sold / 1e12:,.0f}" if sold else "what it is sold for is unknown"
    print(f"bfloat16 TFLOP/s: {shown}, a large product {product / 1e12:,.3g}")
    for name, model in models(command).items():
        for tokens in command.tokens:
            rows = train(command, model, tokens, ceilings, contestants)
            print(f"\ntraining {name}, about {tokens:,} target tokens an update\n\n{table(rows)}")
    shape = SHAPES["tiny" if tiny else "B"]
    print(f"\ndecoding, {shape}, beam 4\n\n{table(decode(command, shape, backend))}")
    print(f"\nmedians of {command.rounds} rounds of {REPETITIONS} updates or searches")


def device() -> tuple[str, str]:
    """What JAX computes on: cpu, gpu or tpu, and its name."""
    return jax.default_backend(), jax.devices()[0].device_kind


def torch_objection(backend: str) -> str:
    """Why PyTorch cannot be measured; "" if it can."""
    if importlib.util.find_spec("torch") is None:
        return "; only ours: PyTorch is not installed"
    import torch

    unseen = backend != "cpu" and not torch.cuda.is_available()
    return "; only ours: this PyTorch does not see the device" if unseen else ""


def models(command: Accelerator) -> dict[str, ModelConfig]:
    """The models to train, with dropout and biases where torch.nn's layers have them."""
    if command.shape == "tiny":
        model = model_config(SHAPES["tiny"], dropout=0.1, attention_bias=True)
        return {"tiny": replace(model, dtype="bfloat16")}
    rates = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.1)
    return {
        name: replace(paper_model(name), **rates, attention_bias=True) for name in command.models
    }


def train(
    command: Accelerator,
    model: ModelConfig,
    tokens: int,
    ceilings: dict[str, float],
    contestants: Iterable[str],
) -> list[dict[str, str]]:
    """A row for each contestant, for a model and a size of the batch."""
    sentences = max(1, round(tokens / LENGTH / MOST_PARTS)) * MOST_PARTS
    found = {name: measure_in_parts(command, name, model, sentences) for name in contestants}
    rows = []
    for contestant, (measured, parts) in found.items():
        speed = step_operations(model, sentences) / measured.seconds
        rows.append(
            {
                "contestant": contestant,
                "ms an update": f"{1000 * measured.seconds:.1f}",
                "target tokens/s": f"{sentences * LENGTH / measured.seconds:,.0f}",
                "time / ours": f"{measured.seconds / found['ours'][0].seconds:.2f}",
                **{name: f"{speed / most:.1%}" if most else "-" for name, most in ceilings.items()},
                "peak GB": gigabytes(measured.peak),
                "parts": f"{parts}",
                "first loss": f"{measured.loss:.3f}",
                "first update s": f"{measured.first_seconds:.1f}",
            }
        )
    return rows


def measure_in_parts(
    command: Accelerator, contestant: str, model: ModelConfig, sentences: int
) -> tuple[Measured, int]:
    """The measurement with the fewest micro-batches that fit into memory, and their number."""
    parts = 1
    while True:
        config = Config(model=model, train=TrainConfig(micro_batches=parts))
        try:
            return in_own_process(measure_training, command, contestant, config, sentences), parts
        except Exception as error:
            if not is_out_of_memory(error) or parts == MOST_PARTS:
                raise
        parts *= 2


def measure_training(command: Accelerator, name: str, config: Config, sentences: int) -> Measured:
    build = torch_updates if name == "torch" else our_updates
    run = build(config, full_batch(sentences, LENGTH, LENGTH, config.model.target_vocab_size))
    loss, first = timed(run, 1)
    timing = alternate({"": lambda: run(REPETITIONS)}, command.rounds, warmup=1)[""]
    return Measured(timing.median / REPETITIONS, first, device_peak(name), loss)


def device_peak(contestant: str) -> int:
    """Peak device memory of this process in bytes; 0 if it is not counted."""
    if contestant == "torch":
        import torch

        return torch.cuda.max_memory_allocated()
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)


def torch_updates(config: Config, batch: Batch) -> Updates:
    """The same with torch.nn's layers, from the same weights."""
    import torch

    from benchmarks.torch_transformer import TorchTransformer, copy_weights

    place = "cuda" if torch.cuda.is_available() else "cpu"
    model = TorchTransformer(config.model, LENGTH)
    with jax.default_device(jax.devices("cpu")[0]):
        copy_weights(init_state(config, jax.random.key(0)).params, model)
    model.to(place)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98), 1e-9, fused=True)
    sides = [torch.tensor(ids, dtype=torch.int64, device=place) for ids in vars(batch).values()]
    parts = list(zip(*(side.chunk(config.train.micro_batches) for side in sides)))

    cross_entropy = torch.nn.CrossEntropyLoss(
        ignore_index=PAD, label_smoothing=config.train.label_smoothing
    )

    def loss_of(source: torch.Tensor, target_in: torch.Tensor, target_out: torch.Tensor):
        with torch.autocast(place, torch.bfloat16):
            logits = model(source, target_in).flatten(0, 1)
            return cross_entropy(logits, target_out.flatten()) / len(parts)

    loss_of = torch.compile(loss_of, fullgraph=True, dynamic=False)

    def run(count: int) -> float:
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            losses = []
            for part in parts:
                loss = loss_of(*part)
                loss.backward()
                losses.append(loss.detach())
            optimizer.step()
        return sum(losses).item()

    return run


def decode(command: Accelerator, shape: Shape, backend: str) -> list[dict[str, str]]:
    """A row for each contestant, number of sentences and length."""
    model, rows = forced_model(shape), []
    device = "cpu" if backend == "cpu" else "cuda"
    names = ["ours-bfloat16", "ours-float32"]
    if importlib.util.find_spec("ctranslate2"):
        names += [f"ctranslate2-{kind}" for kind in ("float16", "float32")[device == "cpu" :]]
    with tempfile.TemporaryDirectory() as folder:
        if len(names) > 2:
            in_own_process(save_for_ctranslate2, model, Path(folder), max(command.lengths))
        for length, sentences in itertools.product(command.lengths, command.sentences):
            task = Task(model, Path(folder), sentences, 4, length, device)
            found = {name: in_own_process(measure_decoding, command, name, task) for name in names}
            ours, tokens = found[names[0]], sentences * length
            rows += [
                {
                    "tokens": f"{length}",
                    "sentences": f"{sentences}",
                    "contestant": name,
                    "ms a batch": f"{1000 * measured.seconds:.1f}",
                    "tokens/s": f"{tokens / measured.seconds:,.0f}",
                    "time / ours-bfloat16": f"{measured.seconds / ours.seconds:.2f}",
                    "peak GB": gigabytes(measured.peak),
                    "first search s": f"{measured.first_seconds:.1f}" if name in OURS else "-",
                }
                for name, measured in found.items()
            ]
    return rows


def save_for_ctranslate2(model: ModelConfig, folder: Path, length: int) -> None:
    save_model(model_spec(model, varied_params(model), (NAMES, NAMES), 2 * length), folder)


def measure_decoding(command: Accelerator, name: str, task: Task) -> Measured:
    search = decoder(name, task)
    _, first = timed(search)
    searches = {"": lambda: [search() for _ in range(REPETITIONS)]}
    timing = alternate(searches, command.rounds, warmup=1)[""]
    peak = device_peak("ours") if name in OURS else 0
    return Measured(timing.median / REPETITIONS, first, peak)


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f}" if size else "-"


if __name__ == "__main__":
    run_command(main)
