"""From the words of a command to a checked Config.

Imports neither jax nor flax, so that `--help` answers at once.
"""

import contextlib
import dataclasses
import importlib.util
import io
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import tyro

from transformer.config import Config, DecodeConfig, GenerateConfig
from transformer.config.files import load_config
from transformer.config.rules import check, check_limits
from transformer.config.settings import VOCABULARY_SETTINGS, Count, Positive, differing_fields
from transformer.errors import UserError
from transformer.runs.folder import as_begun, has_checkpoints, load_run_config

Command = TypeVar("Command")

SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 5, 24 * 60 * 60
"""Of processes that train together, in seconds: one that works may be silent for some."""


@dataclass(frozen=True)
class TrainCommand:
    """Train a model, of whatever kind its config is. The same command resumes it."""

    config_file: tyro.conf.Positional[Path]
    """A Python file that defines `config = Config(...)`, such as configs/quickstart.py."""
    settings: Annotated[Config, tyro.conf.arg(name="")]
    """The settings of the config file, each of which can be changed here."""
    run: Path | None = None
    """The run folder; runs/NAME for configs/NAME.py by default."""
    from_run: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Another run, whose weights to begin with (fine-tuning), and whose model and vocabulary to
    take over."""
    from_checkpoint: str = "best"
    """Which of its checkpoints: best, last, average, average-best or a step."""
    device: Literal["any", "cpu", "gpu", "tpu"] = "any"
    """Train on such devices or not at all; any: on the best that JAX finds."""
    distributed: bool = False
    """Train together with other processes, on one machine or several."""
    partner_timeout: int = 60
    """Seconds after which another process that is silent counts as lost (with --distributed)."""
    stall_timeout: int = 3600
    """Seconds after which all end when none has come further (with --distributed): more than
    training the vocabulary, compiling, and a validation's translations take."""
    wandb: str = ""
    """A project of Weights & Biases in which to show the curves too."""
    profile: bool = False
    """Write a profile of ten early updates to RUN/profile."""
    doctor: bool = False
    """Examine the data instead of training: what is empty, twice, too long, of another script, in
    the test set too, unknown to the vocabulary. Trains the vocabulary, and changes nothing else."""
    plan: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[TARGET ...]")] = None
    """Instead of training, compile an update for each shape of batches, and say what memory and
    time training will take: here, or on h100, a100, v4, v5e, v5p or v6e, with a number or a
    topology where they are several (h100:8, v5e:2x2), which need not be there."""
    verify_resume: bool = False
    """Instead of training, prove with these settings, on this machine, that stopping changes
    nothing: the first 40 updates, once without a stop and once killed and stopped."""
    replay: Count = 0
    """The number of an update that was skipped and kept: compute it again, and show the norms of
    all weights and of their gradients."""
    print_config: bool = False
    """Print all settings in the form that a run folder keeps, and do nothing."""


@dataclass(frozen=True)
class EvalCommand:
    """Score a run on a test set."""

    run: tyro.conf.Positional[Path]
    """The run folder that train.py made."""
    checkpoint: str = "best"
    """best (by the validation set), last, average (of the last few), average-best or a step."""
    split: Literal["test", "validation"] = "test"
    """Which of the run's data sets to score."""
    test_files: tuple[str, ...] = ()
    """Other test sets instead, each a source file and a reference file, the file of the one side
    there is, or one table, read as data.tsv_columns and data.swap_files say."""
    references: tuple[str, ...] = ()
    """Files of references, several of each sentence if there are several files, instead of those of
    the test set."""
    sacrebleu: tuple[str, ...] = ()
    """Test sets of sacreBLEU's instead, such as wmt14/full, which it downloads once."""
    compare: str = ""
    """Another run, or RUN:CHECKPOINT, to be compared with on the same test set: which one is
    better, and how sure that is."""
    lowercased: bool = False
    """BLEU of lower-cased text too, as older papers have it."""
    bleu_tokenizer: str = ""
    """How BLEU finds words, one of the values of data.bleu_tokenizer; the run's by default."""
    details: Count = 0
    """Show scores by length, and so many of the worst and of the best translations."""
    report: bool = False
    """Write RUN/report.html too: one page with curves, scores, examples, attention, cost, data."""
    beside: tuple[Path, ...] = ()
    """Other runs, whose curves the report shows beside those of this one."""
    sentences: tuple[str, ...] = ()
    """Sentences whose attention the report shows; some of the test set by default."""
    scores: bool = False
    """Show all scores that have been kept of the run, and score nothing."""
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    """How to search; the run's own settings by default."""


