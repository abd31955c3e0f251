"""Runs that are served: what each kind of model answers, as JSON has it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any, Literal

from transformer.commands.command_line import member
from transformer.commands.glossary import load_glossary
from transformer.config import Config, GenerateConfig
from transformer.config.rules import check_limits
from transformer.config.settings import Positive
from transformer.data.tag_names import code_of
from transformer.data.tags import known_tags, read_source, with_tag
from transformer.data.tokenizer import Tokenizer
from transformer.data.vocabularies import Tokenizers
from transformer.decoding.alignment import word_attention
from transformer.decoding.batches import LENGTHS, longest_text, round_up
from transformer.decoding.confidence import (
    load_temperature,
    mean_confidence,
    words_with_confidence,
)
from transformer.decoding.fill_mask import classify, fill_mask, with_masks
from transformer.decoding.generator import Continuation, Generator, continuations, make_generator
from transformer.decoding.glossary import Glossary
from transformer.decoding.lines import split_sentences
from transformer.decoding.shortlist import Lexicon, load_lexicon
from transformer.decoding.translator import Hypothesis, Translator, hypotheses, make_translator
from transformer.decoding.warm_up import compile_search, search_shapes
from transformer.documents.alignment import aligned_translations
from transformer.documents.placement import Aligned
from transformer.errors import UserError
from transformer.model.batch import UNK
from transformer.model.params import Params
from transformer.runs.load import load_run

Kind = Literal["translator", "language model", "masked model", "classifier"]
PAGE_NBEST = 4
"""Translations that the page asks for."""

SAMPLES = (1, 4, 20)
MAX_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
"""Values of `samples` and `max_tokens` for which programs are compiled; others are rounded."""

SHORT = 64
"""Tokens of the longest text for which models with one stack are compiled in advance."""

HIGHEST = {"samples": SAMPLES[-1], "max_tokens": MAX_TOKENS[-1], "words": 20}
"""Highest values of options; that of `nbest` is the beam size."""


@dataclass(frozen=True)
class TranslatorOptions:
    """Options of a translator."""

    nbest: Positive = 1
    attention: bool = False
    confidence: bool = False


Options = TranslatorOptions | GenerateConfig

OPTIONS: dict[Kind, tuple[Options, tuple[str, ...]]] = {
    "translator": (TranslatorOptions(), ("nbest", "attention", "confidence")),
    "language model": (
        GenerateConfig(max_tokens=50),
        ("samples", "temperature", "top_k", "top_p", "seed", "max_tokens"),
    ),
    "masked model": (GenerateConfig(), ("words",)),
    "classifier": (GenerateConfig(), ("words",)),
}
"""The default options of each kind, and the names of those that a request may set."""


@dataclass(frozen=True, eq=False)
class ModelService:
    """A model under a name, and how it answers texts."""

    name: str
    config: Config
    checkpoint: str
    params: Params
    tokenizers: Tokenizers
    glossary: Glossary | None = None
    temperature: float = 1.0
    lexicon: Lexicon | None = None

    @property
    def kind(self) -> Kind:
        """The kind of model."""
        model = self.config.model
        if model.decoder_layers:
            return "translator" if model.encoder_layers else "language model"
        return "classifier" if model.classes else "masked model"

    @cached_property
    def translator(self) -> Translator:
        """How a translator searches."""
        translator = make_translator(self.config, self.params, self.tokenizers)
        return replace(
            translator,
            glossary=self.glossary,
            temperature=self.temperature,
            lexicon=self.lexicon,
        )

    @cached_property
    def generator(self) -> Generator:
        """How a language model continues texts, with the default options."""
        options, _ = OPTIONS["language model"]
        return make_generator(self.config, options, self.params, self.tokenizers)

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the texts that the model reads."""
        sides: Any = self.tokenizers  # a classifier has no target
        return sides.target if self.kind == "language model" else sides.source

    @property
    def longest(self) -> int:
        """Tokens of the longest text that the model reads."""
        return longest_text([self.config.model], self.config.decode)

    @property
    def targets(self) -> dict[str, str]:
        """The target languages of a translator and the target tag of each; without tags it is the
        run's own, with ""."""
        tags = {code_of(tag): tag for tag in self.tokenizers.source.tags}
        return tags or {self.config.data.target: ""}

    def tagged(self, lines: Sequence[str], tag: str) -> list[str]:
        """The lines of a text, each with this target tag; if it is "", with the last one before.

        Raises UserError for a line that begins with another tag than this.
        """
        found, source, required = [], self.tokenizers.source, tag
        for line in lines:
            own, _ = source.split_tag(line)
            found.append(with_tag(source, line, required or own or tag) if line.strip() else line)
            tag = own or tag
        return found

    def description(self) -> dict[str, Any]:
        """What the page shows of it; a language that it does not have is ""."""
        defaults, names = OPTIONS[self.kind]
        data = self.config.data
        return {
            "name": self.name,
            "kind": self.kind,
            "source": data.source,
            "target": "" if self.config.model.classes else data.target,
            "targets": list(self.targets) if self.kind == "translator" else [],
            "checkpoint": self.checkpoint,
            "options": {name: getattr(defaults, name) for name in names} | self._page_options(),
        }

    def _page_options(self) -> dict[str, Any]:
        """Options that the page sets to more than their defaults."""
        if self.kind != "translator":
            return {}
        nbest = min(PAGE_NBEST, self.config.decode.beam_size)
        return {"nbest": nbest, "attention": True, "confidence": True}

    def options(self, values: Mapping[str, Any]) -> Options:
        """The default options with these values. Raises UserError for a wrong name or value."""
        defaults, names = OPTIONS[self.kind]
        for name in values:
            if name not in names:
                raise UserError(f"unknown option {name!r}: choose from {', '.join(names)}")
        options = replace(defaults, **values)
        check_limits(options)
        for name, highest in (HIGHEST | {"nbest": self.config.decode.beam_size}).items():
            if getattr(options, name, 0) > highest:
                raise UserError(f"{name} must be at most {highest}")
        return options

    def check(self, text: str) -> None:
        """Raises UserError for a text that is too long for the model, or that lacks the target tag
        that it needs."""
        tokenizer = self.tokenizer
        if self.kind == "translator":
            tag, rest = read_source(tokenizer, text)
            if tokenizer.tags and rest and not tag:
                raise UserError(f"begin the text with a target tag: {known_tags(tokenizer.tags)}")
            sentences = split_sentences(rest)
            lengths = map(len, tokenizer.encode([tag + sentence for sentence in sentences]))
            tokens, text = max(zip(lengths, sentences))
        elif self.kind == "masked model":
            tokens = len(with_masks(tokenizer, text)[0])
        else:
            tokens = len(tokenizer.encode([text])[0])
        if tokens > self.longest:
            unit = "sentence" if self.kind == "translator" else "text"
            raise UserError(
                f"a {unit} of {tokens:,} tokens is too long: at most {self.longest:,} are allowed "
                f"({text[:60]!r} ...)"
            )

    def answer(self, texts: Sequence[str], options: Options) -> list[dict[str, Any]]:
        """The answer to each text."""
        if isinstance(options, TranslatorOptions):
            return _translations(self.translator, texts, options)
        if self.kind == "language model":
            generator = replace(self.generator, settings=with_few_shapes(options))
            # All texts have number 0, so that the samples of one do not depend on its batch.
            found = continuations(generator, texts, [0] * len(texts))
            chosen = [samples[: options.samples] for samples in found]
            return [{"continuations": [_with_scores(o, "log_prob") for o in of]} for of in chosen]
        model = self.config, self.params, self.tokenizers
        if self.kind == "classifier":
            classes = classify(*model, texts, options.words)
            return [{"classes": _predictions(of)} for of in classes]
        masks = fill_mask(*model, texts, options.words)
        return [{"blanks": [_predictions(mask) for mask in of]} for of in masks]

    def translated_sentences(self, texts: Sequence[str], needs_alignment: bool) -> list[Aligned]:
        """Translations of the sentences of documents."""
        return aligned_translations(self.translator, texts, needs_alignment)

    def warm_up(self) -> None:
        """Answers a short text with the options of the page, so that this is compiled."""
        tag = next(iter(self.targets.values())) if self.kind == "translator" else ""
        self.answer([f"{tag}."], self.options(self._page_options()))

    def programs(self, sizes: Sequence[int]) -> list[tuple[int, Callable[[], object]]]:
        """Functions that compile what batches of these sizes need, and what one request of the page
        needs; each with the length in tokens of the texts that it is for."""
        if self.kind == "translator":
            nbest = self._page_options()["nbest"]
            return [
                (shape.tokens, partial(compile_search, self.translator, shape, count))
                for count, rows in ((1, sizes), *([(nbest, [1])] if nbest > 1 else []))
                for shape in search_shapes(self.translator, rows)
            ]
        mask = "__ " if self.kind == "masked model" else ""
        defaults, _ = OPTIONS[self.kind]
        texts = {
            length: mask + text_of_length(self.tokenizer, min(length - 4, self.longest - 2))
            for length in LENGTHS
            if length <= SHORT
        }
        return [
            (length, partial(self.answer, [text] * size, defaults))
            for (length, text), size in product(texts.items(), sizes)
        ]


