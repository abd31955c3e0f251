"""From the words of a command line to checked settings.

Imports neither jax nor flax, so that `--help` answers at once.
"""

import contextlib
import dataclasses
import importlib.util
import io
import itertools
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
    VOCABULARY_SETTINGS,
    Count,
    Perturbation,
    Positive,
    current_name,
    differing_fields,
    is_derived,
    without_derived,
)
from transformer.documents import FORMATS, Format
from transformer.errors import UserError
from transformer.runs.folder import has_checkpoints, load_run_config, with_former_defaults

Command = TypeVar("Command")

RunFolder = Positional[Annotated[Path, arg(help="The run folder.")]]
Checkpoint = Annotated[
    str, arg(help="best, last, average, average-best, or the number of an update.")
]
Decode = Annotated[DecodeConfig, arg(help="Settings of the search; by default those of the run.")]
OnError = Annotated[
    Literal["stop", "skip"],
    arg(
        help="What happens at a line that cannot be read or answered. stop: exit with an error, "
        "after all lines before it have been answered; skip: print an empty line, or in JSON an "
        'object with "error", and continue.'
    ),
]
TRAIN = "python train.py"

SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 5, 24 * 60 * 60
"""Of processes that train together, in seconds: a process at work may be silent for some."""


@dataclass(frozen=True)
class TrainCommand:
    """Train the model that a config file describes, or one that suits some files of text; the same
    command resumes training."""

    inputs: Positional[tuple[Path, ...]]
    """A Python file that defines `config = Config(...)`, such as configs/quickstart.py. Or files to
    train on (data.train_files), such as text.en text.de: then the settings are chosen by the amount
    of text."""
    settings: Annotated[Config, arg(name="")]
    """Settings of the config file; each can be changed on the command line."""
    run: Path = Path("runs/NAME")
    """The run folder; by default runs/NAME for configs/NAME.py or NAME.en."""
    from_run: Annotated[Path | None, arg(name="from")] = None
    """Run to fine-tune: training starts from its weights, with its model settings and vocabulary.
    """
    from_checkpoint: Checkpoint = "best"
    device: Literal["any", "cpu", "gpu", "tpu"] = "any"
    """Kind of device to train on; an error if JAX finds none of this kind; any: the best that JAX
    finds."""
    distributed: bool = False
    """Train one model in several processes, on one machine or several; this is one of them."""
    partner_timeout: int = 60
    """With --distributed: seconds without a heartbeat after which another process counts as lost.
    """
    stall_timeout: int = 3600
    """With --distributed: seconds without progress of any process after which all exit; must be
    longer than training the vocabulary, compiling, or translating the validation set takes."""
    wandb: str = ""
    """Project of Weights & Biases to which metrics are logged too; "": none."""
    profile: bool = False
    """Write a profile of ten early updates to RUN/profile."""
    doctor: bool = False
    """Instead of training, report problems of the data: empty, duplicate, too long or unknown text,
    other scripts, overlap with the test set. Trains the vocabulary, and changes nothing else."""
    plan: Annotated[tuple[str, ...] | None, arg(metavar="[TARGET ...]")] = None
    """Instead of training, compile an update for each batch shape, and print the memory and time
    that training will take on this machine or on the named targets, which need not be present:
    h100, a100, v4, v5e, v5p or v6e, with a count or a topology for several devices (h100:8,
    v5e:2x2)."""
    verify_resume: bool = False
    """Instead of training, check that interruptions change nothing: the first 40 updates with these
    settings, once uninterrupted and once with a SIGKILL and a SIGTERM, must be equal bit for bit.
    """
    replay: Count = 0
    """Instead of training, compute a skipped update again (its number in RUN/skipped), and print
    the norms of all weights and of their gradients; 0: train."""
    print_config: bool = False
    """Print all settings in the format of the run's config.json, and exit."""

    @property
    def vocabulary(self) -> tuple[Path | None, bool]:
        """The run whose vocabulary is used, this one if it has begun, and whether a classifier's
        classes are new."""
        has_begun = has_checkpoints(self.run)
        home = self.run if has_begun else self.from_run
        return home, bool(self.from_run) and not has_begun


