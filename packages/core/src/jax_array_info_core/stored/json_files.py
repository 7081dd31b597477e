"""JSON files of a bounded size."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from ..errors import FileFormatError
from ..quantities import format_bytes
from ..text import printable

_T = TypeVar("_T")

_MAX_MEMORY = 850 * 2**20
"""Maximum estimate of the memory that a parsed file takes."""


def require_small(data: bytes, *, nbytes_per_item: int = 100) -> None:
    """Raise FileFormatError if the parsed JSON would take too much memory.

    Args:
        data: The JSON.
        nbytes_per_item: Size of an item of a dict, with its key.
    """
    # The other numbers are the sizes of a dict, a list, and a short string in a list.
    width = 3 if data.isascii() else 9
    objects = 200 * data.count(b"{") + 100 * data.count(b"[") + 45 * data.count(b",")
    memory = width * len(data) + objects + nbytes_per_item * data.count(b":")
    if memory > _MAX_MEMORY:
        raise FileFormatError(f"{format_bytes(len(data))} of JSON, too much to read")


def decoded(data: bytes | str, type_: type[_T]) -> _T:
    """Return JSON as a value of a type.

    Raises:
        FileFormatError: If it is not valid.
    """
    import msgspec

    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(printable(str(error))) from error


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON file.

    Raises:
        FileFormatError: If it is not valid, has the same key twice, or is too large.
    """
    require_small(data, nbytes_per_item=180)  # the hook gets a tuple for each
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_object)
    except FileFormatError:
        raise
    except UnicodeDecodeError as error:
        raise FileFormatError(f"not UTF-8 text: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise FileFormatError("not valid JSON: nested too deeply") from error
    except ValueError as error:
        raise FileFormatError(f"not valid JSON: {printable(str(error))}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise FileFormatError(f"the key {printable(repr(key))} occurs twice")
            seen.add(key)
    return found
