"""Score a run: `python eval.py runs/quickstart`. Translations and scores go to RUN/eval/.

A translator is scored by BLEU, chrF, TER and exact match; every model by how likely the text is to
it. `--compare` says which of two translators is better, `--scores` shows what has been kept, and
`--report` writes a page that shows all of a run.
"""

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports quietly

from transformer.commands.command_line import EvalCommand, member, named_settings, parse_eval
from transformer.commands.program import run_command
from transformer.config import Config, DataConfig

OF_TRANSLATORS = (
    "ensemble",
    "compare",
    "confidence",
    "lowercased",
    "bleu_tokenizer",
    "details",
    "sacrebleu",
    "references",
)
"""Options that other models do not have."""
COMPARABLE = (
    "  comparable with scores of the same signature on the same test set; not with BLEU of "
    "tokenised,\n  lower-cased or compound-split text, which papers often have"
)


def main(words: list[str]) -> None:
    command, config = parse_eval(words)

    # Slow imports come after the command line has been understood.
    from transformer.evaluation.records import side_by_side, table

    if command.scores:
        kept = table(command.run) or f"no scores yet: run python eval.py {command.run}"
        print(kept.replace("\\|", "|"))
        return

    from transformer.commands.ensemble import load_others
    from transformer.evaluation.scores import check_metrics
    from transformer.machine import devices
    from transformer.runs.load import load_run

    devices.configure_devices("any")

    # The test sets as raw text: BLEU is against what people wrote, never against tokens.
    translates = len(config.data.sides) == 2
    test_sets = choose_test_sets(command, config.data)
    for test_set in test_sets if translates else []:
        check_metrics(test_set.settings(config.data))

    # The model, and others.
    run = load_run(command.run, command.checkpoint, config)
    others, label = load_others(command.run, run, command.ensemble)
    run = replace(run, label=label)
    translator = translator_of(command.run, run, others) if translates else None
    other = load_other(command, config, words) if command.compare else None
    if command.confidence:
        translator = with_temperature(command, run.label, translator, test_sets)
    test_sets = with_perturbed(command, config.data, run.tokenizers, test_sets)

    if command.report:
        from transformer.viewing.report import check_sentences

        check_sentences(run.tokenizers, command.sentences)

    # How good its translations are, and how likely the text is to it.
    results = []
    for number, test_set in enumerate(test_sets):
        print("\n" * (number > 0), end="")
        results.append(score_test_set(command, run, (translator, other), test_set))
    if command.perturb:
        named = [(test_set.name, record) for test_set, record, _ in results]
        print("", *side_by_side(named), sep="\n")
    if command.report:
        write_report(command, run, results)


def score_test_set(
    command: EvalCommand, run, translators: tuple, test_set
) -> tuple[Any, dict, list[str] | None]:
    """Prints and keeps all scores of a test set; returns it, its record, and the translations of
    the first of two translators, each of which may be None."""
    from transformer.evaluation.scores import References

    translator, other = translators
    config, sentences = run.config, len(test_set.pairs)
    data = test_set.settings(config.data)
    languages = " to ".join(getattr(data, side) for side in data.sides)
    print(f"{test_set.name}, {languages}, {sentences:,} sentences")
    print(f"checkpoint {run.label}")
    record = {"test_set": test_set.name, "languages": languages, "sentences": sentences}
    record |= {"checkpoint": run.label, "decode": vars(config.decode)}
    translations = None
    references = References.of(data, test_set.pairs, test_set.more_references)
    if translator:
        translations, scored = score_translations(command, translator, references)
        record |= scored
    if other:
        record |= compare_with(other, command, translations, references)
    record["losses"] = [] if command.ensemble else score_likelihood(run, test_set.pairs)
    keep(command, replace(config, data=data), test_set.stem, record, translations)
    return test_set, record, translations