@dataclass(frozen=True)
class EvalCommand:
    """Score a run on a test set."""

    run: RunFolder
    checkpoint: Checkpoint = "best"
    split: Literal["test", "validation"] = "test"
    """Data set of the run to score."""
    test_files: tuple[str, ...] = ()
    """Test sets to score instead: each a source file and a reference file, or one table, or one
    text file for an encoder or a decoder alone; data.tsv_columns and data.swap_files apply."""
    references: tuple[str, ...] = ()
    """Reference files instead of those of the test set; with several files, each sentence has
    several references."""
    sacrebleu: tuple[str, ...] = ()
    """Test sets of sacreBLEU to score instead, such as wmt14/full; each is downloaded once."""
    perturb: tuple[Perturbation, ...] = ()
    """Ways to change the test set: it is also scored in upper case, say, as data augmentation
    (data.upper_case) changes training pairs; a table shows all scores side by side."""
    confidence: bool = False
    """Also print how many words of each confidence are not in the reference. With --split
    validation, the confidence is fitted first, and kept in the run."""
    ensemble: tuple[str, ...] = ()
    """More runs with the same vocabulary, each RUN or RUN:CHECKPOINT, whose probabilities are
    averaged with those of this run."""
    compare: str = ""
    """Another run, or RUN:CHECKPOINT, to compare with on the same test set: print which one is
    better, and whether the difference is significant; "": none."""
    lowercased: bool = False
    """Also print BLEU of lower-cased text, as in older papers."""
    bleu_tokenizer: str = ""
    """The sacreBLEU tokenizer for BLEU, a value of data.bleu_tokenizer; "": that of the run."""
    details: Count = 0
    """Also print scores by source length, and this number of the worst and of the best
    translations; 0: none."""
    report: bool = False
    """Also write RUN/report.html, a page with curves, scores, examples, attention, cost and data.
    """
    beside: tuple[Path, ...] = ()
    """Other runs, whose curves the report shows for comparison."""
    sentences: tuple[str, ...] = ()
    """Sentences whose attention the report shows; by default some of the test set."""
    scores: bool = False
    """Print all scores that were kept in the run, and score nothing."""
    decode: Decode = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class TranslateCommand:
    """Translate standard input, line by line, to standard output."""

    run: RunFolder
    checkpoint: Checkpoint = "best"
    ensemble: tuple[str, ...] = ()
    """More runs with the same vocabulary, each RUN or RUN:CHECKPOINT, whose probabilities are
    averaged with those of this run."""
    nbest: Positive = 1
    """Number of translations to print for each line, best first, with their scores; 1: only the
    best translation, without its score."""
    alignments: bool = False
    """Also print for each word of a translation the source word that it comes from, such as 0-0 1-2
    (Pharaoh format)."""
    confidence: bool = False
    """With --output json: also write how sure the model is of each word, and of the translation
    ("words", "confidence"), from 0 to 1; eval.py --split validation --confidence fits it."""
    score: bool = False
    """Print log-probabilities of translations that are given in the input, instead of searching."""
    input: Literal["text", "tsv", "json", Format] = "text"
    """text: one sentence per line; tsv: sentence, tab, prefix of its translation (with --score: the
    translation); json: one object per line with "text", "prefix", "target" and "translation".
    Others are whole documents, written as they were read: paragraphs: lines of several sentences;
    html; srt: subtitles, also WebVTT; po, xliff, tmx: translation files, in which missing
    translations are added."""
    target: str = ""
    """With a model of several target languages: the language to translate into, such as de; "": the
    one whose tag the text begins with."""
    glossary: str = ""
    """Terms that translations must have: a file with lines of a source term, a tab, and its target
    term; | separates the forms of a term; "": none."""
    keep_numbers: bool = False
    """With documents: also keep numbers as they are, like addresses, emoji and placeholders such as
    {name} and %s."""
    output: Literal["text", "json"] = "text"
    """text: translations; json: one object per line, with scores, tokens and all other fields of
    the request."""
    on_error: OnError = "stop"
    decode: Decode = field(default_factory=DecodeConfig)


@dataclass(frozen=True)
class GenerateCommand:
    """Continue the lines of standard input, or predict their masked words (`__`) or their class."""

    run: RunFolder
    generate: Annotated[GenerateConfig, arg(name="")] = field(default_factory=GenerateConfig)
    """Settings of generation."""
    checkpoint: Checkpoint = "best"
    input: Literal["text", "json"] = "text"
    """text: one text per line; json: one object per line with "text", whose other fields are
    printed too."""
    output: Literal["text", "json"] = "text"
    """text: lines; json: one object per line, with all continuations or predictions of the text."""
    on_error: OnError = "stop"


