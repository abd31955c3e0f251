"""A model card: the README.md of a model that is handed on."""

from collections.abc import Sequence
from pathlib import Path

from transformer.config import Config
from transformer.config.settings import by_name
from transformer.data.corpus import CONVERTED
from transformer.data.languages import base_of
from transformer.evaluation.records import table


def model_card(run: Path, config: Config, tags: Sequence[str] = ()) -> str:
    """What is known of a run: languages, data, scores, settings, target tags. Format: Hugging
    Face's, with its head of metadata (https://huggingface.co/docs/hub/model-cards)."""
    data = config.data
    languages = "".join(f"\n- {base_of(getattr(data, side))}" for side in data.sides)
    corpus = data.dataset or ", ".join(data.train_files)
    sections = ("model.", "optimizer.", "train.", "decode.")
    origin = f"trained with functional-transformer on {corpus}"
    if corpus.startswith(CONVERTED):  # no setting of training is known
        origin = f"converted by functional-transformer from {corpus.removeprefix(CONVERTED)}"
        sections = ("model.", "decode.")
    example = f"{tags[0]} A sentence." if tags else "A sentence."
    each = f"\nEach text begins with a target tag: {' '.join(tags)}\n" if tags else ""
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
inputs = tokenizer(["{example}"], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))
```
{each}
## Scores

{table(run) or "Not scored yet (eval.py)."}

## Settings

| setting | value |
| --- | --- |
{settings}
"""


def _shown(value: object) -> str:
    return str(value).replace("|", "\\|")