def choose_test_sets(command: EvalCommand, data: DataConfig) -> list:
    """The test sets that the command names, or the split."""
    from transformer.data.test_sets import in_files, of_sacrebleu, split_of, with_references
    from transformer.errors import UserError

    if len(data.sides) == 1 and (named := [n for n in OF_TRANSLATORS if getattr(command, n)]):
        raise UserError(f"{command.run} is not a translator: remove --{' and --'.join(named)}")
    found = in_files(data, command.test_files) if command.test_files else []
    found += [of_sacrebleu(data, name) for name in command.sacrebleu]
    found = found or split_of(data, command.split)
    if command.references:
        if len(found) > 1:
            raise UserError(f"--references are for one test set, but {len(found)} are given")
        found = [with_references(found[0], command.references)]
    if command.perturb and len(data.sides) == 1 and not data.label_column:
        raise UserError("--perturb needs a translator or a classifier: remove it")
    return found


def with_perturbed(command: EvalCommand, data: DataConfig, tokenizers, test_sets: list) -> list:
    """Each test set, and after it the same one changed in each way that the command names."""
    from transformer.data.test_sets import perturbed_set

    symbols = (*data.symbols, *tokenizers.source.tags)
    return [
        one
        for plain in test_sets
        for one in (plain, *(perturbed_set(data, symbols, plain, k) for k in command.perturb))
    ]


def score_translations(command: EvalCommand, translator, references) -> tuple[list[str], dict]:
    """Translates; prints all scores against the raw references, and returns them for the record."""
    import time
    from dataclasses import asdict

    from transformer.decoding.translator import best_hypotheses, truncation
    from transformer.evaluation.details import by_length, extremes
    from transformer.evaluation.scores import doubt, few_long, score

    start, count = time.perf_counter(), len(references.sources)
    found = best_hypotheses(translator, references.sources)
    translations = [one.text for one in found]
    seconds = time.perf_counter() - start
    print(
        f"beam {translator.settings.beam_size}, alpha {translator.settings.alpha}, raw references; "
        f"{seconds:.0f} s, {count / seconds:.1f} sentences/s, compiling included"
    )
    if truncated := sum(one.truncated for one in found):
        print(truncation(translator, truncated, count))
    scores = score(translations, references, command.lowercased)
    print(*scores, COMPARABLE, sep="\n")
    for remark in (doubt(references.language, references.tokenizer), few_long(references)):
        if remark:
            print(remark)
    record = {"seconds": round(seconds, 1), "truncated": truncated}
    if command.confidence:
        record["confidence"] = show_confidence(translator, found, references)
    if command.details:
        lengths = [len(ids) for ids in translator.tokenizers.source.encode(references.sources)]
        print(*by_length(lengths, translations, references), sep="\n")
        print(extremes(translations, references, command.details))
    return translations, record | {"scores": [asdict(one) for one in scores]}


def with_temperature(command: EvalCommand, label: str, translator, test_sets: list):
    """The translator with the temperature that was fitted for its checkpoint, or that is fitted
    now if the validation set is scored."""
    from transformer.decoding.confidence import load_temperature

    if command.split == "validation":
        fit_confidence(command, label, translator, test_sets)
    return replace(translator, temperature=load_temperature(command.run, label))


def fit_confidence(command: EvalCommand, label: str, translator, test_sets: list) -> None:
    """Fits the temperature of the confidence on the validation set, and keeps it in the run."""
    from transformer.decoding.confidence import FILE, word_log_probs
    from transformer.decoding.translator import best_hypotheses
    from transformer.evaluation.confidence import TEMPERATURES, fit_temperature, save_temperature

    sources, texts = zip(*(pair for test_set in test_sets for pair in test_set.pairs))
    tokens = [one.tokens for one in best_hypotheses(translator, sources)]
    judge = words_beside(translator, [texts])
    words = {
        temperature: judge(word_log_probs(translator, sources, tokens, temperature))
        for temperature in TEMPERATURES
    }
    best = fit_temperature(words)
    save_temperature(command.run / FILE, best, label)
    count = len(words[best].right)
    print(f"temperature {best:g} fitted to {count:,} words, kept in {command.run / FILE}")
    if best in (TEMPERATURES[0], TEMPERATURES[-1]):
        print("no lower or higher temperature is tried: fit it to more text")
    print()