def parse_train(words: list[str]) -> TrainCommand:
    """The checked command, its run folder named. The config file's settings are the defaults."""
    _first_word(words, f"{TRAIN} CONFIG_OR_FILES [--settings]")
    inputs = tuple(itertools.takewhile(lambda word: not word.startswith("-"), words))
    if not inputs:
        _parse(TrainCommand, words, TrainCommand(tyro.MISSING, Config()), TRAIN)
        raise UserError(
            "name a config file, such as configs/quickstart.py, or text files to train on "
            f"(all settings: {TRAIN} --help)"
        )
    default = TrainCommand(tuple(map(Path, inputs)), Config(), _default_run(Path(inputs[0])))
    run = Path(_last_value("--run", words) or default.run)
    config = _config_of(default, words, run)
    from_run = _last_value("--from", words)
    if from_run:
        # A run that has begun has taken over already.
        other = run if has_checkpoints(run) else Path(from_run)
        config = taking_over(config, from_run, load_run_config(other))
    command = _parse(TrainCommand, words, dataclasses.replace(default, settings=config), TRAIN)
    if from_run:
        _check_taken_over(command, config)
    timeouts = {"partner": command.partner_timeout, "stall": command.stall_timeout}
    for name, seconds in timeouts.items():
        if not SHORTEST_TIMEOUT <= seconds <= LONGEST_TIMEOUT:
            limits = f"{SHORTEST_TIMEOUT} to {LONGEST_TIMEOUT} s"
            raise UserError(f"--{name}-timeout ({seconds}) must be {limits}")
    if len(command.wandb) > 128 or set(command.wandb) & {*"/\\#?%:"}:
        raise UserError(
            f"--wandb {command.wandb!r}: a project name may have at most 128 characters, and "
            "none of / \\ # ? % :"
        )
    if command.wandb:
        _require("wandb", "--wandb", "wandb")
    check(command.settings)
    return dataclasses.replace(
        command, settings=with_former_defaults(command.run, command.settings)
    )


def is_config(path: Path) -> bool:
    """Whether the first input of train.py names a config file; otherwise all are text files."""
    return path.suffix == ".py" or not (path.suffix or path.is_file())


def _default_run(first: Path) -> Path:
    """runs/NAME for configs/NAME.py, and for NAME.en.gz."""
    name = first.stem if is_config(first) else first.name.lstrip(".").partition(".")[0]
    return Path("runs") / name


def _config_of(default: TrainCommand, words: list[str], run: Path) -> Config:
    """The config file's, the one that suits text files, or that of a run on them that has begun."""
    first, *others = default.inputs
    if is_config(first):
        if others:
            raise UserError(
                f"{' '.join(map(str, default.inputs))}: name one config file, or text files alone"
            )
        return load_config(first)
    from transformer.commands.text_files import data_of, suited

    data = data_of(tuple(map(str, default.inputs)))
    if has_checkpoints(run):
        sides = {f"data.{side}": getattr(data, side) for side in ("source", "target")}
        files = {"data.dataset": "", "data.train_files": data.train_files}
        kept = without_derived(load_run_config(run))
        return kept.with_settings(files | sides if data.sides else files)
    config = _parse(
        TrainCommand, words, dataclasses.replace(default, settings=Config(data=data)), TRAIN
    ).settings
    check_limits(config.data, "data.")
    check_limits(config.train, "train.")
    named = {
        f"{section}.{name}": value
        for section in ("data", "optimizer", "train")
        for name, value in named_settings(words, section, vars(getattr(config, section))).items()
    }
    return suited(config, named)


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
        raise UserError(
            f"--from {command.run} is also the folder of the new run: choose another with --run"
        )
    model, data = command.settings.model, command.settings.data
    if (model.encoder_layers > 0, model.decoder_layers > 0) != (data.source > "", data.target > ""):
        raise UserError(
            f"{command.from_run} is a model of another kind than this config: for its "
            f"{model.encoder_layers} encoder layers and {model.decoder_layers} decoder layers, "
            "set data.source (encoder) and data.target (decoder) to a language, or to '' if the "
            "number of layers is 0"
        )
    for name in differing_fields(taken_over, command.settings):
        if name.removeprefix("data.") in VOCABULARY_SETTINGS:
            raise UserError(
                f"{name} cannot be set, since --from {command.from_run} determines it: remove it"
            )


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
    for name in ("confidence", "report"):
        if command.ensemble and getattr(command, name):
            raise UserError(f"--{name} is about one run: remove it or --ensemble")
    if command.split == "validation" and (command.test_files or command.sacrebleu):
        raise UserError(
            "--split validation and other test sets: remove it, or --test-files and --sacrebleu"
        )
    if command.report and command.scores:
        raise UserError("--scores scores nothing, but --report needs scores: remove one of them")
    for run in command.beside:
        load_run_config(run)
        if not (run / "metrics.jsonl").exists():
            raise UserError(
                f"--beside {run}: this run has no metrics.jsonl, and so no curves to show"
            )
    if page.is_dir():
        raise UserError(
            f"{page} is a folder, but --report writes a file of this name: move it away"
        )
    for package in ("jinja2", "matplotlib") if command.report else ():
        _require(package, "--report", "viewing")
    if command.bleu_tokenizer:
        data = dataclasses.replace(config.data, bleu_tokenizer=command.bleu_tokenizer)
        config = dataclasses.replace(config, data=data)
        check(config)
    return command, config


