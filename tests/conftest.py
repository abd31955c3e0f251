"""Four devices on any machine, the shapes in every signature checked as the code runs, and the
small models and batches that many tests use."""

import fcntl
import os
import signal
import tempfile
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
)
# Tests compile much and run little. Set it to 0 to test the code that XLA would optimise.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
# Compiles in half the time. XLA ends a process that gives it a flag which it does not know.
if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1" and version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"

# Tests start servers on this machine; requests to them must not go through a proxy.
hosts = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
hosts = ",".join(filter(None, (hosts, "127.0.0.1,localhost")))
os.environ["no_proxy"] = os.environ["NO_PROXY"] = hosts

# What one test compiled the others find, also in other processes.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.TemporaryDirectory(prefix="compiled-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"

import beartype
import hypothesis
import jax
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from jaxtyping import install_import_hook

# The same examples on every machine; others with: pytest --hypothesis-profile random
hypothesis.settings.register_profile("random", deadline=None, derandomize=False)
hypothesis.settings.register_profile("same", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("same")

check_signature = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))


def check(function):
    """Checks what goes into a function and comes out, but not what a dataclass is made of: there
    transforms put shapes, shardings and placeholders in place of arrays."""
    return function if function.__name__ == "__init__" else check_signature(function)


beartype.check = check  # the hook wants a name that can be imported
# Settings are left out: that wrong ones are refused is the work of `config.rules`.
packages = [
    "machine",
    "model",
    "training",
    "data",
    "decoding",
    "documents",
    "evaluation",
    "runs",
    "interchange",
    "viewing",
    "serving",
]
install_import_hook([f"transformer.{package}" for package in packages], "beartype.check")

import jax.numpy as jnp

from transformer.config import Config, DataConfig, DecodeConfig, ModelConfig, TrainConfig
from transformer.model.batch import BOS, EOS, PAD, UNK, Batch
from transformer.model.params import init_params
from transformer.training.optimizer import learning_rate
from transformer.training.step import update

# Where Ctrl-C is ignored, as in a job in the background, commands that are started inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

VOCABULARY = 23
MOST_MAPPINGS = 30_000
TEXT = "the cat sees a dog in the garden . a dog sees the cat ."


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named after their parameter. What gzip writes has the time in it, so the processes
    of pytest-xdist would otherwise not collect the same tests."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True, scope="module")
