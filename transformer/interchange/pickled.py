"""The tensors of a pytorch_model.bin, without torch and without executing anything.

torch.save writes a pickle that names its tensors, and their numbers beside it: in a zip archive
(since torch 1.6), or one after the other in the same file (before). A pickle can call any function
that it names; here it may name only what tensors are made of, none of which does anything. Formats:
https://github.com/pytorch/pytorch/blob/main/torch/serialization.py.
"""

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
"""What a file of torch before 1.6 begins with, pickled."""
LARGEST_PICKLE = 2**26
"""Bytes: descriptions of tensors are short."""
DTYPES = {
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "DoubleStorage": np.dtype("<f8"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "BFloat16Storage": np.dtype("<u2"),  # its bits
}


class Storage(NamedTuple):
    """Where numbers lie: their kind, and the key of the place."""

    kind: str
    key: str
    count: int


@dataclass(frozen=True)
class Tensor:
    """What a pickle says of a tensor: numbers of a storage, from an offset on, row by row."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]


class PickledWeights:
    """The tensors of a file by name, as `weights.Weights`; each is read when it is asked for."""

    def __init__(self, path: Path):
        """Raises ValueError when the file is damaged, or holds something else than tensors."""
        self._file = path.open("rb")
        if zipfile.is_zipfile(path):
            tensors, self._places = _read_archive(self._file)
        else:
            tensors, self._places = _read_stream(self._file)
        if not isinstance(tensors, Mapping):
            raise ValueError("it holds no tensors by name")
        named = {str(name): value for name, value in tensors.items()}
        self._tensors = {n: value for n, value in named.items() if isinstance(value, Tensor)}
        if len(self._tensors) < len(named):
            other = min(set(named) - set(self._tensors))
            raise ValueError(f"{other} is no tensor")
        end = path.stat().st_size
        for name, tensor in self._tensors.items():
            self._check(name, tensor, end)
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}

    def _check(self, name: str, tensor: Tensor, end: int) -> None:
        if not all(
            type(number) is int and number >= 0 for number in (tensor.offset, *tensor.shape)
        ):
            raise ValueError(f"{name} has no shape")
        dtype, place = DTYPES[tensor.storage.kind], self._places.get(tensor.storage.key)
        needed = dtype.itemsize * (tensor.offset + int(np.prod(tensor.shape, dtype=object)))
        if place is None or needed > place[1] or place[0] + place[1] > end:
            raise ValueError(f"the numbers of {name} are not all there")

    def read(self, name: str) -> np.ndarray:
        """One tensor; bfloat16 as float32."""
        tensor = self._tensors[name]
        dtype, count = DTYPES[tensor.storage.kind], int(np.prod(tensor.shape, dtype=int))
        begin = self._places[tensor.storage.key][0] + tensor.offset * dtype.itemsize
        self._file.seek(begin)
        array = np.fromfile(self._file, dtype, count).reshape(tensor.shape)
        if tensor.storage.kind == "BFloat16Storage":
            return (array.astype(np.uint32) << 16).view(np.float32)
        return array


class _Unpickler(pickle.Unpickler):
    """Knows ordered dictionaries and tensors, and nothing else."""

    def __init__(self, file: BinaryIO):
        super().__init__(file)
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
            return {"_rebuild_tensor_v2": _tensor, "_rebuild_parameter": _parameter}[name]
        if module in ("torch", "torch.storage") and name in DTYPES:
            return name
        raise pickle.UnpicklingError(f"it wants to use {module}.{name}, which is no tensor")

    def persistent_load(self, described: tuple) -> Storage:
        word, kind, key, _, count, *_ = described
        if word != "storage" or kind not in DTYPES:
            raise pickle.UnpicklingError("it holds something else than tensors")
        return self.storages.setdefault(str(key), Storage(kind, str(key), int(count)))


def _tensor(storage, offset, size, stride, *_) -> Tensor:
    row_by_row = np.cumprod([1, *reversed(size)])[:-1][::-1].tolist()
    steps = zip(size, stride, row_by_row)
    if not all(length < 2 or step == expected for length, step, expected in steps):
        raise pickle.UnpicklingError("it holds a tensor that is not stored row by row")
    if not isinstance(storage, Storage) or min((offset, *size), default=0) < 0:
        raise pickle.UnpicklingError("it holds something else than tensors")
    return Tensor(storage, int(offset), tuple(map(int, size)))


def _parameter(tensor, *_) -> Tensor:
    return tensor


def _read_archive(file: BinaryIO) -> tuple[Any, dict[str, tuple[int, int]]]:
    """The pickle of a zip archive, and for each storage where it lies: begin and bytes."""
    archive, places = zipfile.ZipFile(file), {}
    described = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
    if len(described) != 1 or described[0].file_size > LARGEST_PICKLE:
        raise ValueError("it holds no tensors")
    folder = described[0].filename.removesuffix("data.pkl") + "data/"
    for info in archive.infolist():
        if info.filename.startswith(folder) and info.compress_type == zipfile.ZIP_STORED:
            file.seek(info.header_offset + 26)
            lengths = struct.unpack("<HH", file.read(4))
            begin = info.header_offset + 30 + sum(lengths)
            places[info.filename.removeprefix(folder)] = begin, info.file_size
    return _Unpickler(io.BytesIO(archive.read(described[0]))).load(), places


def _read_stream(file: BinaryIO) -> tuple[Any, dict[str, tuple[int, int]]]:
    """The same of a file of torch before 1.6: four pickles and a list of storages, each storage
    behind its number of elements."""
    if _Unpickler(file).load() != MAGIC:
        raise ValueError("it is no file of torch's")
    _Unpickler(file).load(), _Unpickler(file).load()  # version; system
    unpickler = _Unpickler(file)
    tensors, places = unpickler.load(), {}
    for key in _Unpickler(file).load():
        size = DTYPES[unpickler.storages[key].kind].itemsize
        (count,) = struct.unpack("<q", file.read(8))
        places[key] = file.tell(), count * size
        if count < 0:
            raise ValueError("a storage has no size")
        file.seek(count * size, io.SEEK_CUR)
    return tensors, places
