"""A model card: the README.md of a model that is handed on."""

import json
from pathlib import Path

from transformer.config import Config
from transformer.config.settings import by_name
from transformer.interchange.model import ORIGIN


def model_card(run: Path, config: Config) -> str:
    """What is known of a run: languages, data, scores, settings. Format: Hugging Face's, with its
    head of metadata (https://huggingface.co/docs/hub/model-cards)."""
    data = config.data
    languages = "".join(f"\n- {getattr(data, side)}" for side in data.sides)
    corpus = data.dataset or ", ".join(data.train_files)
    sections = ("model.", "optimizer.", "train.", "decode.")
    origin = f"trained with functional-transformer on {corpus}"
    if corpus.startswith(ORIGIN):  # no setting of training is known
        origin = f"converted by functional-transformer from {corpus.removeprefix(ORIGIN)}"
        sections = ("model.", "decode.")
    settings = "\n".join(
        f"| {name} | {_shown(value)} |"
        for name, value in by_name(config).items()
        if name.startswith(sections)
    )
    return f"""---
language:{languages}
pipeline_tag: translation
---

# {run.resolve().name}: {data.source} to {data.target}

A Transformer (Vaswani et al., 2017), {origin}.

```python
from transformers import MarianMTModel, MarianTokenizer

model, tokenizer = (kind.from_pretrained(".") for kind in (MarianMTModel, MarianTokenizer))
inputs = tokenizer(["A sentence."], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))
```

## Scores

{_scores(run)}

## Settings

| setting | value |
| --- | --- |
{settings}
"""


def _scores(run: Path) -> str:
    """What eval.py has found, as a table."""
    rows = []
    for path in sorted((run / "eval").glob("*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            decode = record["decode"]
            search = f"beam {decode['beam_size']}, alpha {decode['alpha']}"
            for score in record.get("scores", []):
                low, high = score["low"], score["high"]
                interval = "-" if low is None else f"{low:.1f} to {high:.1f}"
                rows.append(
                    f"| {path.stem} ({record['sentences']:,} sentences) | {search} "
                    f"| {score['name']} {score['value']:.1f} | {interval} | {score['signature']} |"
                )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # not a record of eval.py
    if not rows:
        return "Not scored yet (eval.py)."
    head = (
        "| test set | search | score | 95 % interval | signature |\n| --- | --- | --- | --- | --- |"
    )
    return "\n".join([head, *rows])


def _shown(value: object) -> str:
    return str(value).replace("|", "\\|")
