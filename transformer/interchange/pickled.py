"""The tensors of a pytorch_model.bin, without torch and without executing anything.

torch.save writes a pickle that describes its tensors, and their elements beside it: in a zip
archive (since torch 1.6), or one after the other in the same file (before). A pickle can call any
function that it names; here it may name only the parts of tensors, which have no effects. And it is
checked before it is loaded, so that it neither allocates much memory nor nests too deeply. Formats:
https://github.com/pytorch/pytorch/blob/main/torch/serialization.py.
"""

import io
import pickle
import pickletools
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
"""The first pickle in a file of torch before 1.6."""
LARGEST_PICKLE = 2**22
"""Bytes: descriptions of tensors are short."""
DEEPEST = 50
"""Tuples in tuples, or results of calls in results."""
PUSHING = {
    "EMPTY_DICT", "EMPTY_TUPLE", "EMPTY_LIST", "BINUNICODE", "SHORT_BINUNICODE", "GLOBAL", "BININT",
    "BININT1", "BININT2", "LONG1", "NEWFALSE", "NEWTRUE", "NONE", "BINFLOAT",
}  # fmt: skip
TAKING = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "REDUCE": 2, "BINPERSID": 1}
"""Operations that replace this many objects by one."""
DTYPES = {
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "DoubleStorage": np.dtype("<f8"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "BFloat16Storage": np.dtype("<u2"),  # its bits
}


class Storage(NamedTuple):
    """Where elements are stored: their type, and a key."""

    kind: str
    key: str


@dataclass(frozen=True)
class Tensor:
    """The description of a tensor: elements of a storage, from an offset on, row by row."""

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
            raise ValueError("it does not contain tensors by name")
        named = {str(name): value for name, value in tensors.items()}
        self._tensors = {n: value for n, value in named.items() if isinstance(value, Tensor)}
        if len(self._tensors) < len(named):
            other = min(set(named) - set(self._tensors))
            raise ValueError(f"{other} is not a tensor")
        end = path.stat().st_size
        for name, tensor in self._tensors.items():
            self._check(name, tensor, end)
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}

    def _check(self, name: str, tensor: Tensor, end: int) -> None:
        numbers = (tensor.offset, *tensor.shape)
        are_sizes = all(type(number) is int and 0 <= number < 2**40 for number in numbers)
        if not are_sizes or len(tensor.shape) > 8:
            raise ValueError(f"the shape of {name} is not valid")
        dtype, place = DTYPES[tensor.storage.kind], self._places.get(tensor.storage.key)
        needed = dtype.itemsize * (tensor.offset + int(np.prod(tensor.shape, dtype=object)))
        if place is None or needed > place[1] or place[0] + place[1] > end:
            raise ValueError(f"the data of {name} are incomplete")

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


