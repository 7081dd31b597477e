"""Regular files and JSON, read within a budget, and the arrays that they describe."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from ...base.errors import FileFormatError
from ...base.files import open_regular, size_of
from ...base.reading_lock import prepared
from ...base.text import printable
from ...facts.reports.array import Leaf
from ...geometry.layouts.spec import Spec


class StoredSharding(NamedTuple):
    """A sharding as a file has it: it need not fit its array, or be possible at all."""

    spec: Spec | None = None
    """Spec of a NamedSharding."""

    mesh: tuple[tuple[str, int], ...] | None = None
    """Name and size of each mesh axis of a NamedSharding; None for a SingleDeviceSharding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLeaf(Leaf):
    """An array in a file."""

    shape: tuple[int, ...]
    """Global shape."""

    sharding: StoredSharding | None = None
    """Sharding of the leaf; None if the file has none."""

    device_ids: tuple[int, ...] | None = None
    """Ids of the devices, in the order of the mesh; None for its positions 0…n−1."""

    logical: Spec | None = None
    """Logical axis names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTree:
    """The arrays in a file or a checkpoint."""

    type_name: str
    """Name of the format."""

    leaves: Sequence[StoredLeaf]
    """The arrays."""

    others: int = 0
    """Number of entries that are not arrays."""

    part: str = ""
    """The part of a checkpoint that was read, such as ``step 10``."""


Unit = Literal["bytes", "values", "axes", "arrays", "devices"]

LIMITS: dict[Unit, int] = {
    "bytes": 10**8,
    "values": 7 * 10**6,
    "axes": 2**16,
    "arrays": 2**18,
    "devices": 2**22,
}
"""Maximum number of bytes that are read, in all files of a checkpoint together, of values that Python makes
of them, of axes of different arrays and their meshes, of arrays, and of devices in all meshes together. They
take at most 1 GiB of memory and 20 s."""


class Budget:
    """What the files of one tree may take. Readers spend from it before they read or build something."""

    def __init__(self, nbytes: int = LIMITS["bytes"]) -> None:
        """Start to read.

        Args:
            nbytes: Maximum number of bytes.
        """
        self._limits = {**LIMITS, "bytes": nbytes}
        self._spent = dict.fromkeys(LIMITS, 0)

    def spend(self, unit: Unit, amount: int) -> None:
        """Take more of something.

        Raises:
            FileFormatError: If it is more than the limit, together with what was taken before.
        """
        self._spent[unit] += amount
        if self._spent[unit] > self._limits[unit]:
            raise FileFormatError(f"{self._spent[unit]:,} {unit} exceed the limit of {self._limits[unit]:,}")


@contextlib.contextmanager
def errors_about(name: str) -> Iterator[None]:
    """Begin the errors in a block with the name of a part of a file."""
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(f"{printable(name)}: {error}") from error.__cause__


def read_whole(path: Path, budget: Budget) -> bytes:
    """Return the content of a regular file.

    Raises:
        FileFormatError: If it is not a regular file, is empty, or exceeds the budget.
        OSError: If it cannot be read.
    """
    with open_regular(path) as file:
        size = size_of(file)
        budget.spend("bytes", size)
        return file.read(size)


_T = TypeVar("_T")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""An escaped half of a character in JSON."""


def decoded(data: bytes | str, type_: type[_T]) -> _T:
    """Return JSON as a value of a type.

    Raises:
        FileFormatError: If it is not valid.
    """
    import msgspec

    try:
        return msgspec.json.decode(data, type=prepared(type_))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(printable(str(error))) from error


def decoded_parts(text: str, type_: type[_T]) -> _T:
    """Return some fields of the JSON of a report, as ``decoded`` does, also with lone surrogates in texts.

    A budget limits the number of values in the text.
    """
    import msgspec

    if _SURROGATE.search(text) is None:
        return decoded(text, type_)
    try:  # msgspec.json refuses escapes of lone surrogates
        return msgspec.convert(json.loads(text), prepared(type_))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FileFormatError(printable(str(error))) from error


def json_text(data: bytes, budget: Budget) -> str:
    """Return the text of a JSON file that is small enough to parse.

    Raises:
        FileFormatError: If it is not UTF-8, or exceeds the budget.
    """
    budget.spend("values", sum(map(data.count, (b",", b":", b"[", b"{"))))
    if not data.isascii():  # in memory, each character then has up to 4 bytes
        budget.spend("bytes", 2 * len(data))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"not UTF-8 text: {error.reason} at byte {error.start}") from error


def parse_json(text: str) -> Any:
    """Return the value of JSON.

    Raises:
        FileFormatError: If it is not valid, or has the same key twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except FileFormatError:
        raise
    except RecursionError as error:
        raise FileFormatError("not valid JSON: nested too deeply") from error
    except ValueError as error:
        raise FileFormatError(f"not valid JSON: {printable(str(error))}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise FileFormatError(f"the key {printable(repr(key))} occurs twice")
            seen.add(key)
    return entries