def show_confidence(translator, found: list, references) -> dict:
    """Prints how many words of each confidence are not in the reference."""
    from transformer.decoding.confidence import word_log_probs
    from transformer.evaluation.confidence import as_table, by_confidence

    temperature, tokens = translator.temperature, [one.tokens for one in found]
    own = word_log_probs(translator, references.sources, tokens, temperature)
    words = words_beside(translator, references.texts)(own)
    fitted = "" if temperature != 1 else ", not fitted (--split validation --confidence fits it)"
    print(f"temperature {temperature:g}{fitted}", *as_table(words), sep="\n")
    return {"temperature": temperature, "groups": by_confidence(words)}


def words_beside(translator, texts):
    """A function that judges words of translations beside references, given as columns of text."""
    from functools import partial

    from transformer.decoding.confidence import split_words
    from transformer.evaluation.confidence import judged

    columns = [split_words(translator.tokenizers.target, column) for column in texts]
    return partial(judged, references=[*zip(*columns)])


def translator_of(folder: Path, run, others: Sequence = ()):
    """How the model of a run translates, alone or together with other models, with the run's
    lexicon if it has shortlists."""
    from transformer.decoding.shortlist import load_lexicon
    from transformer.decoding.translator import make_joint_translator

    members = [(run.config.model, run.params), *others]
    translator = make_joint_translator(members, run.config.decode, run.tokenizers)
    return replace(translator, lexicon=load_lexicon(folder, run.config))


def load_other(command: EvalCommand, config: Config, words: list[str]) -> tuple:
    """The translator of --compare, and what it is. It searches by the settings of its own run,
    except for those on the command line."""
    from transformer.config.rules import check
    from transformer.data.languages import translates_alike
    from transformer.errors import UserError
    from transformer.runs.folder import load_run_config
    from transformer.runs.load import load_run

    folder, checkpoint = member(command.compare)
    other = load_run_config(folder)
    if {*other.data.targets} != {*config.data.targets}:
        raise UserError(f"--compare: {folder} has other data.targets than {command.run}")
    if not translates_alike(other.data, config.data):
        raise UserError(f"--compare: {folder} does not translate between these languages")
    named = named_settings(words, "decode", vars(config.decode))
    other = replace(other, decode=replace(other.decode, **named))
    check(other)
    run = load_run(folder, checkpoint, other)
    search = f"beam {other.decode.beam_size}, alpha {other.decode.alpha}"
    label = f"{folder}, checkpoint {run.label}, {search}"
    return translator_of(folder, run), label


def compare_with(other: tuple, command: EvalCommand, translations: list[str], references) -> dict:
    """Translates with the other run, too; prints which one is better by each metric."""
    from dataclasses import asdict

    from transformer.decoding.translator import translate
    from transformer.evaluation.comparison import compare

    translator, label = other
    theirs = translate(translator, references.sources)
    first = ", ".join([str(command.run), *command.ensemble])
    print(f"\nfirst: {first}; second: {label}")
    found = compare(translations, theirs, references)
    print(*found, sep="\n")
    return {"compared": {"with": label, "metrics": [asdict(one) for one in found]}}


