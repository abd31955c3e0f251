"""Runs that are asked over the network: what each kind of model answers, as JSON has it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

from transformer.config import Config, GenerateConfig
from transformer.config.rules import check_limits
from transformer.config.settings import Positive
from transformer.data.piece_tokenizer import code_of
from transformer.data.tags import known_tags, read_source
from transformer.data.tokenizer import Tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.alignment import WordAttention, word_attention
from transformer.decoding.batches import LENGTHS, longest_text, round_up
from transformer.decoding.fill_mask import classify, fill_mask, with_masks
from transformer.decoding.generator import Continuation, continuations, make_generator
from transformer.decoding.lines import split_sentences
from transformer.decoding.translator import Hypothesis, Translator, hypotheses, make_translator
from transformer.decoding.warm_up import compile_search, search_shapes
from transformer.errors import UserError
from transformer.model.batch import UNK
from transformer.model.params import Params
from transformer.runs.load import load_run

Kind = Literal["translator", "language model", "masked model", "classifier"]
PAGE_NBEST = 4
"""Translations that the page shows."""

SAMPLES = (1, 4, 20)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Samples, and most tokens that are added: for each of them a program is compiled."""

SHORT = 64
"""Tokens of the texts for which models with one stack are compiled before they are asked."""

MOST = {"samples": SAMPLES[-1], "max_tokens": TOKENS[-1], "words": 20}
"""That may be asked of one text, besides as many translations as the beam has."""


@dataclass(frozen=True)
class TranslatorOptions:
    """What may be asked of a translator besides a translation."""

    nbest: Positive = 1
    attention: bool = False


@dataclass(frozen=True)
class WordOptions:
    """What may be asked of an encoder alone."""

    words: Positive = 5


Options = TranslatorOptions | GenerateConfig | WordOptions


@dataclass(frozen=True, eq=False)
class ModelService:
    """A run, and how it answers texts: `answer(texts, options)` has one answer for each."""

    name: str
    kind: Kind
    config: Config
    checkpoint: str
    tokenizers: Tokenizers
    defaults: Options
    offered: tuple[str, ...]
    answer: Callable[[Sequence[str], Any], list[dict[str, Any]]]
    translator: Translator | None = None

    @property
    def targets(self) -> dict[str, str]:
        """The languages that it translates into, by code, and the tag that asks for each: those of
        a vocabulary with target tags; otherwise the run's own, without a tag."""
        tags = {code_of(tag): tag for tag in self.tokenizers.source.tags}
        return tags or {self.config.data.target: ""}

    def tagged(self, lines: Sequence[str], tag: str) -> list[str]:
        """The lines of a text, each with the target tag; without one, with that of the line before.

        Raises UserError for a line that begins with another tag than is asked for.
        """
        found, asked = [], tag
        for line in lines:
            own, _ = self.tokenizers.source.split_tag(line)
            if asked and own and own != asked:
                raise UserError(f"'target' asks for {asked}, and a text begins with {own}")
            tag = own or tag
            found.append(line if own or not line.strip() else tag + line)
        return found

    def description(self) -> dict[str, Any]:
        """What the page shows of it; the languages by their codes, "" where there is none."""
        defaults = {name: getattr(self.defaults, name) for name in self.offered}
        data = self.config.data
        return {
            "name": self.name,
            "kind": self.kind,
            "source": data.source,
            "target": "" if self.config.model.classes else data.target,
            "checkpoint": self.checkpoint,
            "options": defaults | self._richest(),
        }

    def warm_up(self) -> None:
        """Answers a short text as the page will ask for it, so that this is compiled."""
        tag = next(iter(self.targets.values())) if self.translator else ""
        self.answer([f"{tag}."], self.options(self._richest()))

    def programs(self, sizes: Sequence[int]) -> list[tuple[int, Callable[[], object]]]:
        """What to call so that the answers to so many texts at once are compiled: as programs ask
        for them, and one text as the page does. Each with the tokens of the text that needs it."""
        if self.translator:
            page = self._richest()["nbest"]
            asked = [(1, sizes), *([(page, [1])] if page > 1 else [])]
            return [
                (shape.tokens, partial(compile_search, self.translator, shape, wanted))
                for wanted, rows in asked
                for shape in search_shapes(self.translator, rows)
            ]
        source, target = self.tokenizers
        side = target if self.kind == "language model" else source
        longest = longest_text([self.config.model], self.config.decode)
        blank = "__ " if self.kind == "masked model" else ""
        texts = [(n, blank + text_of(side, min(n - 4, longest - 2))) for n in LENGTHS if n <= SHORT]
        return [
            (length, partial(self.answer, [text] * size, self.defaults))
            for (length, text), size in product(texts, sizes)
        ]

    def _richest(self) -> dict[str, Any]:
        """What the page asks for, where that is more than programs are given."""
        if self.kind != "translator":
            return {}
        return {"nbest": min(PAGE_NBEST, self.config.decode.beam_size), "attention": True}

    def options(self, values: Mapping[str, Any]) -> Options:
        """Those of the defaults that are offered, changed. Raises UserError naming a wrong one."""
        for name in values:
            if name not in self.offered:
                raise UserError(f"{name!r} cannot be set: {', '.join(self.offered)} can")
        options = replace(self.defaults, **values)
        check_limits(options)
        for name, most in (MOST | {"nbest": self.config.decode.beam_size}).items():
            if getattr(options, name, 0) > most:
                raise UserError(f"{name} must be at most {most}")
        return options

    def check(self, text: str) -> None:
        """Raises UserError for a text of which the model would not read all, or that has no target
        tag where the model needs one."""
        longest = longest_text([self.config.model], self.config.decode)
        source, target = self.tokenizers
        if self.kind == "translator":
            tag, rest = read_source(source, text)
            if source.tags and rest and not tag:
                raise UserError(f"begin the text with a target tag: {known_tags(source.tags)}")
            most = max(map(len, source.encode([tag + part for part in split_sentences(rest)])))
        elif self.kind == "masked model":
            most = len(with_masks(source, text)[0])
        else:
            side = target if self.kind == "language model" else source
            most = len(side.encode([text])[0])
        if most > longest:
            what = "sentence" if self.kind == "translator" else "text"
            raise UserError(f"a {what} of {most:,} tokens is too long: {longest:,} are read")