def parse_translate(words: list[str]) -> tuple[TranslateCommand, Config]:
    """Raises UserError for a run that is not a translator, and options that exclude each other."""
    _refuse_files(words, "translate.py")
    command, config = parse_with_run(TranslateCommand, words, prog="python translate.py")
    run, nbest, beam = command.run, command.nbest, config.decode.beam_size
    if len(config.data.sides) == 1:
        raise UserError(f"{run} is not a translator, {_kind(config)}: use python generate.py {run}")
    if nbest > beam:
        raise UserError(f"--nbest ({nbest}) must not exceed --decode.beam-size ({beam})")
    if command.input in FORMATS:
        _check_document(command)
    elif command.keep_numbers:
        raise UserError("--keep-numbers is for documents: add --input, such as --input paragraphs")
    if command.score and command.input == "text":
        raise UserError("--score needs translations in the input: add --input tsv or --input json")
    if command.confidence and (command.score or command.output != "json"):
        raise UserError(
            "--confidence is for translations as JSON: "
            + ("remove --score" if command.score else "add --output json")
        )
    has_bonus = "term_bonus" in named_settings(words, "decode", vars(config.decode))
    of_search = {
        "--nbest": nbest > 1,
        "--glossary": command.glossary,
        "--decode.term-bonus": has_bonus,
    }
    for option, is_set in of_search.items():
        if command.score and is_set:
            raise UserError(f"--score does not search for translations: remove {option}")
    if has_bonus and not command.glossary:
        raise UserError("--decode.term-bonus is for the terms of a glossary: add --glossary")
    return command, config


def _check_document(command: TranslateCommand) -> None:
    """Raises UserError for options that are about lines."""
    options = {
        "--nbest": command.nbest > 1,
        "--alignments": command.alignments,
        "--confidence": command.confidence,
        "--score": command.score,
        "--output json": command.output == "json",
        "--on-error skip": command.on_error == "skip",
    }
    for option, is_set in options.items():
        if is_set:
            raise UserError(f"--input {command.input} translates a whole document: remove {option}")


def _refuse_files(words: list[str], script: str) -> None:
    """Raises UserError for a second word that is no setting: text is read from standard input."""
    if len(words) > 1 and not words[1].startswith("-"):
        run, file = words[:2]
        raise UserError(f"{file} is no setting; text is read like this: {script} {run} < {file}")


def member(name: str) -> tuple[Path, str]:
    """A run and its checkpoint, of RUN or RUN:CHECKPOINT."""
    run, colon, checkpoint = name.rpartition(":")
    if colon and not Path(name).exists():
        return Path(run), checkpoint
    return Path(name), "best"


def parse_generate(words: list[str]) -> tuple[GenerateCommand, Config]:
    """Raises UserError for a run that is a translator, and for settings without an effect."""
    _refuse_files(words, "generate.py")
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
        raise UserError(f"{run} is a translator: use python translate.py {run}")
    _check_effect(settings, config)
    if settings.log_probs and command.output == "json":
        raise UserError("--log-probs has no effect: --output json always has log-probabilities")
    return command, config


def _check_effect(settings: GenerateConfig, config: Config) -> None:
    """Raises UserError for a setting that changes nothing of what is generated."""
    default = vars(GenerateConfig())
    if config.model.encoder_layers:
        idle = {*default} - {"words"}
        reason = "this run is an encoder alone, which does not continue text"
    elif settings.beam_size:
        idle = {"temperature", "top_k", "top_p", "seed", "words"}
        reason = "--beam-size searches instead of sampling"
    else:
        idle, reason = {"words"}, "this run is a decoder alone, which does not predict masked words"
        if config.data.windows and settings.min_length:
            raise UserError(
                "--min-length has no effect: in a run with data.windows, texts have no end"
            )
    for name, value in vars(settings).items():
        if name in idle and value != default[name]:
            raise UserError(f"--{name.replace('_', '-')} has no effect: {reason}")


def _kind(config: Config) -> str:
    if config.model.classes:
        return "but a classifier"
    if config.model.decoder_layers:
        return "but a language model (a decoder alone)"
    return "but a masked language model (an encoder alone)"


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
    name = flag.removeprefix("--").replace("-", "_")
    current = current_name(name)
    return word if current == name or flag[:2] != "--" else f"--{current}{equals}{value}"


def _first_word(words: list[str], usage: str) -> Path | None:
    """The path that the defaults of other words depend on; None if tyro is to print its usage."""
    if not words or words[0] in ("-h", "--help"):
        return None
    if words[0].startswith("-"):
        raise UserError(f"{words[0]} must come after the first argument: {usage}")
    return Path(words[0])
