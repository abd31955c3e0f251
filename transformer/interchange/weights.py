"""Weights by name, in files of other programs (safetensors), and our tree of parameters."""

import json
import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Protocol, runtime_checkable
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from transformer.config import ModelConfig
from transformer.errors import UserError, one_line
from transformer.interchange.pickled import PickledWeights
from transformer.model.params import Params, by_name, init_params

LARGEST_TEXT = 2**26
"""Bytes of a file with settings or a vocabulary."""
Shapes = Mapping[str, tuple[int, ...]]


class SafetensorsWeights:
    """The arrays of a safetensors file by name, each read when it is asked for.

    The file is opened each time, since what has been read of it stays in memory while it is open.
    """

    def __init__(self, path: Path):
        """Raises ValueError for numbers that numpy does not know."""
        self._path, self.shapes = path, {}
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                described = file.get_slice(name)
                if described.get_dtype() not in ("F64", "F32", "F16", "BF16"):
                    raise ValueError(
                        f"{name} is of type {described.get_dtype()}, which is not supported"
                    )
                self.shapes[name] = tuple(described.get_shape())

    def read(self, name: str) -> np.ndarray:
        """One array; bfloat16 as float32."""
        with safe_open(self._path, framework="numpy") as file:
            array = file.get_tensor(name)
        return array if array.dtype.kind == "f" else array.astype(np.float32)


@runtime_checkable
class Weights(Protocol):
    """Arrays by name, of some file."""

    @property
    def shapes(self) -> Shapes:
        """The shape of each array."""
        ...

    def read(self, name: str) -> np.ndarray:
        """One array."""
        ...


def open_weights(path: Path) -> Weights:
    """A safetensors file, or a pytorch_model.bin. Raises UserError when it is damaged."""
    try:
        checked(path, most=2**50)
        if path.suffix == ".safetensors":
            return SafetensorsWeights(path)
        return PickledWeights(path)
    except (
        OSError, ValueError, KeyError, TypeError, EOFError, IndexError, AttributeError,
        MemoryError, OverflowError, RecursionError, struct.error,
        SafetensorError, UnpicklingError, BadZipFile, NotImplementedError, ImportError,
    ) as error:  # fmt: skip
        reason = one_line(error) or type(error).__name__
        raise UserError(f"cannot read the weights {path}: {reason}") from error


def shapes_of(model: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter by its name in our tree, such as encoder.norm.scale."""
    return {name: leaf.shape for name, leaf in by_name(_shapes(model)).items()}


def from_names(model: ModelConfig, arrays: Mapping[str, jax.Array]) -> Params:
    """The inverse of `by_name`."""
    shapes = _shapes(model)
    structure = jax.tree.structure(shapes)
    return jax.tree.unflatten(structure, [arrays[name] for name in by_name(shapes)])


def _shapes(model: ModelConfig) -> Params:
    return jax.eval_shape(partial(init_params, model), jax.random.key(0))


def check_shapes(found: Shapes, expected: Shapes, where: Path) -> None:
    """Raises UserError naming the first array that is missing, or has another shape."""
    for name, shape in expected.items():
        if name not in found:
            raise UserError(f"{where} lacks {name}, which its config requires")
        if found[name] != shape:
            raise UserError(
                f"{where}: {name} has the shape {found[name]}, but its config requires {shape}"
            )


def as_float32(array: np.ndarray, name: str, where: Path) -> np.ndarray:
    """An array in float32. Raises UserError when it is not of finite floating-point numbers."""
    if array.dtype.kind != "f":
        raise UserError(f"{where}: {name} contains {array.dtype}, not floating-point numbers")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise UserError(f"{where}: {name} contains NaN or an infinite number")
    return array


def save_arrays(path: Path, arrays: Mapping[str, Any], kind: str = "np") -> None:
    """A safetensors file that other users may read; `kind`: np, or pt for torch's programs."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    try:
        save_file(contiguous, path, metadata={"format": kind})
    except SafetensorError as error:
        raise OSError(None, one_line(error), str(path)) from error
    path.chmod(0o644)


def save_weights(path: Path, params: Params) -> None:
    """All parameters as a safetensors file."""
    save_arrays(path, by_name(params))


def load_weights(path: Path, model: ModelConfig) -> Params:
    """What `save_weights` wrote. Raises UserError when it is damaged, or of another model."""
    weights, expected = open_weights(path), shapes_of(model)
    check_shapes(weights.shapes, expected, path)
    for name in weights.shapes:
        if name not in expected:
            raise UserError(f"{path} contains {name}, which the model of its config does not have")
    read = {name: jnp.array(as_float32(weights.read(name), name, path)) for name in expected}
    return from_names(model, read)


def checked(path: Path, most: int = LARGEST_TEXT) -> Path:
    """The path. Raises UserError when it is no file (a pipe would never end) or too large."""
    if not path.is_file():
        raise UserError(f"{path.parent} lacks {path.name}")
    if path.stat().st_size > most:
        raise UserError(f"{path} has more than {most // 2**20:,} MB, too much for such a file")
    return path


def read_json(path: Path) -> dict:
    """A JSON object. Raises UserError when it is missing or damaged."""
    try:
        value = json.loads(checked(path).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"cannot read {path}: it is not a JSON object")
    return value