@dataclass(frozen=True)
class TranslateCommand:
    """Translate standard input, line by line, to standard output."""

    run: tyro.conf.Positional[Path]
    """The run folder that train.py made."""
    checkpoint: str = "best"
    """best (by the validation set), last, average (of the last few), average-best or a step."""
    ensemble: tuple[str, ...] = ()
    """More runs of the same vocabulary, or RUN:CHECKPOINT, whose mean probability counts."""
    nbest: Positive = 1
    """So many of the best translations of each line, with their scores."""
    alignments: bool = False
    """Say which source word each word of a translation comes from, such as 0-0 1-2 (Pharaoh)."""
    score: bool = False
    """Give the log-probability of translations that stand in the input, instead of searching."""
    input: Literal["text", "tsv", "json"] = "text"
    """text: a sentence a line; tsv: after a tab what its translation is to begin with, or with
    --score a translation; json: an object a line with "text", "prefix" and "translation"."""
    output: Literal["text", "json"] = "text"
    """text: translations; json: with scores, tokens and all that was asked for."""
    on_error: Literal["stop", "skip"] = "stop"
    """A line that cannot be read or answered: stop, when all before it are answered; or skip: it
    gets an empty line, or in JSON an object with "error", and a warning."""
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    """How to search; the run's own settings by default."""


@dataclass(frozen=True)
class GenerateCommand:
    """Continue standard input, line by line, or fill in its blanks."""

    run: tyro.conf.Positional[Path]
    """The run folder that train.py made."""
    generate: Annotated[GenerateConfig, tyro.conf.arg(name="")] = field(
        default_factory=GenerateConfig
    )
    """How."""
    checkpoint: str = "best"
    """best (by the validation set), last, average (of the last few), average-best or a step."""
    input: Literal["text", "json"] = "text"
    """text: a line each; json: an object a line with "text", whose other fields come back."""
    output: Literal["text", "json"] = "text"
    """text: lines; json: an object for each line, with all its continuations or guesses."""
    on_error: Literal["stop", "skip"] = "stop"
    """A line that cannot be read or answered: stop, when all before it are answered; or skip: it
    gets an empty line, or in JSON an object with "error", and a warning."""


def parse_train(words: list[str]) -> TrainCommand:
    """The checked command, its run folder named. The config file's settings are the defaults."""
    path = _first_word(words, "python train.py CONFIG [--settings]")
    config = load_config(path) if path else Config()
    from_run = _word_after("--from", words)
    if path and from_run:
        run = Path(_word_after("--run", words) or _default_run(path))
        # A run that has begun has taken over already.
        other = run if has_checkpoints(run) else Path(from_run)
        config = taking_over(config, from_run, load_run_config(other))
    default = TrainCommand(path or tyro.MISSING, config)
    command = _parse(TrainCommand, words, default, prog="python train.py")
    run = command.run or _default_run(command.config_file)
    if from_run:
        _check_taken_over(command, run, config)
    for name in ("partner_timeout", "stall_timeout"):
        if not SHORTEST_TIMEOUT <= getattr(command, name) <= LONGEST_TIMEOUT:
            raise UserError(
                f"--{name.replace('_', '-')} ({getattr(command, name)}) must be "
                f"{SHORTEST_TIMEOUT} to {LONGEST_TIMEOUT} s"
            )
    if len(command.wandb) > 128 or set(command.wandb) & {*"/\\#?%:"}:
        raise UserError(
            f"--wandb {command.wandb!r}: the name of a project has at most 128 characters, and "
            "none of / \\ # ? % :"
        )
    if command.wandb and importlib.util.find_spec("wandb") is None:
        raise UserError("--wandb needs Weights & Biases: pip install -e '.[wandb]'")
    check(command.settings)
    return dataclasses.replace(command, run=run, settings=as_begun(run, command.settings))


def _default_run(config_file: Path) -> Path:
    return Path("runs") / config_file.stem


def taking_over(config: Config, name: str, earlier: Config) -> Config:
    """`config` with the model and the vocabulary of an earlier run, and its name."""
    vocabulary = {setting: getattr(earlier.data, setting) for setting in VOCABULARY_SETTINGS}
    return dataclasses.replace(
        config,
        model=earlier.model,
        data=dataclasses.replace(config.data, **vocabulary),
        train=dataclasses.replace(config.train, origin=name),
    )


def _check_taken_over(command: TrainCommand, run: Path, taken_over: Config) -> None:
    """Raises UserError where the command contradicts what --from takes over."""
    if run.absolute() == command.from_run.absolute():
        raise UserError(f"--from {run} is the run folder itself: name a new one with --run")
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


