"""Makes the trained weights that the notebooks start with: `make weights`.

Each folder in notebooks/weights has what `convert.py to-safetensors` writes, rounded to 16 bits,
and the metrics of the training. weights.json says how each model was trained, what it scores, and
the SHA-256 digest of its weights. Runs that are finished already are not trained again. The
recurrent networks of recurrent.py are trained by that file.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import recurrent

from transformer.interchange.model import WEIGHTS, load_plain, save_plain, save_run
from transformer.runs.load import load_run

FOLDER = Path(__file__).with_suffix("")
TRAINED = {
    "quickstart": ["configs/quickstart.py"],
    "lm_quickstart": ["configs/lm_quickstart.py"],
    "mlm_quickstart": [
        "configs/mlm_quickstart.py", "--data.batch-tokens", "2048", "--train.steps", "1500",
    ],
}  # fmt: skip
"""How each model is trained: what follows train.py."""


def make(name: str) -> dict:
    """Trains a model and writes its folder; what weights.json says of it."""
    run, folder = Path("runs") / f"{name}_of_notebooks", FOLDER / name
    command = ["train.py", *TRAINED[name], "--run", str(run)]
    subprocess.run([sys.executable, *command], check=True)
    trained = load_run(run)
    rounded = jax.tree.map(lambda weights: weights.astype(jnp.float16), trained.params)
    folder.mkdir(parents=True, exist_ok=True)
    save_plain(folder, replace(trained, params=rounded))
    shutil.copy(run / "metrics.jsonl", folder)
    digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    return {"command": f"python {' '.join(command)}", "scores": scores(folder), "sha256": digest}


def scores(folder: Path) -> dict[str, float]:
    """What eval.py finds of the weights as they are stored, by name."""
    with TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        run.mkdir()
        save_run(run, load_plain(folder))
        subprocess.run([sys.executable, "eval.py", str(run)], check=True)
        [record] = (run / "eval").glob("*.json")
        found = json.loads(record.read_text(encoding="utf-8"))
    return {
        one["name"]: round(one["value"], 3) for one in [*found.get("scores", []), *found["losses"]]
    }


if __name__ == "__main__":
    about = {name: make(name) for name in TRAINED} | {"recurrent": recurrent.make()}
    text = json.dumps(about, indent=2) + "\n"
    (FOLDER / "weights.json").write_text(text, encoding="utf-8")
