"""Arrays in files of safetensors and of NumPy: their headers, and readers of their elements."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..arrays.paths import path_text
from ..errors import FileFormatError
from ..layouts.dtypes import bits_of_name, is_full_name, named_dtype
from ..text import printable
from .elements import Elements, FileBytes, RowMajor
from .leaves import Progress, StoredLeaf, StoredTree
from .reading import Budget, decoded, errors_about, open_regular, size_of

_MAGIC = b"\x93NUMPY"
_WIDTHS = {1: 2, 2: 4, 3: 4}
"""Bytes of the header's length in each version of the format."""
_LENGTH = rb"(?:0|[1-9]\d{0,18})L?"
_HEADER = re.compile(
    rb"\{\s*'descr':\s*'([^']*)',\s*'fortran_order':\s*(True|False),\s*"
    rb"'shape':\s*\(((?:" + _LENGTH + rb", ?)+(?:" + _LENGTH + rb",?)?|)\),?\s*\}\s*"
)
"""A header as NumPy writes it; Python 2 wrote long integers with an L."""
_NUMBERS = (
    ("int", (1, 2, 4, 8)),
    ("uint", (1, 2, 4, 8)),
    ("float", (2, 4, 8, 16)),
    ("complex", (8, 16, 32)),
)
_NAMES = {"b1": "bool", "f1": "float8_e5m2"} | {
    f"{family[0]}{size}": f"{family}{8 * size}" for family, sizes in _NUMBERS for size in sizes
}
_OTHER = re.compile(r"([SU])(\d{1,9})|[mM]8(?:\[\d{0,9}[a-zA-Zμ]{1,3}\])?")
"""Bytes, text, durations and dates."""


class Dtype(NamedTuple):
    """A dtype in a file."""

    name: str | None
    """Its name; None if its elements are text or dates."""
    bits: int
    """Bits of an element in the file."""


class Header(NamedTuple):
    """The header of an array."""

    shape: tuple[int, ...]
    dtype: Dtype
    nbytes: int
    """Bytes of the header itself."""

    code: str
    """NumPy's code of the dtype, with its byte order."""

    is_fortran: bool
    """Whether the first axis is contiguous."""

    @property
    def end(self) -> int:
        """Bytes of the header and the elements."""
        return self.nbytes + math.prod(self.shape) * self.dtype.bits // 8


def npy_header(data: bytes) -> Header:
    """Return the header of an array.

    Args:
        data: Start of a file.

    Raises:
        FileFormatError: If it is not a header that NumPy writes, or that of records or Python objects.
    """
    width = _WIDTHS.get(data[6], 0) if data[:6] == _MAGIC and data[7:8] == b"\0" else 0
    nbytes = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    found = _HEADER.fullmatch(data, 8 + width, nbytes) if width > 0 and nbytes <= len(data) else None
    if found is None:
        raise FileFormatError(
            "not an array of numpy, or one of records: save plain arrays with numpy.save or numpy.savez"
        )
    shape = tuple(int(number) for number in re.findall(rb"\d+", found[3]))
    code = found[1].decode("latin-1")
    return Header(shape, dtype_of_code(code), nbytes, code, found[2] == b"True")


@functools.lru_cache(maxsize=256)
def dtype_of_code(code: str) -> Dtype:
    """Return the dtype with a code of NumPy such as ``<f4``, or with a name.

    Raises:
        FileFormatError: If there is none, or it is that of Python objects.
    """
    if is_full_name(code):
        return Dtype(code, bits_of_name(code) or 0)
    plain = code[1:] if code[:1] in tuple("<>|=") else code
    if plain == "O":
        raise FileFormatError("an array of Python objects: save it with a numeric dtype")
    if other := _OTHER.fullmatch(plain):
        return Dtype(None, {"S": 8, "U": 32}[other[1]] * int(other[2]) if other[1] else 64)
    # NumPy stores bfloat16 and the like as V2: bytes without a type.
    name = plain if re.fullmatch(r"V\d{1,9}", plain, re.ASCII) else _NAMES.get(plain)
    if name is None:
        raise FileFormatError(
            printable(f"the dtype {code!r} is not known: save it with a dtype of numpy or ml_dtypes")
        )
    return Dtype(name, 8 * int(plain[1:]))


