"""Score a run: `python eval.py runs/quickstart`. Translations and scores go to RUN/eval/."""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the imports without a word

from transformer.commands.command_line import EvalCommand, parse_with_run
from transformer.commands.program import run_command
from transformer.config import DecodeConfig

NAMES = {
    "beam_size": "beam{}",
    "alpha": "alpha{}",
    "normalisation": "per-{}",
    "stop": "stop-{}",
    "max_extra_length": "extra{}",
    "max_source_length": "source{}",
    "dtype": "{}",
}
"""How file names tell the settings of `decode` that can change a translation."""


def main(words: list[str]) -> None:
    command, config = parse_with_run(EvalCommand, words, prog="python eval.py")

    # Slow imports come after the command line has been understood.
    import json
    import time
    import warnings
    from dataclasses import replace
    from pathlib import Path

    from transformer.data.corpus import read_pairs
    from transformer.data.tokenizer import load_tokenizers
    from transformer.decoding.translator import make_translator, translate
    from transformer.evaluation.scores import bleu_metric, score
    from transformer.machine import devices
    from transformer.runs.checkpoints import load_params
    from transformer.runs.folder import write_text

    devices.demand("any")

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
    hypotheses = translate(make_translator(config, params, tokenizers), sources)
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
    stem = f"{test_set}-{command.checkpoint}-{search_name(config.decode)}"
    record = {
        "test_set": name,
        "direction": f"{data.source}-{data.target}",
        "sentences": len(pairs),
        "checkpoint": label,
        "seconds": round(seconds, 1),
        "decode": vars(config.decode),
        "scores": [metric.to_dict() for metric in scores],
    }
    folder = command.run / "eval"
    try:
        folder.mkdir(exist_ok=True)
        write_text(folder / f"{stem}.{data.target}", "".join(f"{line}\n" for line in hypotheses))
        write_text(folder / f"{stem}.json", json.dumps(record, indent=2) + "\n")
    except OSError as error:
        reason = f"cannot write to {folder} ({error.strerror})"
        warnings.warn(f"translations and scores were not kept: {reason}", stacklevel=2)
        return
    print(f"translations and scores: {folder / stem}.{data.target} and .json")


def search_name(settings: DecodeConfig) -> str:
    """Beam and alpha, and what else is not as by default, such as "beam4-alpha0.6-bfloat16"."""
    default = vars(DecodeConfig()) | {"beam_size": None, "alpha": None}
    return "-".join(
        form.format(getattr(settings, name))
        for name, form in NAMES.items()
        if getattr(settings, name) != default[name]
    )


if __name__ == "__main__":
    run_command(main)