def no_more_programs_than_fit():
    """Each compiled program takes up some of the 65,530 mappings that Linux gives a process; where
    the next one fails XLA ends the process. Before that, they are all given up."""
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > MOST_MAPPINGS:
        jax.clear_caches()


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk():
    """What a test writes need not outlive a power cut; the commands that tests start do wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder for all processes of pytest: what one of them made, the others find."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def one_at_a_time():
    """A function from a path to a context that one process at a time is in, to make it."""

    @contextmanager
    def hold(path):
        with path.with_name(f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    return hold


@pytest.fixture(scope="session")
def small_model():
    """A function from changes to a model without dropout; of one layer in each stack, since every
    layer is compiled. tests/model has models of two."""

    def build(**changes):
        settings = {
            "source_vocab_size": VOCABULARY,
            "target_vocab_size": VOCABULARY,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "d_model": 16,
            "num_heads": 4,
            "d_ff": 24,
            "dropout": 0.0,
            "max_positions": 32,
        }
        return ModelConfig(**(settings | changes))

    return build


@pytest.fixture(scope="session")
def small_config(small_model):
    """A function from settings of training, and changes to the model, to a Config."""

    def build(model=None, **train):
        return Config(model=small_model(**(model or {})), train=TrainConfig(**train))

    return build


@pytest.fixture(scope="session")
def random_params():
    """Parameters in which nothing is zero or one: biases and norms too are drawn at random."""

    @cache
    def shapes_of(model):
        return jax.eval_shape(partial(init_params, model), jax.random.key(0))

    def build(model, seed=0):
        generator = np.random.default_rng(seed)

        def draw(path, leaf):
            values = 0.2 * generator.normal(size=leaf.shape)
            return jnp.asarray(values + (path[-1].name == "scale"), jnp.float32)

        return jax.tree_util.tree_map_with_path(draw, shapes_of(model))

    return build


@pytest.fixture(scope="session")
def random_batch():
    """A function to batches of sentences of random tokens and random lengths."""

    def build(rows=4, source_length=11, target_length=10, seed=0, vocabulary=VOCABULARY):
        generator = np.random.default_rng(seed)
        source = np.full((rows, source_length), PAD, np.int32)
        target_in = np.full((rows, target_length), PAD, np.int32)
        target_out = np.full((rows, target_length), PAD, np.int32)
        for row in range(rows):
            words = generator.integers(3, vocabulary, generator.integers(1, source_length))
            source[row, : len(words) + 1] = [*words, EOS]
            words = generator.integers(3, vocabulary, generator.integers(1, target_length))
            target_in[row, : len(words) + 1] = [BOS, *words]
            target_out[row, : len(words) + 1] = [*words, EOS]
        return Batch(*map(jnp.asarray, (source, target_in, target_out)))

    return build


@pytest.fixture(scope="session", params=["Marian's", "ours"])
def tagged(request):
    """A function from a tokenizer and target tags to one whose vocabulary has these tags too."""
    from transformer.data.piece_tokenizer import Pieces, PieceTokenizer
    from transformer.data.tokenizer import Tokenizer
    from transformer.interchange.standalone import standalone_model

    def build(tokenizer, *tags):
        if request.param == "ours":
            return Tokenizer(standalone_model(as_marians(tokenizer, *tags), keeps_tags=True))
        return as_marians(tokenizer, *tags)

    def as_marians(tokenizer, *tags):
        pieces = tokenizer.pieces(range(UNK + 1, tokenizer.vocab_size))
        names = ("</s>", "<unk>", *pieces, *tags, "<pad>")
        vocabulary = Pieces(names, pad=len(names) - 1, start=len(names) - 1, end=0, unknown=1)
        return PieceTokenizer(tokenizer.model, vocabulary=vocabulary)

    return build


@pytest.fixture(scope="session")
def models(small_model, random_params):
    """Of each kind of model: config, parameters, tokenizers."""
    from transformer.data.tokenizer import train_tokenizer
    from transformer.data.vocabularies import Labels, Tokenizers

    pieces = train_tokenizer([TEXT] * 3, "word", 13)
    size = pieces.vocab_size
    decode = DecodeConfig(beam_size=4, max_extra_length=6, max_source_length=20)
    sizes = {"source_vocab_size": size, "target_vocab_size": size}
    sizes |= {"encoder_layers": 2, "decoder_layers": 2}  # of one it writes UNK alone

    def build(target_side=pieces, source="en", target="de", **changes):
        model = small_model(**(sizes | changes))
        config = Config(model=model, data=DataConfig(source=source, target=target), decode=decode)
        return config, random_params(model), Tokenizers(pieces, target_side)

    return {
        "translator": build(),
        "language model": build(source="", encoder_layers=0),
        "masked model": build(target="", decoder_layers=0),
        "classifier": build(Labels(("one", "two")), decoder_layers=0, classes=2),
    }


@pytest.fixture(scope="session")
def report(models, tmp_path_factory):
    """A report of the translator."""
    for package in ("matplotlib", "jinja2"):
        pytest.importorskip(package, reason="needs the extra `viewing`")
    from tests.viewing.small_report import write_report

    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(path, models["translator"])
    return path


@pytest.fixture(scope="session")
def operations():
    """A function to all operations of a jaxpr, those of the jaxprs inside it too."""

    def walk(jaxpr):
        for operation in jaxpr.eqns:
            yield operation
            for inner in jaxprs_in_params(operation.params):
                yield from walk(inner)

    return walk


@pytest.fixture(scope="session")
def compiled_update():
    """A function from a config to one update on one device: (state, batch) -> (state, metrics)."""
    compiled = jax.jit(update, static_argnums=0)

    def build(config):
        def next_update(state, batch):
            return compiled(config, state, batch, learning_rate(config, int(state.step) + 1))

        return next_update

    return build