def element_dtype(code: str) -> np.dtype[Any]:
    """Return NumPy's dtype of elements with a code of NumPy, or with a name.

    Raises:
        FileFormatError: If NumPy has none on this machine.
    """
    try:
        return named_dtype(code) if is_full_name(code) else np.dtype(code)
    except TypeError as error:
        raise FileFormatError(printable(f"NumPy has no dtype {code!r} on this machine")) from error


_MAX_NPY_HEADER = 2**12
"""Maximum size of the header of an array in an npz file."""

_SAFETENSORS_DTYPES = {
    "BOOL": ("bool", 8),
    "U8": ("uint8", 8),
    "U16": ("uint16", 16),
    "U32": ("uint32", 32),
    "U64": ("uint64", 64),
    "I8": ("int8", 8),
    "I16": ("int16", 16),
    "I32": ("int32", 32),
    "I64": ("int64", 64),
    "BF16": ("bfloat16", 16),
    "F16": ("float16", 16),
    "F32": ("float32", 32),
    "F64": ("float64", 64),
    "C64": ("complex64", 64),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
    "F6_E2M3": ("float6_e2m3fn", 6),
    "F6_E3M2": ("float6_e3m2fn", 6),
    "F4": ("float4_e2m1fn", 4),
}
"""Name and bits of each dtype: older versions of ml_dtypes lack some."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class _Found(NamedTuple):
    """An array in a safetensors file."""

    name: str
    tensor: _Tensor
    path: Path
    offset: int
    """Place of its first byte in the file."""

    def open(self) -> Elements:
        """Open its elements."""
        dtype, bits = _SAFETENSORS_DTYPES[self.tensor.dtype]
        return RowMajor(
            FileBytes(open_regular(self.path), self.offset), self.tensor.shape, element_dtype(dtype), bits
        )


def keys_of_names(names: Iterable[str], budget: Budget) -> dict[str, tuple[str, ...]]:
    """Return the keys of each name in a file of named arrays.

    Names join the keys of a tree with ``/``. If no name has one, they join them with ``.``, as in PyTorch.

    Raises:
        FileFormatError: If the keys exceed the budget.

    >>> keys_of_names(["model.layers.0.w"], Budget())
    {'model.layers.0.w': ('model', 'layers', '0', 'w')}
    """
    names = tuple(names)
    separator = "/" if any("/" in name for name in names) else "."
    budget.spend("values", sum(name.count(separator) for name in names))
    return {name: tuple(name.split(separator)) for name in names}


def is_safetensors(head: bytes, size: int) -> bool:
    """Return whether a file may be a safetensors file: it begins with the length of its header."""
    return head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= size - 8


def safetensors_tree(path: Path, budget: Budget) -> StoredTree:
    """Return the arrays in a safetensors file.

    Raises:
        FileFormatError: If it is not valid.
        OSError: If it cannot be read.
    """
    return _safetensors_tree(_tensors(path, None, budget), budget)


def indexed_tree(path: Path, weight_map: Any, budget: Budget, progress: Progress | None = None) -> StoredTree:
    """Return the arrays in the shards that an index lists. They are in the folder of the index.

    Args:
        path: Path of the index.
        weight_map: Name of the shard of each array.
        budget: What the files may take.
        progress: Function that shows how many shards were read.

    Raises:
        FileFormatError: If the index or a shard is not valid, or a shard is missing.
    """
    shards: dict[str, list[str]] = defaultdict(list)
    if not isinstance(weight_map, dict):
        raise FileFormatError("not an index of safetensors: 'weight_map' is not an object")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or os.path.basename(shard) != shard or shard in ("", ".", ".."):
            raise FileFormatError(
                printable(
                    f"the shard of {name!r} must be the name of a file next to the index, got {shard!r}"
                )
            )
        shards[shard].append(name)
    found: list[_Found] = []
    for number, (shard, names) in enumerate(shards.items()):
        if progress:
            progress(number, len(shards))
        try:
            found += _tensors(path.with_name(shard), names, budget)
        except FileNotFoundError as error:
            raise FileFormatError(
                f"the shard {printable(shard)} is missing in the folder of the index"
            ) from error
        except OSError as error:
            raise FileFormatError(f"the shard {printable(shard)}: {error.strerror}") from error
        except FileFormatError as error:
            raise FileFormatError(f"the shard {printable(shard)}: {error}") from error.__cause__
    order = {name: place for place, name in enumerate(weight_map)}
    return _safetensors_tree(sorted(found, key=lambda entry: order[entry.name]), budget)


def _safetensors_tree(found: Sequence[_Found], budget: Budget) -> StoredTree:
    keys = keys_of_names((one.name for one in found), budget)
    leaves = []
    for one in found:
        dtype, bits = _SAFETENSORS_DTYPES[one.tensor.dtype]
        leaves.append(
            StoredLeaf(
                path=path_text(keys[one.name]),
                shape=one.tensor.shape,
                dtype=dtype,
                bits=bits,
                open_elements=one.open,
            )
        )
    return StoredTree(type_name="safetensors", leaves=leaves)


def _tensors(path: Path, names: Sequence[str] | None, budget: Budget) -> list[_Found]:
    """Return the arrays in a safetensors file, or the given ones in it."""
    import msgspec

    data, size = _header(path, budget)
    length = len(data)
    with errors_about("not a valid safetensors file"):
        header = decoded(data, dict[str, msgspec.Raw])
    header.pop("__metadata__", None)
    budget.spend("arrays", len(header))
    if names is not None and (missing := set(names).difference(header)):
        raise FileFormatError(printable(f"has no array {min(missing)!r}, which the index lists"))
    tensors = {}
    for name, text in header.items():
        with errors_about(name):
            tensors[name] = decoded(text, _Tensor)
    place = 0
    for name, tensor in sorted(tensors.items(), key=lambda entry: entry[1].data_offsets):
        if tensor.dtype not in _SAFETENSORS_DTYPES:
            raise FileFormatError(printable(f"{name}: the dtype {tensor.dtype} is not known"))
        start, end = tensor.data_offsets
        bits = math.prod(tensor.shape) * _SAFETENSORS_DTYPES[tensor.dtype][1]
        if start != place or bits != 8 * (end - start):
            shown = f"{name}: {tensor.dtype}{list(tensor.shape)}"
            raise FileFormatError(printable(f"{shown} cannot be in the bytes {start} to {end} of {size}"))
        place = end
    if place != size:
        raise FileFormatError(f"not a valid safetensors file: the arrays take {place:,} of {size:,} bytes")
    return [
        _Found(name, tensors[name], path, 8 + length + tensors[name].data_offsets[0])
        for name in (sorted(tensors) if names is None else names)
    ]


def _header(path: Path, budget: Budget) -> tuple[bytes, int]:
    """Return the header of a safetensors file, and the number of bytes after it."""
    with open_regular(path) as file:
        head, size = file.read(8), size_of(file)
        if len(head) < 8:
            raise FileFormatError(f"not a safetensors file: it has only {len(head)} bytes")
        length = int.from_bytes(head, "little")
        if length > size - 8:
            raise FileFormatError(
                f"not a valid safetensors file: the header would take {length:,} of {size:,} bytes"
            )
        budget.spend("bytes", length)
        return file.read(length), size - 8 - length


def npz_tree(path: Path, budget: Budget, progress: Progress | None = None) -> StoredTree:
    """Return the arrays in an npz file. Arrays of strings and dates count as other entries.

    Raises:
        FileFormatError: If it is not valid, or has an array of records or objects.
        OSError: If it cannot be read.
    """
    import zipfile

    with (
        _errors_of_zip(),
        open_regular(path) as file,
        zipfile.ZipFile(_BoundedReads(file, budget)) as archive,
    ):
        entries = archive.infolist()
        budget.spend("arrays", len(entries))
        arrays = [entry for entry in entries if entry.filename.endswith(".npy")]
        found = list(_npz_headers(archive, arrays, progress))
    keys = keys_of_names((name for name, header, _ in found if header.dtype.name), budget)
    opened = contextlib.ExitStack()

    @functools.cache
    def reopened() -> zipfile.ZipFile:
        return opened.enter_context(zipfile.ZipFile(opened.enter_context(open_regular(path))))

    def open_elements(entry: zipfile.ZipInfo, header: Header) -> Elements:
        with _errors_of_zip():
            data = _EntryBytes(
                reopened().open(entry), header.nbytes, 0 if entry.compress_type == zipfile.ZIP_STORED else 2
            )
        return RowMajor(data, header.shape, element_dtype(header.code), header.dtype.bits, header.is_fortran)

    leaves = [
        StoredLeaf(
            path=path_text(keys[name]),
            shape=header.shape,
            dtype=header.dtype.name,
            bits=header.dtype.bits,
            open_elements=functools.partial(open_elements, entry, header),
        )
        for name, header, entry in found
        if header.dtype.name
    ]
    others = len(entries) - len(leaves)
    return StoredTree(type_name="npz", leaves=leaves, others=others, close=opened.close)


@contextlib.contextmanager
def _errors_of_zip() -> Iterator[None]:
    """Raise FileFormatError for the errors of a file that is not a valid archive."""
    import zipfile
    import zlib

    try:
        yield
    except FileFormatError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise FileFormatError(f"not a valid npz file: {printable(str(error))}") from error


class _EntryBytes(FileBytes):
    """Bytes of an entry of a zip file."""

    def read_at(self, start: int, count: int) -> bytes:
        """Return a range of the bytes."""
        with _errors_of_zip():
            return super().read_at(start, count)


def is_npy(head: bytes) -> bool:
    """Return whether a file begins as an npy file."""
    return head.startswith(_MAGIC)


def npy_tree(path: Path) -> StoredTree:
    """Return the array in an npy file, a tree of one leaf.

    Raises:
        FileFormatError: If it is not valid, or has text, dates, records or objects.
        OSError: If it cannot be read.
    """
    with open_regular(path) as file:
        header, size = npy_header(file.read(_MAX_NPY_HEADER)), size_of(file)
    if header.dtype.name is None:
        raise FileFormatError("not an array of numbers: save it with a numeric dtype")
    if header.end > size:
        raise FileFormatError(f"its header claims {header.end:,} bytes, but it has {size:,}")

    def open_elements() -> Elements:
        data = FileBytes(open_regular(path), header.nbytes)
        return RowMajor(data, header.shape, element_dtype(header.code), header.dtype.bits, header.is_fortran)

    leaf = StoredLeaf(
        path="",
        shape=header.shape,
        dtype=header.dtype.name,
        bits=header.dtype.bits,
        open_elements=open_elements,
    )
    return StoredTree(type_name="npy", leaves=[leaf])


class _BoundedReads:
    """An open file whose reads are taken from a budget: the directory of an archive can claim any size."""

    def __init__(self, file: BinaryIO, budget: Budget) -> None:
        self._file, self._budget, self._size = file, budget, size_of(file)
        self.seek, self.tell = file.seek, file.tell

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        rest = max(self._size - self.tell(), 0)
        size = rest if size < 0 else min(size, rest)
        self._budget.spend("bytes", size)
        return self._file.read(size)


def _npz_headers(
    archive: Any, entries: Sequence[Any], progress: Progress | None
) -> Iterator[tuple[str, Header, Any]]:
    """Yield name, header and entry of each array in an archive."""
    import zipfile

    for number, entry in enumerate(entries):
        if progress:
            progress(number, len(entries))
        name = entry.filename.removesuffix(".npy")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileFormatError(f"{printable(name)}: a compression that numpy does not write")
        with archive.open(entry) as file:
            data = file.read(_MAX_NPY_HEADER)
        with errors_about(name):
            header = npy_header(data)
        if header.end > entry.file_size:
            raise FileFormatError(
                f"{printable(name)}: its header claims {header.end:,} bytes, but it has {entry.file_size:,}"
            )
        yield name, header, entry
