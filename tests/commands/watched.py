"""train.py, with a line in a file for the tokens of each update: watched.py FILE STOP WORDS.

It stops itself by SIGTERM in update STOP of this start; 0: never.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[2]))

import train
from transformer.data import batching

lines, stop, *words = sys.argv[1:]
batches, one_epoch = batching.batches, batching.one_epoch


def watched(*arguments):
    """The same batches; each is written down when it is taken for an update."""
    for number, (batch, position) in enumerate(batches(*arguments), start=1):
        digest = hashlib.sha256()
        for ids in jax.tree.leaves(batch):
            digest.update(repr(ids.shape).encode() + ids.tobytes())
        with open(lines, "a") as file:
            file.write(f"{tuple(position)} {digest.hexdigest()}\n")
        if number == int(stop):
            os.kill(os.getpid(), signal.SIGTERM)
        yield batch, position


def unwatched(*arguments):
    """What is validated is no update."""
    batching.batches = batches
    try:
        return one_epoch(*arguments)
    finally:
        batching.batches = watched


batching.batches, batching.one_epoch = watched, unwatched
train.run_command(lambda _: train.main(words))