def score_likelihood(run, pairs) -> list[dict]:
    """Prints loss, perplexity and accuracy of what is to be predicted; of a language model, which
    reads all of its text, bits per byte too (of lines and their ends), by which models of different
    vocabularies can be compared if no token is unknown."""
    import itertools
    from dataclasses import asdict
    from functools import partial

    from transformer.data.batching import one_epoch
    from transformer.data.buckets import plan_to_score
    from transformer.data.token_store import cut, encoded
    from transformer.model.batch import UNK
    from transformer.training.validation import estimates, losses_of, sentence_sums

    config, all_tokens = run.config, encoded(run.config.data, run.tokenizers, pairs)
    texts = cut(config.data, all_tokens)
    plan = plan_to_score(config, texts)
    compute = partial(sentence_sums, config.model)
    losses = losses_of(compute, run.params, one_epoch(config, texts, plan))
    left_out = f", {plan.left_out:,} left out as empty or too long" if plan.left_out else ""
    texts_read = f"{len(losses.tokens):,} texts{left_out}"
    print(f"{losses.tokens.sum():,.0f} {config.model.unit}s predicted in {texts_read}")
    num_bytes = None
    if not config.model.encoder_layers:
        lines = [text for _, text in pairs]
        is_read = (all_tokens.target.lengths > 1) | config.data.windows
        num_bytes = sum(len(line.encode()) + 1 for line in itertools.compress(lines, is_read))
        if unknown := (all_tokens.target.ids == UNK).sum():
            print(
                f"{unknown:,} of them are unknown tokens: bits/byte is too low, since it does not "
                "include their spelling (with data.byte_fallback it does)"
            )
    found = estimates(losses, config.model.unit, num_bytes)
    print(*found, sep="\n")
    return [asdict(estimate) for estimate in found]


def keep(command: EvalCommand, config: Config, stem: str, record: dict, translations) -> None:
    """Writes the record and the translations to RUN/eval; prints where, or warns why not."""
    import warnings

    from transformer.evaluation.records import own_path, search_name, write_record

    stem = f"{stem}-{command.checkpoint}"
    if translations is not None:
        stem += f"-{search_name(config.decode)}"
    stem += "".join(f"-with-{Path(name).name.replace(':', '-')}" for name in command.ensemble)
    path = own_path(command.run / "eval" / stem, record["test_set"])
    try:
        print("kept in", " and ".join(write_record(path, record, translations, config.data.target)))
    except OSError as error:
        reason = f"cannot write to {path.parent} ({error.strerror})"
        warnings.warn(f"translations and scores were not kept: {reason}", stacklevel=2)


def write_report(command: EvalCommand, run, results) -> None:
    """Writes RUN/report.html: what was found on the test sets, and all else there is of the run."""
    from functools import partial

    from transformer.data.doctor import diagnosis
    from transformer.data.vocabularies import load_tokenizers
    from transformer.errors import UserError
    from transformer.model.params import count_params
    from transformer.runs.folder import read_launches
    from transformer.runs.metrics import read_metrics
    from transformer.viewing.report import (
        ReportData,
        attention_examples,
        result_with_details,
        write_page,
    )

    model, metrics, doctor = (run.config, run.params, run.tokenizers), {}, []
    for folder in (command.run, *command.beside):  # what was converted was not trained here
        has_metrics = (folder / "metrics.jsonl").exists()
        metrics[str(folder)] = read_metrics(folder) if has_metrics else []
    try:
        if not (command.test_files or command.sacrebleu):  # otherwise its data may not be there
            doctor += diagnosis(run.config, partial(load_tokenizers, command.run / "tokenizer"))
    except (UserError, OSError) as error:
        doctor = [f"the data cannot be read: {error}"]
    seen = ReportData(
        run=str(command.run),
        checkpoint=run.label,
        config=run.config,
        parameters=count_params(run.params),
        metrics=metrics,
        launches=read_launches(command.run),
        results=[result_with_details(run.config, run.tokenizers, *result) for result in results],
        attention=attention_examples(*model, results[0], command.sentences),
        doctor=doctor,
    )
    path = command.run / "report.html"
    write_page(path, seen)
    print(f"report in {path}")


if __name__ == "__main__":
    run_command(main)
