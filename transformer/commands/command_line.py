"""From the words of a command line to checked settings.

Imports neither jax nor flax, so that `--help` answers at once.
"""

import contextlib
import dataclasses
import importlib.util
import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro
from tyro.conf import Positional, arg
from tyro.constructors import (
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from transformer.config import Config, DecodeConfig, GenerateConfig
from transformer.config.files import load_config
from transformer.config.rules import check, check_limits
from transformer.config.settings import (
    FORMER_NAMES,
    VOCABULARY_SETTINGS,
    Count,
    Positive,
    differing_fields,
    is_derived,
)
from transformer.errors import UserError
from transformer.runs.folder import has_checkpoints, load_run_config, with_former_defaults

Command = TypeVar("Command")

RunFolder = Positional[Annotated[Path, arg(help="The run folder.")]]
Checkpoint = Annotated[str, arg(help="best, last, average, average-best, or a step.")]
Decode = Annotated[DecodeConfig, arg(help="How to search; the run's own settings by default.")]
OnError = Annotated[
    Literal["stop", "skip"],
    arg(
        help="A line that cannot be read or answered. stop: exit with an error, after all lines "
        'before it are answered; skip: an empty line, or in JSON an object with "error".'
    ),
]
SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 5, 24 * 60 * 60
"""Of processes that train together, in seconds: a process at work may be silent for some."""


@dataclass(frozen=True)
class TrainCommand:
    """Train a model of the kind that its config describes. The same command resumes it."""

    config_file: Positional[Path]
    """A Python file that defines `config = Config(...)`, such as configs/quickstart.py."""
    settings: Annotated[Config, arg(name="")]
    """The settings of the config file, each of which can be changed here."""
    run: Path = Path("runs/NAME")
    """The run folder; runs/NAME for configs/NAME.py by default."""
    from_run: Annotated[Path | None, arg(name="from")] = None
    """Another run, whose weights to begin with (fine-tuning), and whose model and vocabulary to
    take over."""
    from_checkpoint: Checkpoint = "best"
    device: Literal["any", "cpu", "gpu", "tpu"] = "any"
    """Devices to train on; without such a device training does not begin. any: the best that JAX
    finds."""
    distributed: bool = False
    """Train together with other processes, on one machine or several."""
    partner_timeout: int = 60
    """Seconds after which another process that is silent counts as lost (with --distributed)."""
    stall_timeout: int = 3600
    """Seconds without progress of any process after which all exit (with --distributed): more than
    training the vocabulary, compiling, and a validation's translations take."""
    wandb: str = ""
    """A project of Weights & Biases that shows the curves too."""
    profile: bool = False
    """Write a profile of ten early updates to RUN/profile."""
    doctor: bool = False
    """Examine the data instead of training: empty, duplicate, too long or unknown text, other
    scripts, overlap with the test set. Trains the vocabulary, and changes nothing else."""
    plan: Annotated[tuple[str, ...] | None, arg(metavar="[TARGET ...]")] = None
    """Instead of training, compile an update for each shape of batches, and print the memory and
    time that training will take: here, or on h100, a100, v4, v5e, v5p or v6e, with a number or a
    topology for several (h100:8, v5e:2x2), which need not be present."""
    verify_resume: bool = False
    """Instead of training, prove with these settings, on this machine, that an interruption changes
    nothing: the first 40 updates, once uninterrupted and once killed and stopped."""
    replay: Count = 0
    """The number of an update that was skipped and kept: compute it again, and show the norms of
    all weights and of their gradients."""
    print_config: bool = False
    """Print all settings in the form that a run folder keeps, and exit."""


@dataclass(frozen=True)
class EvalCommand:
    """Score a run on a test set."""

    run: RunFolder
    checkpoint: Checkpoint = "best"
    split: Literal["test", "validation"] = "test"
    """Which of the run's data sets to score."""
    test_files: tuple[str, ...] = ()
    """Other test sets instead, each a source file and a reference file, the file of the one side
    there is, or one table, read as data.tsv_columns and data.swap_files say."""
    references: tuple[str, ...] = ()
    """Files of references instead of those of the test set; several files are several references
    of each sentence."""
    sacrebleu: tuple[str, ...] = ()
    """Test sets of sacreBLEU's instead, such as wmt14/full, which it downloads once."""
    compare: str = ""
    """Another run, or RUN:CHECKPOINT, to be compared with on the same test set: which one is
    better, and whether the difference is significant."""
    lowercased: bool = False
    """BLEU of lower-cased text too, as in older papers."""
    bleu_tokenizer: str = ""
    """How BLEU finds words, one of the values of data.bleu_tokenizer; the run's by default."""
    details: Count = 0
    """Show scores by length, and this number of the worst and of the best translations."""
    report: bool = False
    """Write RUN/report.html too: one page with curves, scores, examples, attention, cost, data."""
    beside: tuple[Path, ...] = ()
    """Other runs, whose curves the report shows beside those of this one."""
    sentences: tuple[str, ...] = ()
    """Sentences whose attention the report shows; some of the test set by default."""
    scores: bool = False
    """Show all scores that have been kept of the run, and score nothing."""
    decode: Decode = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class TranslateCommand:
    """Translate standard input, line by line, to standard output."""

    run: RunFolder
    checkpoint: Checkpoint = "best"
    ensemble: tuple[str, ...] = ()
    """More runs of the same vocabulary, or RUN:CHECKPOINT; their probabilities are averaged."""
    nbest: Positive = 1
    """Number of best translations of each line, with their scores."""
    alignments: bool = False
    """Print the source word that each word of a translation comes from, as in 0-0 1-2 (Pharaoh)."""
    score: bool = False
    """Print the log-probability of translations in the input, instead of searching."""
    input: Literal["text", "tsv", "json"] = "text"
    """text: one sentence per line; tsv: after a tab the prefix of its translation, or with --score
    a translation; json: one object per line with "text", "prefix" and "translation"."""
    output: Literal["text", "json"] = "text"
    """text: translations; json: with scores, tokens and all other fields of the request."""
    on_error: OnError = "stop"
    decode: Decode = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class GenerateCommand:
    """Continue standard input, line by line, or fill in its blanks."""

    run: RunFolder
    generate: Annotated[GenerateConfig, arg(name="")] = field(default_factory=GenerateConfig)
    """How to continue it."""
    checkpoint: Checkpoint = "best"
    input: Literal["text", "json"] = "text"
    """text: one text per line; json: one object per line with "text"; its other fields are printed
    too."""
    output: Literal["text", "json"] = "text"
    """text: lines; json: one object per line, with all its continuations or predictions."""
    on_error: OnError = "stop"


def parse_train(words: list[str]) -> TrainCommand:
    """The checked command, its run folder named. The config file's settings are the defaults."""
    path = _first_word(words, "python train.py CONFIG [--settings]")
    config = load_config(path) if path else Config()
    from_run = _last_value("--from", words)
    if path and from_run:
        run = Path(_last_value("--run", words) or _default_run(path))
        # A run that has begun has taken over already.
        other = run if has_checkpoints(run) else Path(from_run)
        config = taking_over(config, from_run, load_run_config(other))
    default = TrainCommand(path or tyro.MISSING, config)
    if path:
        default = dataclasses.replace(default, run=_default_run(path))
    command = _parse(TrainCommand, words, default, prog="python train.py")
    if from_run:
        _check_taken_over(command, config)
    timeouts = {"partner": command.partner_timeout, "stall": command.stall_timeout}
    for name, seconds in timeouts.items():
        if not SHORTEST_TIMEOUT <= seconds <= LONGEST_TIMEOUT:
            limits = f"{SHORTEST_TIMEOUT} to {LONGEST_TIMEOUT} s"
            raise UserError(f"--{name}-timeout ({seconds}) must be {limits}")
    if len(command.wandb) > 128 or set(command.wandb) & {*"/\\#?%:"}:
        raise UserError(
            f"--wandb {command.wandb!r}: the name of a project has at most 128 characters, and "
            "none of / \\ # ? % :"
        )
    if command.wandb:
        _require("wandb", "--wandb", "wandb")
    check(command.settings)
    return dataclasses.replace(
        command, settings=with_former_defaults(command.run, command.settings)
    )


def _default_run(config_file: Path) -> Path:
    return Path("runs") / config_file.stem


def _require(package: str, option: str, extra: str) -> None:
    """Raises UserError if an option needs a package that is not installed."""
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{option} needs {package}: pip install -e '.[{extra}]'")


def taking_over(config: Config, name: str, earlier: Config) -> Config:
    """`config` with the model and the vocabulary of an earlier run, and its name."""
    vocabulary = {setting: getattr(earlier.data, setting) for setting in VOCABULARY_SETTINGS}
    return dataclasses.replace(
        config,
        model=earlier.model,
        data=dataclasses.replace(config.data, **vocabulary),
        train=dataclasses.replace(config.train, origin=name),
    )


def _check_taken_over(command: TrainCommand, taken_over: Config) -> None:
    """Raises UserError if the command contradicts what --from takes over."""
    if command.run.absolute() == command.from_run.absolute():
        raise UserError(f"--from {command.run} is the run folder itself: name a new one with --run")
    model, data = command.settings.model, command.settings.data
    if (model.encoder_layers > 0, model.decoder_layers > 0) != (data.source > "", data.target > ""):
        raise UserError(
            f"{command.from_run} is another kind of model than this config's data are for: with "
            f"its {model.encoder_layers} encoder and {model.decoder_layers} decoder layers, set "
            "data.source and data.target to a language where there are layers and to '' where "
            "there are none"
        )
    for name in differing_fields(taken_over, command.settings):
        if name.removeprefix("data.") in VOCABULARY_SETTINGS:
            raise UserError(f"{name} is taken over from {command.from_run}: leave the setting out")


def _last_value(option: str, words: list[str]) -> str | None:
    """The last value of an option, which the defaults of others depend on."""
    value = None
    for word, following in zip(words, [*words[1:], None]):
        if word.partition("=")[0] == option:
            value = word.partition("=")[2] or following
    return value


def named_settings(
    words: list[str], section: str, settings: dict[str, object]
) -> dict[str, object]:
    """Those settings of a section that the words name, whatever value they give them."""
    named = {word.partition("=")[0].replace("-", "_") for word in words}
    return {
        name: value
        for name, value in settings.items()
        if {f"__{section}.{name}", f"__{section}.no_{name}"} & named
    }


def parse_with_run(command: type[Command], words: list[str], prog: str) -> tuple[Command, Config]:
    """A command whose first word is a run, and the run's config, with the command's `decode`."""
    path = _first_word(words, f"{prog} RUN [--settings]")
    config = load_run_config(path) if path else Config()
    has_decode = any(one.name == "decode" for one in dataclasses.fields(command))
    defaults = {"decode": config.decode} if has_decode else {}
    make: Any = command
    parsed: Any = _parse(command, words, make(path or tyro.MISSING, **defaults), prog)
    check_limits(parsed)
    if has_decode:
        config = dataclasses.replace(config, decode=parsed.decode)
    check(config)
    return parsed, config


def parse_eval(words: list[str]) -> tuple[EvalCommand, Config]:
    """Raises UserError for a report that could not be written, and settings without an effect."""
    command, config = parse_with_run(EvalCommand, words, prog="python eval.py")
    page = command.run / "report.html"
    for name in ("beside", "sentences"):
        if getattr(command, name) and not command.report:
            raise UserError(f"--{name} has no effect without --report")
    if command.report and command.scores:
        raise UserError("--scores scores nothing: leave it or --report out")
    for run in command.beside:
        load_run_config(run)
        if not (run / "metrics.jsonl").exists():
            raise UserError(f"--beside: {run} has no curves, since it has no metrics.jsonl")
    if page.is_dir():
        raise UserError(f"{page} is a folder: the report needs its name")
    for package in ("jinja2", "matplotlib") if command.report else ():
        _require(package, "--report", "viewing")
    if command.bleu_tokenizer:
        data = dataclasses.replace(config.data, bleu_tokenizer=command.bleu_tokenizer)
        config = dataclasses.replace(config, data=data)
        check(config)
    return command, config


def parse_translate(words: list[str]) -> tuple[TranslateCommand, Config]:
    """Raises UserError for a run that is not a translator, and options that exclude each other."""
    command, config = parse_with_run(TranslateCommand, words, prog="python translate.py")
    run, nbest, beam = command.run, command.nbest, config.decode.beam_size
    if len(config.data.sides) == 1:
        raise UserError(f"{run} is no translator, {_kind(config)}: python generate.py {run}")
    if nbest > beam:
        raise UserError(f"--nbest ({nbest}) must not exceed --decode.beam-size ({beam})")
    if command.score and command.input == "text":
        raise UserError("--score reads translations from the input: add --input tsv or json")
    if command.score and nbest > 1:
        raise UserError("--score does not search: leave --nbest out")
    return command, config


def member(name: str) -> tuple[Path, str]:
    """A run and its checkpoint, of RUN or RUN:CHECKPOINT."""
    run, colon, checkpoint = name.rpartition(":")
    if colon and not Path(name).exists():
        return Path(run), checkpoint
    return Path(name), "best"


def parse_generate(words: list[str]) -> tuple[GenerateCommand, Config]:
    """Raises UserError for a run that is a translator, and for settings without an effect."""
    command, config = parse_with_run(GenerateCommand, words, prog="python generate.py")
    run, settings = command.run, command.generate
    samples, beam = settings.samples, settings.beam_size
    shortest, longest = settings.min_length, settings.max_tokens
    check_limits(settings)
    if 0 < beam < samples:
        raise UserError(f"--samples ({samples}) must not exceed --beam-size ({beam})")
    if shortest > longest:
        raise UserError(f"--min-length ({shortest}) must not exceed --max-tokens ({longest})")
    if len(config.data.sides) == 2:
        raise UserError(f"{run} is a translator: python translate.py {run}")
    _check_effect(settings, config)
    if settings.log_probs and command.output == "json":
        raise UserError("--log-probs has no effect: --output json has them without it")
    return command, config


def _check_effect(settings: GenerateConfig, config: Config) -> None:
    """Raises UserError for a setting that changes nothing of what is generated."""
    default = vars(GenerateConfig())
    if config.model.encoder_layers:
        idle, reason = {*default} - {"words"}, "this run has an encoder alone, which continues none"
    elif settings.beam_size:
        idle = {"temperature", "top_k", "top_p", "seed", "words"}
        reason = "--beam-size does not draw"
    else:
        idle, reason = {"words"}, "this run has a decoder alone, which fills in no blanks"
        if config.data.windows and settings.min_length:
            raise UserError("--min-length has no effect: with data.windows texts never end")
    for name, value in vars(settings).items():
        if name in idle and value != default[name]:
            raise UserError(f"--{name.replace('_', '-')} has no effect: {reason}")


def _kind(config: Config) -> str:
    if config.model.classes:
        return "but a classifier"
    alone = "decoder, which continues" if config.model.decoder_layers else "encoder, which fills in"
    return f"but only a{'n' * alone.startswith('e')} {alone} text"


def parse_script(command: type[Command], words: list[str], prog: str) -> Command:
    """The checked settings of a script that takes no Config."""
    parsed = _parse(command, words, tyro.MISSING_NONPROP, prog)
    check_limits(parsed)
    return parsed


def _parse(command: type[Command], words: list[str], default: Command, prog: str) -> Command:
    """The words parsed by tyro, whose message in a box becomes one sentence."""
    message, words = io.StringIO(), list(map(_current_flag, words))
    try:
        with contextlib.redirect_stderr(message):
            return tyro.cli(command, args=words, default=default, prog=prog, registry=FLAGS)
    except SystemExit as stop:
        if not stop.code:
            raise
        body = message.getvalue().split("For full helptext")[0].partition("\n")[2]  # no title
        sentence = " ".join(re.sub(r"[\u2500-\u257f]|-{4,}", " ", body).split())
        raise UserError(f"{sentence} (all settings: {prog} --help)") from None


FLAGS = ConstructorRegistry()
SEEN = object()
HIDDEN: Any = tyro.conf.Suppress


@FLAGS.struct_rule
def _flags_of(info: StructTypeInfo) -> StructConstructorSpec | None:
    """tyro's own flags of a dataclass, except those of derived fields; each help text is one
    paragraph, where tyro would keep the line breaks of indented docstrings."""
    if SEEN in info.markers or not dataclasses.is_dataclass(info.type):
        return None
    info = dataclasses.replace(info, markers=(*info.markers, SEEN))
    spec = ConstructorRegistry.get_struct_spec(info)
    return dataclasses.replace(spec, fields=tuple(map(_flag_of, spec.fields)))


def _flag_of(field: StructFieldSpec) -> StructFieldSpec:
    def helptext() -> str:
        text = field.helptext() if callable(field.helptext) else field.helptext
        return " ".join((text or "").split())

    kind = HIDDEN[field.type] if is_derived(field.type) else field.type
    return dataclasses.replace(field, type=kind, helptext=helptext)


def _current_flag(word: str) -> str:
    """A flag with the name that its setting has now; other words as they are."""
    flag, equals, value = word.partition("=")
    section, _, name = flag.rpartition(".")
    current = FORMER_NAMES.get(name.replace("-", "_"))
    return f"{section}.{current}{equals}{value}" if flag[:2] == "--" and current else word


def _first_word(words: list[str], usage: str) -> Path | None:
    """The path that the defaults of other words depend on; None if tyro is to print its usage."""
    if not words or words[0] in ("-h", "--help"):
        return None
    if words[0].startswith("-"):
        raise UserError(f"{words[0]} comes too early: {usage}")
    return Path(words[0])
