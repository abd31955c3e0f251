"""Score a run: `python eval.py runs/quickstart`. Translations and scores go to RUN/eval/.

A translator is scored by BLEU, chrF and TER; every model by how likely the text is to it. With
`--compare` two translators are held against each other, `--scores` shows what has been kept.
"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports without a word

from transformer.commands.command_line import EvalCommand, member, parse_with_run
from transformer.commands.program import run_command
from transformer.config import Config, DecodeConfig

COMPARABLE = (
    "  comparable with scores of the same signature on the same test set; not with BLEU of "
    "tokenised,\n  lower-cased or compound-split text, which papers often have"
)

NAMES = {
    "beam_size": "beam{}",
    "alpha": "alpha{}",
    "normalisation": "per-{}",
    "stop": "stop-{}",
    "max_extra_length": "extra{}",
    "max_length": "most{}",
    "forced_end": "forced-end",
    "forbidden": "without{}",
    "renormalise": "renormalised",
    "min_length": "least{}",
    "no_repeat_ngram": "no-repeat{}",
    "repetition_penalty": "penalty{}",
    "max_source_length": "source{}",
    "dtype": "{}",
}
"""How file names tell the settings of `decode` that can change a translation."""


def main(words: list[str]) -> None:
    command, config = parse_with_run(EvalCommand, words, prog="python eval.py")

    # Slow imports come after the command line has been understood.
    from dataclasses import replace
    from pathlib import Path

    from transformer.evaluation.records import table

    if command.scores:
        kept = table(command.run) or f"nothing yet: python eval.py {command.run}"
        print(kept.replace("\\|", "|"))
        return

    from transformer.data.corpus import read_pairs
    from transformer.data.vocabularies import load_tokenizers
    from transformer.errors import UserError
    from transformer.evaluation.scores import bleu_metric
    from transformer.machine import devices
    from transformer.runs.checkpoints import load_params

    devices.demand("any")

    # The test set as raw text: BLEU is against what people wrote, never against tokens.
    data = config.data
    if command.test_files:
        data = replace(data, dataset="", test_files=command.test_files, swap_files=False)
    config = replace(config, data=data)
    split = "test" if command.test_files else command.split
    translates = len(data.sides) == 2
    if not translates and (command.compare or command.lowercased):
        raise UserError(f"{command.run} is no translator: leave out --compare and --lowercased")
    if translates:
        bleu_metric(data.target)  # what it lacks is told now, not after the translating
    pairs = list(read_pairs(data, split))

    # The model.
    tokenizers = load_tokenizers(command.run / "tokenizer", data)
    params, label = load_params(command.run, config, command.checkpoint)
    name = " and ".join(command.test_files) or f"{data.dataset or 'files'} {split}"
    languages = " to ".join(getattr(data, side) for side in data.sides)
    print(f"{name}, {languages}, {len(pairs):,} sentences\ncheckpoint {label}")

    # How well it does, in what it writes and in how likely the text is to it.
    record = {"test_set": name, "languages": languages, "sentences": len(pairs)}
    record |= {"checkpoint": label, "decode": vars(config.decode)}
    translations = None
    if translates:
        translations, scored = score_translations(
            config, params, tokenizers, pairs, command.lowercased
        )
        record |= scored
        if command.compare:
            record |= compare_with(command, config, pairs, translations)
    record["losses"] = score_likelihood(config, params, tokenizers, pairs)

    test_set = Path(command.test_files[0]).stem if command.test_files else split
    stem = f"{test_set}-{command.checkpoint}"
    if translates:
        stem += f"-{search_name(config.decode)}"
    keep(command.run / "eval" / stem, record, translations, data.target)


def score_translations(
    config: Config, params, tokenizers, pairs, lowercased: bool
) -> tuple[list[str], dict]:
    """Translates; prints BLEU, chrF and TER against the raw references, and returns all."""
    import time

    from transformer.decoding.translator import make_translator, translate
    from transformer.evaluation.scores import score

    start = time.perf_counter()
    translator = make_translator(config, params, tokenizers)
    translations = translate(translator, [source for source, _ in pairs])
    seconds = time.perf_counter() - start
    print(
        f"beam {config.decode.beam_size}, alpha {config.decode.alpha}, raw references; "
        f"{seconds:.0f} s, {len(pairs) / seconds:.1f} sentences/s, compiling included"
    )
    references = [target for _, target in pairs]
    scores = score(translations, references, config.data.target, lowercased)
    for metric in scores:
        print(metric)
    print(COMPARABLE)
    record = {"seconds": round(seconds, 1), "scores": [metric.to_dict() for metric in scores]}
    return translations, record


def compare_with(command: EvalCommand, config: Config, pairs, translations: list[str]) -> dict:
    """Translates with the other run, too; prints which one is better by each metric."""
    from transformer.data.vocabularies import load_tokenizers
    from transformer.decoding.translator import make_translator, translate
    from transformer.errors import UserError
    from transformer.evaluation.comparison import compare
    from transformer.runs.checkpoints import load_params
    from transformer.runs.folder import load_run_config

    run, checkpoint = member(command.compare)
    other = load_run_config(run)
    if [other.data.source, other.data.target] != [config.data.source, config.data.target]:
        raise UserError(f"--compare: {run} does not translate between these languages")
    tokenizers = load_tokenizers(run / "tokenizer", other.data)
    params, label = load_params(run, other, checkpoint)
    theirs = translate(make_translator(other, params, tokenizers), [source for source, _ in pairs])
    print(f"\nfirst: {command.run}; second: {run}, checkpoint {label}")
    found = compare(translations, theirs, [target for _, target in pairs], config.data.target)
    for one in found:
        print(one)
    compared = {"with": str(run), "checkpoint": label}
    return {"compared": compared | {"metrics": [one.to_dict() for one in found]}}


def score_likelihood(config: Config, params, tokenizers, pairs) -> list[dict]:
    """Prints loss, perplexity and accuracy of what is to be predicted; of a language model, which
    reads all of its text, bits a byte too (of lines and their ends): models with other vocabularies
    have them too, if theirs leave no token unknown."""
    import itertools
    from dataclasses import asdict
    from functools import partial

    from transformer.data.batching import one_epoch
    from transformer.data.plan import plan_to_score
    from transformer.data.token_store import cut, encoded
    from transformer.model.batch import UNK
    from transformer.training.validation import estimates, losses_of, sentence_sums

    whole = encoded(config.data, tokenizers, pairs)
    texts = cut(config.data, whole)
    plan = plan_to_score(config, texts, rows_multiple=1)
    batches = one_epoch(config, texts, plan)
    losses = losses_of(partial(sentence_sums, config.model), params, batches)
    left_out = f", {plan.left_out:,} left out as empty or too long" if plan.left_out else ""
    texts_read = f"{len(losses.tokens):,} texts{left_out}"
    print(f"{losses.tokens.sum():,.0f} {config.model.unit}s predicted in {texts_read}")
    num_bytes = None
    if not config.model.encoder_layers:
        lines = [text for _, text in pairs]
        is_read = (whole.target_lengths > 1) | config.data.windows
        num_bytes = sum(len(line.encode()) + 1 for line in itertools.compress(lines, is_read))
        if unknown := (whole.target_ids == UNK).sum():
            print(
                f"{unknown:,} of them unknown to the vocabulary: bits/byte are too few by what it "
                "would take to spell them (data.byte_fallback does)"
            )
    found = estimates(losses, config.model.unit, num_bytes)
    for estimate in found:
        print(estimate)
    return [asdict(estimate) for estimate in found]


def keep(path, record: dict, translations: list[str] | None, language: str) -> None:
    """Writes the record, and the translations beside it; says so, or why not."""
    import json
    import warnings

    from transformer.runs.folder import write_text

    path = own_path(path, record["test_set"])
    try:
        path.parent.mkdir(exist_ok=True)
        if translations is not None:
            write_text(path.with_name(f"{path.name}.{language}"), "\n".join([*translations, ""]))
        write_text(path.with_name(f"{path.name}.json"), json.dumps(record, indent=2) + "\n")
    except OSError as error:
        reason = f"cannot write to {path.parent} ({error.strerror})"
        warnings.warn(f"translations and scores were not kept: {reason}", stacklevel=2)
        return
    kept = "scores:" if translations is None else f"translations and scores: {path}.{language} and"
    print(f"{kept} {path}.json")


def own_path(path, test_set: str):
    """The path, or where another test set of that name has been kept there, one with a number."""
    from transformer.evaluation.records import records

    kept = {name: record["test_set"] for name, record in records(path.parents[1])}
    names = [path.name, *(f"{path.name}-{number}" for number in range(2, len(kept) + 3))]
    return path.with_name(next(n for n in names if kept.get(n, test_set) == test_set))


def search_name(settings: DecodeConfig) -> str:
    """Beam and alpha, and what else is not as by default, such as "beam4-alpha0.6-bfloat16"."""
    default = vars(DecodeConfig()) | {"beam_size": None, "alpha": None}
    return "-".join(
        form.format(str(getattr(settings, name)).strip("(,)").replace(", ", "+"))
        for name, form in NAMES.items()
        if getattr(settings, name) != default[name]
    )


if __name__ == "__main__":
    run_command(main)