def load_service(name: str, glossary: str = "") -> ModelService:
    """The service of RUN or RUN:CHECKPOINT; a translator has the glossary. Raises UserError if it
    has no weights."""
    folder, checkpoint = member(name)
    run = load_run(folder, checkpoint)
    service = ModelService(name, run.config, run.label, run.params, run.tokenizers)
    if service.kind != "translator":
        return service
    terms = load_glossary(glossary, run.tokenizers.target, run.config.decode)
    temperature = load_temperature(folder, run.label)
    lexicon = load_lexicon(folder, run.config)
    return replace(service, glossary=terms, temperature=temperature, lexicon=lexicon)


def text_of_length(tokenizer: Tokenizer, tokens: int) -> str:
    """A text of this many tokens, or about as many."""
    for token in range(UNK + 1, tokenizer.vocab_size):
        texts = tokenizer.decode([[token] * tokens, [token] * (tokens - 1)])  # and a space
        for text, ids in zip(texts, tokenizer.encode(texts)):
            if len(ids) == tokens:
                return text
    return "." * tokens


def with_few_shapes(options: GenerateConfig) -> GenerateConfig:
    """The options with fewer tokens and more samples, so that few programs are compiled."""
    tokens = max(count for count in MAX_TOKENS if count <= options.max_tokens)
    return replace(options, max_tokens=tokens, samples=round_up(options.samples, SAMPLES))


