"""Trees in safetensors files, files of NumPy, and MaxText's dumps."""

from __future__ import annotations

import functools
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...arrays.paths import path_text
from ...base.errors import FileFormatError
from ...base.files import Progress, open_regular, size_of
from ...base.reading_lock import prepared
from ...base.text import printable, unquoted
from ...geometry.layouts.dtypes import bits_of_name, is_full_name
from ...geometry.layouts.spec import Spec
from .reading import (
    Budget,
    StoredLeaf,
    StoredSharding,
    StoredTree,
    decoded,
    errors_about,
)

NPY_MAGIC = b"\x93NUMPY"
_WIDTHS = {1: 2, 2: 4, 3: 4}
"""Bytes of the header's length in each version of the format."""
_LENGTH = rb"(?:0|[1-9]\d{0,18})L?"
_HEADER = re.compile(
    rb"\{\s*'descr':\s*'([^']*)',\s*'fortran_order':\s*(?:True|False),\s*"
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
    width = _WIDTHS.get(data[6], 0) if data[:6] == NPY_MAGIC and data[7:8] == b"\0" else 0
    nbytes = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    header = _HEADER.fullmatch(data, 8 + width, nbytes) if width > 0 and nbytes <= len(data) else None
    if header is None:
        raise FileFormatError(
            "not an array of numpy, or one of records: save plain arrays with numpy.save or numpy.savez"
        )
    shape = tuple(int(number) for number in re.findall(rb"\d+", header[2]))
    return Header(shape, dtype_of_code(header[1].decode("latin-1")), nbytes)


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
    tensors: dict[str, _Tensor] = {}
    for number, (shard, names) in enumerate(shards.items()):
        if progress:
            progress(number, len(shards))
        try:
            with errors_about(f"the shard {shard}"):
                tensors |= _tensors(path.with_name(shard), names, budget)
        except FileNotFoundError as error:
            raise FileFormatError(
                f"the shard {printable(shard)} is missing in the folder of the index"
            ) from error
        except OSError as error:
            raise FileFormatError(f"the shard {printable(shard)}: {error.strerror}") from error
    return _safetensors_tree({name: tensors[name] for name in weight_map}, budget)


def _safetensors_tree(tensors: Mapping[str, _Tensor], budget: Budget) -> StoredTree:
    keys = keys_of_names(tensors, budget)
    leaves = [
        StoredLeaf(path=path_text(keys[name]), shape=tensor.shape, dtype=dtype, bits=bits)
        for name, tensor in tensors.items()
        for dtype, bits in [_SAFETENSORS_DTYPES[tensor.dtype]]
    ]
    return StoredTree(type_name="safetensors", leaves=leaves)


def _tensors(path: Path, names: Sequence[str] | None, budget: Budget) -> dict[str, _Tensor]:
    """Return the arrays in a safetensors file, or the given ones in it."""
    import msgspec

    with open_regular(path) as file:
        head, whole = file.read(8), size_of(file)
        if len(head) < 8:
            raise FileFormatError(f"not a safetensors file: it has only {len(head)} bytes")
        length = int.from_bytes(head, "little")
        if length > whole - 8:
            raise FileFormatError(
                f"not a valid safetensors file: the header would take {length:,} of {whole:,} bytes"
            )
        budget.spend("bytes", length)
        data, size = file.read(length), whole - 8 - length
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
    return {name: tensors[name] for name in (sorted(tensors) if names is None else names)}


def npz_tree(path: Path, budget: Budget, progress: Progress | None = None) -> StoredTree:
    """Return the arrays in an npz file. Arrays of strings and dates count as other entries.

    Raises:
        FileFormatError: If it is not valid, or has an array of records or objects.
        OSError: If it cannot be read.
    """
    import zipfile
    import zlib

    headers = []
    try:
        with open_regular(path) as file, zipfile.ZipFile(_BoundedReads(file, budget)) as archive:
            entries = archive.infolist()
            budget.spend("arrays", len(entries))
            arrays = [entry for entry in entries if entry.filename.endswith(".npy")]
            for number, entry in enumerate(arrays):
                if progress:
                    progress(number, len(arrays))
                name = entry.filename.removesuffix(".npy")
                headers.append((name, _npz_header(archive, entry, name)))
    except FileFormatError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise FileFormatError(f"not a valid npz file: {printable(str(error))}") from error
    keys = keys_of_names((name for name, header in headers if header.dtype.name), budget)
    leaves = [
        StoredLeaf(path=path_text(keys[name]), shape=header.shape, dtype=dtype, bits=header.dtype.bits)
        for name, header in headers
        if (dtype := header.dtype.name)
    ]
    return StoredTree(type_name="npz", leaves=leaves, others=len(entries) - len(leaves))


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

    leaf = StoredLeaf(path="", shape=header.shape, dtype=header.dtype.name, bits=header.dtype.bits)
    return StoredTree(type_name="npy", leaves=[leaf])


class _BoundedReads:
    """An open file whose reads are taken from a budget: the directory of an archive can claim any size."""

    def __init__(self, file: BinaryIO, budget: Budget) -> None:
        self._file, self._budget, self._size = file, budget, size_of(file)
        self.seek, self.tell = file.seek, file.tell

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        remaining = max(self._size - self.tell(), 0)
        size = remaining if size < 0 else min(size, remaining)
        self._budget.spend("bytes", size)
        return self._file.read(size)


def _npz_header(archive: Any, entry: Any, name: str) -> Header:
    """Return the header of an array in an archive."""
    import zipfile

    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FileFormatError(f"{printable(name)}: a compression that numpy does not write")
    with archive.open(entry) as file:
        data = file.read(_MAX_NPY_HEADER)
    with errors_about(name):
        header = npy_header(data)
        if header.end > entry.file_size:
            raise FileFormatError(f"its header claims {header.end:,} bytes, but it has {entry.file_size:,}")
    return header


_KEY = re.compile(
    r"""\.(?P<name>[^/]+)
    | \[(?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")\]
    | \[(?:<flat\ index\ )?(?P<other>[^]/]*?)>?\]
    """,
    re.VERBOSE,
)
"""One key as JAX writes it: of a field, of a dict, or of a sequence."""


@dataclass(frozen=True, slots=True)
class _Mesh:
    axis_names: tuple[str, ...]
    shape: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Leaf:
    partition_spec: tuple[str | tuple[str, ...] | None, ...]
    shape: tuple[int, ...]
    mesh: _Mesh | None = None


def is_maxtext(value: Any) -> bool:
    """Return whether a JSON value is a sharding dump."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(leaf, dict) and "partition_spec" in leaf for leaf in value.values())
    )


def maxtext_tree(dump: dict[str, Any], dtype: str, budget: Budget) -> StoredTree:
    """Return the leaves of a sharding dump.

    The spec of a leaf with a mesh is its PartitionSpec; without one, it names logical axes.

    Args:
        dump: Mesh, spec and shape of each leaf, by its key path.
        dtype: Name of the dtype of all leaves, which the format lacks.
        budget: What the file may take.

    Raises:
        FileFormatError: If a leaf is not valid.
    """
    import msgspec

    meshes: dict[tuple[Any, ...], tuple[tuple[str, int], ...]] = {}
    leaves = []
    budget.spend("arrays", len(dump))
    for text, fields in dump.items():
        try:
            leaf = msgspec.convert(fields, prepared(_Leaf))
        except (msgspec.ValidationError, RecursionError) as error:
            raise FileFormatError(f"{printable(text)}: {printable(str(error))}") from error
        spec = Spec(
            tuple((entry,) if isinstance(entry, str) else entry or () for entry in leaf.partition_spec)
        )
        budget.spend("values", text.count("/") + text.count("\\"))
        sharding = None
        if leaf.mesh is not None:
            key = (leaf.mesh.axis_names, *leaf.mesh.shape.items())
            if key not in meshes:
                meshes[key] = _mesh_axes(text, leaf.mesh)
            sharding = StoredSharding(spec, meshes[key])
        leaves.append(
            StoredLeaf(
                path=path_text(keys_of(text)),
                shape=leaf.shape,
                dtype=dtype,
                sharding=sharding,
                logical=spec if sharding is None else None,
            )
        )
    return StoredTree(type_name="MaxText dump", leaves=leaves)


def _mesh_axes(text: str, mesh: _Mesh) -> tuple[tuple[str, int], ...]:
    names = mesh.axis_names
    if len(set(names)) < len(names) or set(names) != set(mesh.shape):
        axes = ", ".join(map(repr, names))
        raise FileFormatError(
            printable(
                f"{text}: the mesh has the axes {axes}, but sizes of {', '.join(map(repr, mesh.shape))}"
            )
        )
    return tuple((name, mesh.shape[name]) for name in names)


def keys_of(text: str) -> tuple[str, ...]:
    """Return the keys of a path in the notation of MaxText: JAX's text of each key, joined by ``/``.

    Text that is not in this notation is one key up to the next ``/``.

    >>> keys_of(".opt_state/[0]/.mu/['params']/['a/b']")
    ('opt_state', '0', 'mu', 'params', 'a/b')
    """
    keys: list[str] = []
    start = 0
    while text and start <= len(text):
        match = _KEY.match(text, start)
        if match is None or text[match.end() : match.end() + 1] not in ("", "/"):
            end = text.find("/", start)
            end = len(text) if end < 0 else end
            keys.append(text[start:end])
        else:
            end = match.end()
            text_key = match["text"]
            keys.append(match["name"] or match["other"] if text_key is None else unquoted(text_key))
        start = end + 1
    return tuple(keys)
