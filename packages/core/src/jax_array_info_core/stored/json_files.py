"""JSON files."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from ..errors import FileFormatError
from ..text import printable
from .budget import Budget

_T = TypeVar("_T")


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
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise FileFormatError(f"the key {printable(repr(key))} occurs twice")
            seen.add(key)
    return found