def _translations(
    translator: Translator, texts: Sequence[str], options: TranslatorOptions
) -> list[dict[str, Any]]:
    found = hypotheses(translator, texts, options.nbest)
    answers: list[dict[str, Any]] = [
        {"translation": best.text} | _truncated(best) for best, *_ in found
    ]
    if options.nbest > 1:
        for answer, best in zip(answers, found):
            answer["nbest"] = [_with_scores(one, "score", "log_prob") for one in best]
    tokens = [best.tokens for best, *_ in found]
    if options.confidence:
        known = words_with_confidence(translator, texts, tokens)
        for answer, words in zip(answers, known):
            answer["confidence"] = round(mean_confidence(words), 4)
            answer["words"] = [[word, round(confidence, 4)] for word, confidence in words]
    if options.attention:
        attention = word_attention(translator, texts, tokens)
        for answer, parts in zip(answers, attention):
            answer["attention"] = [
                part._asdict() | {"weights": part.weights.round(3).tolist()} for part in parts
            ]
    return answers


def _with_scores(one: Hypothesis | Continuation, *names: str) -> dict[str, Any]:
    rounded = {name: round(getattr(one, name), 4) for name in names}
    return {"text": one.text} | rounded | _truncated(one)


def _truncated(one: Hypothesis | Continuation) -> dict[str, bool]:
    return {"truncated": True} if one.truncated else {}


def _predictions(found: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"word": one.word, "probability": round(one.probability, 4)} for one in found]