def _word_after(option: str, words: list[str]) -> str | None:
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
    """An EvalCommand or TranslateCommand, and the run's config with its `decode` settings."""
    path = _first_word(words, f"{prog} RUN [--settings]")
    config = load_run_config(path) if path else Config()
    default = command(path or tyro.MISSING, decode=config.decode)
    parsed = _parse(command, words, default, prog)
    check_limits(parsed)
    config = dataclasses.replace(config, decode=parsed.decode)
    check(config)
    return parsed, config


def parse_eval(words: list[str]) -> tuple[EvalCommand, Config]:
    """Raises UserError for a report that could not be written, and settings without an effect."""
    command, config = parse_with_run(EvalCommand, words, prog="python eval.py")
    for name in ("beside", "sentences"):
        if getattr(command, name) and not command.report:
            raise UserError(f"--{name} has no effect without --report")
    if command.report and command.scores:
        raise UserError("--scores scores nothing: leave it or --report out")
    for run in command.beside:
        load_run_config(run)
        if not (run / "metrics.jsonl").exists():
            raise UserError(f"--beside: {run} has no curves, since it has no metrics.jsonl")
    if (command.run / "report.html").is_dir():
        raise UserError(f"{command.run / 'report.html'} is a folder: the report needs its name")
    for package in ("jinja2", "matplotlib"):
        if command.report and importlib.util.find_spec(package) is None:
            raise UserError(f"--report needs {package}: pip install -e '.[viewing]'")
    if command.bleu_tokenizer:
        data = dataclasses.replace(config.data, bleu_tokenizer=command.bleu_tokenizer)
        config = dataclasses.replace(config, data=data)
        check(config)
    return command, config


def parse_translate(words: list[str]) -> tuple[TranslateCommand, Config]:
    """Raises UserError for a run that is no translator."""
    command, config = parse_with_run(TranslateCommand, words, prog="python translate.py")
    if len(config.data.sides) == 1:
        raise UserError(
            f"{command.run} is no translator, {_kind(config)}: python generate.py {command.run}"
        )
    if command.nbest > config.decode.beam_size:
        raise UserError(
            f"--nbest ({command.nbest}) must not exceed --decode.beam-size "
            f"({config.decode.beam_size})"
        )
    if command.score and command.input == "text":
        raise UserError("--score reads translations from the input: add --input tsv or json")
    if command.score and command.nbest > 1:
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
    prog = "python generate.py"
    path = _first_word(words, f"{prog} RUN [--settings]")
    command = _parse(GenerateCommand, words, GenerateCommand(path or tyro.MISSING), prog)
    settings = command.generate
    check_limits(settings)
    if 0 < settings.beam_size < settings.samples:
        raise UserError(
            f"--samples ({settings.samples}) must not exceed --beam-size ({settings.beam_size})"
        )
    if settings.min_length > settings.max_tokens:
        raise UserError(
            f"--min-length ({settings.min_length}) must not exceed --max-tokens "
            f"({settings.max_tokens})"
        )
    config = load_run_config(command.run)
    check(config)
    if len(config.data.sides) == 2:
        raise UserError(f"{command.run} is a translator: python translate.py {command.run}")
    _check_effect(settings, config)
    if settings.log_probs and command.output == "json":
        raise UserError("--log-probs has no effect: --output json has them without it")
    return command, config


def _check_effect(settings: GenerateConfig, config: Config) -> None:
    """Raises UserError for a setting that changes nothing of what is generated."""
    default = vars(GenerateConfig())
    changed = [name for name, value in vars(settings).items() if value != default[name]]
    if config.model.encoder_layers:
        idle, reason = {*default} - {"words"}, "this run has an encoder alone, which continues none"
    elif settings.beam_size:
        idle, reason = (
            {"temperature", "top_k", "top_p", "seed", "words"},
            "--beam-size does not draw",
        )
    else:
        idle, reason = {"words"}, "this run has a decoder alone, which fills in no blanks"
        if config.data.windows and settings.min_length:
            raise UserError("--min-length has no effect: with data.windows texts never end")
    for name in changed:
        if name in idle:
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
    """tyro's reading of the words; what it draws in a box becomes one sentence."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(command, args=words, default=default, prog=prog)
    except SystemExit as stop:
        if not stop.code:
            raise
        body = complaint.getvalue().split("For full helptext")[0].partition("\n")[2]  # no title
        sentence = " ".join(re.sub(r"[\u2500-\u257f]|-{4,}", " ", body).split())
        raise UserError(f"{sentence} (all settings: {prog} --help)") from None


def _first_word(words: list[str], usage: str) -> Path | None:
    """The path that the other words' defaults depend on; None when tyro is to explain itself."""
    if not words or words[0] in ("-h", "--help"):
        return None
    if words[0].startswith("-"):
        raise UserError(f"{words[0]} comes too early: {usage}")
    return Path(words[0])
