"""A language model beside an n-gram model of the same tokens.

    python -m benchmarks.language_models runs/lm_quickstart

The n-gram model is nltk's interpolated Kneser-Ney trigram model (Kneser and Ney, 1995; Chen and
Goodman, 1999), trained on the run's training split as the run's tokenizer cuts it; its discount is
the best of a few on the validation split. Both predict every token of the test split, the ends of
sentences included.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tyro

from benchmarks.measure import require, table, versions
from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.config import Config
from transformer.data.batching import one_epoch
from transformer.data.buckets import plan_to_score
from transformer.data.files import Split
from transformer.data.token_store import TokenPairs, cut, encode_pairs
from transformer.errors import UserError
from transformer.machine import devices
from transformer.model.batch import BOS
from transformer.runs.load import load_run
from transformer.training.validation import estimates, losses_of, sentence_sums

ORDER = 3
DISCOUNTS = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class LanguageModels:
    """Compare a language model with an n-gram model."""

    run: tyro.conf.Positional[Path]
    """The run folder of a language model."""
    checkpoint: str = "best"
    """best, last, average or a step."""


def main(words: list[str]) -> None:
    command = parse_script(LanguageModels, words, "python -m benchmarks.language_models")
    require("nltk")
    devices.configure_devices("any")
    run = load_run(command.run, command.checkpoint)
    config, tokenizers = run.config, run.tokenizers
    if config.model.encoder_layers:
        raise UserError(f"{command.run} is no language model: its config has an encoder")

    def rows(split: Split) -> list[list[str]]:
        return sentences(encode_pairs(config.data, tokenizers, split))

    counts = count_ngrams(rows("train"))
    validation, test = rows("validation"), rows("test")
    by_discount = {
        discount: perplexity(kneser_ney(counts, discount), validation) for discount in DISCOUNTS
    }
    discount = min(by_discount, key=by_discount.get)
    ngram = perplexity(kneser_ney(counts, discount), test)
    texts = cut(config.data, encode_pairs(config.data, tokenizers, "test"))
    ours = ours_on(config, run.params, texts)
    print(f"{versions('nltk', 'jax')}\ntest split, {sum(map(len, test)):,} tokens\n")
    name = f"Kneser-Ney, order {ORDER}, discount {discount}"
    print(
        table(
            [
                {"model": name, "perplexity": f"{ngram:.2f}", "95 % interval": "-"},
                {"model": f"{command.run}, checkpoint {run.label}", **ours},
            ]
        )
    )


def sentences(pairs: TokenPairs) -> list[list[str]]:
    """The tokens of the target sentences, each with EOS, except empty ones."""
    edges = itertools.pairwise(pairs.target.offsets)
    rows = (pairs.target.ids[start:end].tolist() for start, end in edges if end - start > 1)
    return [[str(token) for token in row] for row in rows]


def count_ngrams(rows: Iterable[Sequence[str]]):
    """nltk's counts of all n-grams up to ORDER; a sentence begins with ORDER - 1 times BOS."""
    from nltk.lm import NgramCounter
    from nltk.util import everygrams

    padded = ([str(BOS)] * (ORDER - 1) + list(row) for row in rows)
    return NgramCounter(everygrams(row, max_len=ORDER) for row in padded)


def kneser_ney(counts, discount: float):
    """nltk's model of such counts; what it would count anew for every word is looked up."""
    from nltk.lm import Vocabulary
    from nltk.lm.models import KneserNeyInterpolated

    model = KneserNeyInterpolated(
        ORDER, discount, vocabulary=Vocabulary(counts.unigrams), counter=counts
    )
    continuations = defaultdict(Counter)
    for order in range(2, ORDER + 1):
        for context, words in counts[order].items():
            continuations[context[1:]].update(dict.fromkeys(words, 1))
    totals = {context: found.total() for context, found in continuations.items()}

    def looked_up(word, context=()):
        return continuations[context][word], totals.get(context, 0)

    model.estimator._continuation_counts = looked_up
    return model


def perplexity(model, rows: Iterable[Sequence[str]]) -> float:
    """Of all tokens of the sentences, EOS included."""
    total, count = 0.0, 0
    for row in rows:
        padded = [str(BOS)] * (ORDER - 1) + list(row)
        for place in range(ORDER - 1, len(padded)):
            total += model.logscore(padded[place], padded[place - ORDER + 1 : place])
            count += 1
    return 2 ** (-total / count)


def ours_on(config: Config, params, texts: TokenPairs) -> dict[str, str]:
    """Cells of the table."""
    batches = one_epoch(config, texts, plan_to_score(config, texts))
    losses = losses_of(partial(sentence_sums, config.model), params, batches)
    found = next(e for e in estimates(losses) if e.name == "perplexity")
    low, high = found.interval
    return {"perplexity": f"{found.value:.2f}", "95 % interval": f"{low:.2f} to {high:.2f}"}


if __name__ == "__main__":
    run_command(main)