def _check_operations(data: bytes) -> int:
    """Where the first pickle in the data ends. Raises UnpicklingError for operations that no file
    of tensors has, and for nesting that would end the process."""
    depths: list[Any] = []  # of what lies on the stack; None is a mark
    known: dict[int, int] = {}
    operations: Any = pickletools.genops(data)
    for count, (operation, argument, place) in enumerate(operations):
        name = operation.name
        if name == "STOP":
            return place + 1
        if name in PUSHING:
            depths.append(0)
        elif name == "MARK":
            depths.append(None)
        elif name in ("BINPUT", "LONG_BINPUT") and argument <= count:
            known[argument] = depths[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            depths.append(known[argument])
        elif name in TAKING or name == "TUPLE":
            taken = _since_mark(depths) if name == "TUPLE" else _taken(depths, TAKING[name])
            depths.append(1 + max(taken, default=0))
            if depths[-1] > DEEPEST:
                raise pickle.UnpicklingError("it is nested too deeply")
        elif name in ("SETITEMS", "APPENDS"):
            _since_mark(depths)
        elif name in ("SETITEM", "APPEND", "BUILD"):
            _taken(depths, 2 if name == "SETITEM" else 1)
        elif name != "PROTO":
            raise pickle.UnpicklingError(
                f"it contains the operation {name}, which tensors do not need"
            )
    raise EOFError("it ends too early")


def _taken(depths: list, count: int) -> list[int]:
    taken = depths[len(depths) - count :]
    if len(taken) < count or None in taken:
        raise pickle.UnpicklingError("its operations are inconsistent")
    del depths[len(depths) - count :]
    return taken


def _since_mark(depths: list) -> list[int]:
    taken = []
    while (depth := depths.pop()) is not None:
        taken.append(depth)
    return taken


class _RebuildTensor:
    """Callable by a pickle: describes a tensor. No attribute can be set on it."""

    __slots__ = ()

    def __call__(self, storage, offset, size, stride, *_) -> Tensor:
        row_by_row = np.cumprod([1, *reversed(size)], dtype=object)[:-1][::-1].tolist()
        steps = zip(size, stride, row_by_row)
        if not all(length < 2 or step == expected for length, step, expected in steps):
            raise pickle.UnpicklingError("it contains a tensor that is not stored row by row")
        if not isinstance(storage, Storage):
            raise pickle.UnpicklingError("it contains other objects than tensors")
        return Tensor(storage, offset, tuple(size))


class _RebuildParameter:
    """The same for a tensor that is described already."""

    __slots__ = ()

    def __call__(self, tensor, *_) -> Tensor:
        return tensor


REBUILD = {"_rebuild_tensor_v2": _RebuildTensor(), "_rebuild_parameter": _RebuildParameter()}


def _unpickled(data: bytes) -> tuple[Any, dict[str, Storage], int]:
    """The object in the first pickle of the data, the storages that it names, and its length."""
    end = _check_operations(data)
    unpickler = _Unpickler(io.BytesIO(data[:end]))
    return unpickler.load(), unpickler.storages, end


class _Unpickler(pickle.Unpickler):
    """Loads ordered dictionaries and tensors, and nothing else."""

    def __init__(self, file: BinaryIO):
        super().__init__(file)
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module == "torch._utils" and name in REBUILD:
            return REBUILD[name]
        if module in ("torch", "torch.storage") and name in DTYPES:
            return name
        raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not part of a tensor")

    def persistent_load(self, described: tuple) -> Storage:
        tag, kind, key, _, _, *_ = described
        if tag != "storage" or kind not in DTYPES:
            raise pickle.UnpicklingError("it contains other objects than tensors")
        return self.storages.setdefault(str(key), Storage(kind, str(key)))


def _read_archive(file: BinaryIO) -> tuple[Any, dict[str, tuple[int, int]]]:
    """The pickle of a zip archive, and for each storage its offset and size in bytes."""
    archive, places = zipfile.ZipFile(file), {}
    described = [info for info in archive.infolist() if info.filename.endswith("/data.pkl")]
    if len(described) != 1 or described[0].file_size > LARGEST_PICKLE:
        raise ValueError("it does not contain tensors")
    if described[0].compress_type != zipfile.ZIP_STORED:
        raise ValueError("it is compressed, which torch never does")
    folder = described[0].filename.removesuffix("data.pkl") + "data/"
    for info in archive.infolist():
        if info.filename.startswith(folder) and info.compress_type == zipfile.ZIP_STORED:
            file.seek(info.header_offset + 26)
            lengths = struct.unpack("<HH", file.read(4))
            begin = info.header_offset + 30 + sum(lengths)
            places[info.filename.removeprefix(folder)] = begin, info.file_size
    return _unpickled(archive.read(described[0]))[0], places


def _next_pickle(file: BinaryIO) -> tuple[Any, dict[str, Storage]]:
    """The pickle at the file's position, which is moved behind it."""
    begin = file.tell()
    value, storages, end = _unpickled(file.read(LARGEST_PICKLE))
    file.seek(begin + end)
    return value, storages


def _read_stream(file: BinaryIO) -> tuple[Any, dict[str, tuple[int, int]]]:
    """The same of a file of torch before 1.6: four pickles and a list of storages, each storage
    behind its number of elements."""
    (magic, _), *_, (tensors, storages), (keys, _) = (_next_pickle(file) for _ in range(5))
    if magic != MAGIC or not isinstance(keys, list):
        raise ValueError("it is not a file of torch")
    places = {}
    for key in keys:
        size = DTYPES[storages[key].kind].itemsize
        (count,) = struct.unpack("<q", file.read(8))
        places[key] = file.tell(), count * size
        if count < 0:
            raise ValueError("the size of a storage is negative")
        file.seek(count * size, io.SEEK_CUR)
    return tensors, places
