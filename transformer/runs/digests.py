"""Digests of arrays: what was saved is what is read, bit for bit."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from transformer.model.params import by_name


def digests(items: Mapping[str, Any], described: Mapping[str, Any]) -> dict[str, str]:
    """The SHA-256 of every array of some trees, by item and path, and of a JSON object.

    Dtype and shape count too. Where arrays are split over processes, all must ask.
    """
    of_arrays = {name: _digest(_whole(leaf)) for name, leaf in by_name(dict(items)).items()}
    text = json.dumps(described, sort_keys=True)
    return of_arrays | {"described": hashlib.sha256(text.encode()).hexdigest()}


def _whole(leaf: np.ndarray | jax.Array) -> np.ndarray:
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return multihost_utils.process_allgather(leaf, tiled=True)
    return np.asarray(leaf)


def _digest(array: np.ndarray) -> str:
    sha256 = hashlib.sha256(f"{array.dtype} {array.shape} ".encode())
    sha256.update(np.ascontiguousarray(array).view(np.uint8))
    return sha256.hexdigest()


def difference(found: Mapping[str, str], saved: Mapping[str, str]) -> str | None:
    """The name of something found whose digest is not the one that was saved, or None."""
    return next((name for name in found if found[name] != saved.get(name)), None)
