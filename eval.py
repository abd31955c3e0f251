"""Score a run: `python eval.py runs/quickstart`. Translations and scores go to RUN/eval/."""

from transformer.command_line import EvalCommand, parse_with_run, run_command


def main(words: list[str]) -> None:
    command, config = parse_with_run(EvalCommand, words, prog="python eval.py")

    # Slow imports come after the command line has been understood.
    import json
    import time
    from dataclasses import replace
    from pathlib import Path

    from transformer.checkpoints import load_params
    from transformer.data.corpus import read_pairs
    from transformer.data.tokenizer import load_tokenizers
    from transformer.decoding.translator import translate
    from transformer.evaluation.scores import bleu_metric, score
    from transformer.run import write_text
    from transformer.training import parallel

    parallel.demand("any")
    folder = command.run / "eval"
    folder.mkdir(exist_ok=True)

    # The test set as raw text: scores are against what people wrote, never against tokens.
    data = config.data
    if command.test_files:
        data = replace(data, dataset="", test_files=command.test_files, swap_files=False)
    split = "test" if command.test_files else command.split
    bleu_metric(data.target)  # what it lacks is told now, not after the translating
    pairs = list(read_pairs(data, split))
    sources, references = [s for s, _ in pairs], [t for _, t in pairs]

    # Translate it.
    tokenizers = load_tokenizers(command.run / "tokenizer", config.data)
    params, label = load_params(command.run, config, command.checkpoint)
    start = time.perf_counter()
    hypotheses = translate(config, params, tokenizers, sources)
    seconds = time.perf_counter() - start

    # Score it.
    name = " and ".join(command.test_files) or f"{data.dataset or 'files'} {split}"
    print(
        f"{name}, {data.source} to {data.target}, {len(pairs):,} sentences, raw references\n"
        f"checkpoint {label}; beam {config.decode.beam_size}, alpha {config.decode.alpha}; "
        f"{seconds:.0f} s, {len(pairs) / seconds:.1f} sentences/s, compiling included"
    )
    scores = score(hypotheses, references, data.target)
    for metric in scores:
        print(metric)

    # Keep both.
    test_set = Path(command.test_files[0]).stem if command.test_files else split
    search = f"beam{config.decode.beam_size}-alpha{config.decode.alpha}"
    if config.decode.dtype != "model":
        search += f"-{config.decode.dtype}"
    stem = f"{test_set}-{command.checkpoint}-{search}"
    write_text(folder / f"{stem}.{data.target}", "".join(f"{line}\n" for line in hypotheses))
    record = {
        "test_set": name,
        "direction": f"{data.source}-{data.target}",
        "sentences": len(pairs),
        "checkpoint": label,
        "seconds": round(seconds, 1),
        "decode": vars(config.decode),
        "scores": [metric.to_dict() for metric in scores],
    }
    write_text(folder / f"{stem}.json", json.dumps(record, indent=2) + "\n")
    print(f"translations and scores: {folder / stem}.{data.target} and .json")


if __name__ == "__main__":
    run_command(main)
