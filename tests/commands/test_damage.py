"""One bit flipped, or one block lost, in any file of a run's newest checkpoint: every command sees
it, or what it reads is what was saved."""

import os
import random
import re
import shutil
import warnings

import numpy as np
import pytest
from test_fine_tuning import STANDSTILL, weights
from test_resume import metrics

import eval as eval_command
import train
import translate
from transformer.data.corpus import read_pairs
from transformer.data.vocabularies import load_tokenizers
from transformer.decoding.translator import make_translator
from transformer.decoding.translator import translate as translated
from transformer.errors import UserError
from transformer.evaluation.records import search_name
from transformer.runs.checkpoints import Progress, average, digests_of, load_params, restore
from transformer.runs.folder import load_run_config

pytestmark = pytest.mark.slow

DAMAGES = int(os.environ.get("DAMAGES", "1"))
"""How many damages are tried; every sixth is a lost block."""

BLOCK = 4096


def damage(path, chosen, lost_block):
    content = bytearray(path.read_bytes())
    place = chosen.randrange(len(content))
    if lost_block:
        place -= place % BLOCK
        content[place : place + BLOCK] = bytes(len(content[place : place + BLOCK]))
    else:
        content[place] ^= 1 << chosen.randrange(8)
    path.write_bytes(content)


@pytest.fixture(scope="module")
def expected(undisturbed):
    """The translations of the validation set by some of the undisturbed run's checkpoints."""
    config = load_run_config(undisturbed)
    tokenizers = load_tokenizers(undisturbed / "tokenizer", config.data)
    sources = [source for source, _ in read_pairs(config.data, "validation")]
    known = {}

    def build(steps):
        if steps not in known:
            params = [load_params(undisturbed, config, str(step))[0] for step in steps]
            known[steps] = translated(make_translator(config, average(params), tokenizers), sources)
        return known[steps]

    return build


def steps_of(said):
    """Which steps a command says that it has read."""
    words = re.search(r"checkpoint \w+: (?:step|average of steps) (\d+|\[[\d, ]+\])", said)[1]
    return tuple(map(int, re.findall(r"\d+", words)))


def arrays(folder):
    """The digests of what a run ended with, seconds and the like left out."""
    state, _ = restore(folder, load_run_config(folder))
    return digests_of(state, Progress())


@pytest.mark.parametrize("number", range(DAMAGES))
def test_no_command_takes_damaged_numbers_for_good_ones(
    config, undisturbed, expected, tmp_path, monkeypatch, capfd, number
):
    chosen = random.Random(number)
    run = shutil.copytree(undisturbed, tmp_path / "run")
    files = sorted(path for path in (run / "checkpoints" / "20").rglob("*") if path.is_file())
    values = [path for path in files if path.parent.name == "d"]
    path = chosen.choice(values if number % 2 else [path for path in files if path.stat().st_size])
    damage(path, chosen, lost_block=number % 6 == 5)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # Ctrl-C stays pytest's

    def command(main, *words):
        """What it says; nothing where it refuses a description, which its sentence names."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                main(list(map(str, words)))
            except UserError as error:
                message = str(error)
                assert path.name in message or "damaged" in message
                return None
        return capfd.readouterr()

    search = search_name(load_run_config(run).decode)
    if said := command(eval_command.main, run, "--checkpoint", "average"):
        lines = (run / "eval" / f"test-average-{search}.de").read_text().splitlines()
        assert lines == expected(steps_of(said.out))

    sources = (config.parent / "valid.en").open()
    with sources, monkeypatch.context() as patch:
        patch.setattr("sys.stdin", sources)
        if said := command(translate.main, run, "--checkpoint", "last"):
            assert said.out.splitlines() == expected(steps_of(said.err))

    tuned = tmp_path / "tuned"
    words = [config, "--run", tuned, "--from", run, "--from-checkpoint", "last", *STANDSTILL]
    if said := command(train.main, *words, "--train.steps", 1):
        [step] = steps_of(said.out)
        for ours, theirs in zip(weights(tuned, "last"), weights(undisturbed, str(step))):
            np.testing.assert_allclose(ours, theirs, atol=1e-8)

    if command(train.main, config, "--run", run):
        assert arrays(run) == arrays(undisturbed)
        assert metrics(run) == metrics(undisturbed)