def load_service(run: Path, checkpoint: str, name: str) -> ModelService:
    """The run with its weights. Raises UserError where it has none."""
    loaded = load_run(run, checkpoint)
    return make_service(name, loaded.config, loaded.label, loaded.params, loaded.tokenizers)


def make_service(
    name: str, config: Config, checkpoint: str, params: Params, tokenizers: Tokenizers
) -> ModelService:
    """A model under a name, with what is said of its weights."""
    if config.model.decoder_layers and config.model.encoder_layers:
        translator = make_translator(config, params, tokenizers)
        answering = TranslatorOptions(), ("nbest", "attention"), partial(_translations, translator)
        kind: Kind = "translator"
        return ModelService(name, kind, config, checkpoint, tokenizers, *answering, translator)
    kind, *answering = _answering(config, params, tokenizers)
    return ModelService(name, kind, config, checkpoint, tokenizers, *answering)


def text_of(tokenizer: Tokenizer, tokens: int) -> str:
    """A text of so many tokens, or about as many."""
    for number in range(UNK + 1, tokenizer.vocab_size):
        texts = tokenizer.decode([[number] * tokens, [number] * (tokens - 1)])  # and a blank
        for text, ids in zip(texts, tokenizer.encode(texts)):
            if len(ids) == tokens:
                return text
    return "." * tokens


def _answering(
    config: Config, params: Params, tokenizers: Tokenizers
) -> tuple[Kind, Options, tuple[str, ...], Callable]:
    """What kind of model with one stack it is, its options, those that are offered, and how it
    answers."""
    if config.model.decoder_layers:
        offered = ("samples", "temperature", "top_k", "top_p", "seed", "max_tokens")
        answer = _continuations(config, params, tokenizers)
        return "language model", GenerateConfig(max_tokens=50), offered, answer
    kind, answer = "masked model", _blanks(config, params, tokenizers)
    if config.model.classes:
        kind, answer = "classifier", _classes(config, params, tokenizers)
    return kind, WordOptions(), ("words",), answer


def _translations(
    translator: Translator, texts: Sequence[str], options: TranslatorOptions
) -> list[dict[str, Any]]:
    found = hypotheses(translator, texts, options.nbest)
    answers = [{"translation": n[0].text} | _truncated(n[0]) for n in found]
    if options.nbest > 1:
        answers = [a | {"nbest": [*map(_scored, n)]} for a, n in zip(answers, found)]
    if options.attention:
        looked = word_attention(translator, texts, [of_one[0].tokens for of_one in found])
        answers = [a | {"attention": [*map(_table, n)]} for a, n in zip(answers, looked)]
    return answers


def _scored(one: Hypothesis) -> dict[str, Any]:
    known = {"text": one.text, "score": round(one.score, 4), "log_prob": round(one.log_prob, 4)}
    return known | _truncated(one)


def _truncated(one: Hypothesis | Continuation) -> dict[str, bool]:
    return {"truncated": True} if one.truncated else {}


def _table(part: WordAttention) -> dict[str, Any]:
    return part._asdict() | {"weights": part.weights.round(3).tolist()}


def _continuations(config: Config, params: Params, tokenizers: Tokenizers) -> Callable:
    @lru_cache(maxsize=8)
    def generator(settings: GenerateConfig):
        return make_generator(config, settings, params, tokenizers)

    def answer(texts: Sequence[str], options: GenerateConfig) -> list[dict[str, Any]]:
        settings = of_few_shapes(options)
        # All have one number, so that what is drawn for a text does not depend on the others.
        found = continuations(generator(settings), texts, [0] * len(texts))
        chosen = [of_one[: options.samples] for of_one in found]
        return [{"continuations": [*map(_continuation, of_one)]} for of_one in chosen]

    return answer


def _continuation(one: Continuation) -> dict[str, Any]:
    return {"text": one.text, "log_prob": round(one.log_prob, 4)} | _truncated(one)


def of_few_shapes(options: GenerateConfig) -> GenerateConfig:
    """Nearly the same: fewer tokens at most, and more samples, so that little is compiled."""
    tokens = max(count for count in TOKENS if count <= options.max_tokens)
    return replace(options, max_tokens=tokens, samples=round_up(options.samples, SAMPLES))


def _blanks(config: Config, params: Params, tokenizers: Tokenizers) -> Callable:
    def answer(texts: Sequence[str], options: WordOptions) -> list[dict[str, Any]]:
        found = fill_mask(config, params, tokenizers, texts, options.words)
        return [{"blanks": [_guesses(blank) for blank in blanks]} for blanks in found]

    return answer


def _classes(config: Config, params: Params, tokenizers: Tokenizers) -> Callable:
    def answer(texts: Sequence[str], options: WordOptions) -> list[dict[str, Any]]:
        found = classify(config, params, tokenizers, texts, options.words)
        return [{"classes": _guesses(guesses)} for guesses in found]

    return answer


def _guesses(guesses) -> list[dict[str, Any]]:
    return [{"word": one.word, "probability": round(one.probability, 4)} for one in guesses]
