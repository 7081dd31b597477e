"""Reports as JSON, and files that are complete or absent."""

from __future__ import annotations

import contextlib
import errno
import inspect
import json
import math
import os
import secrets
from pathlib import Path
from typing import Any, BinaryIO, get_args

import numpy as np

from ..errors import ReportFormatError, UnsupportedValueError, require
from ..text import printable
from . import Report
from .consistency import contradictions

_RANDOM_NBYTES = 8


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically: to a temporary file in the same folder, which is then renamed.

    Symbolic links are followed. Files that are already open (such as ``/dev/stdout``), devices and pipes are
    written to directly.

    Raises:
        OSError: If the file cannot be written; ``filename`` is this path.
    """
    try:
        place = _written_as_it_is(path)
        if place is not None:
            with open(place, "wb", closefd=isinstance(place, Path)) as file:
                file.write(data)
            return
        target = Path(os.path.realpath(path))
        _remove_abandoned(target.parent)
        part = _new_part(target.parent)
        unfinished = Path(part.name)
        try:
            with part:
                part.write(data)
                part.flush()
                if target.exists():
                    unfinished.chmod(target.stat().st_mode & 0o777)
                unfinished.replace(target)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _new_part(folder: Path) -> BinaryIO:
    """Return a new temporary file, locked while it is open so that other processes leave it alone."""
    while True:
        file = open(folder / f".jai-{secrets.token_hex(_RANDOM_NBYTES)}.part", "xb")  # noqa: SIM115
        # Without locks in the file system, other processes cannot lock it either and leave it alone.
        with contextlib.suppress(ImportError, OSError):
            _lock(file)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process removed it as abandoned before it was locked


def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary files of killed processes, which are no longer locked."""
    for path in folder.glob(f".jai-{'[0-9a-f]' * 2 * _RANDOM_NBYTES}.part"):
        # It may be renamed by now, or belong to another user.
        with contextlib.suppress(ImportError, OSError), open(path, "r+b") as file:
            _lock(file, wait=False)
            path.unlink()


def _lock(file: BinaryIO, *, wait: bool = True) -> None:
    """Lock a file until it is closed; if another process has locked it, wait or raise BlockingIOError."""
    import fcntl

    fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def require_place(path: Path) -> None:
    """Check in advance that ``write_whole`` can write to a path.

    Raises:
        OSError: If the path is a folder, or its folder is missing or not writable.
    """
    folder = os.path.dirname(os.path.realpath(path))
    if path.is_dir():
        code = errno.EISDIR
    elif _written_as_it_is(path) is not None or os.access(folder, os.W_OK):
        return
    else:
        code = errno.EACCES if os.path.isdir(folder) else errno.ENOENT
    raise OSError(code, os.strerror(code), str(path))


def _written_as_it_is(path: Path) -> int | Path | None:
    """Return the descriptor, device or pipe behind a path, None for a file to replace.

    Renaming a new file onto one that is open, such as a log that a shell appends to, would lose its content.
    """
    if not os.path.exists(path):
        return None
    name = os.path.abspath(path)
    while True:
        folder, last = os.path.split(name)
        if os.path.realpath(folder) == os.path.realpath("/dev/fd") and last.isdecimal():
            return int(last)
        if not os.path.islink(name):
            return None if path.is_file() else path
        name = os.path.join(folder, os.readlink(name))


_NESTED = "nested as (*shard_counts, partial_sums * replicas)"
SCHEMA_VERSION = 1
"""Version of the JSON form, raised when a field is removed or changes its meaning."""

_REPORTS: dict[str, type] = {report.__name__: report for report in get_args(Report)}


def to_json(report: Report) -> str:
    """Return a report as one line of JSON.

    The keys of the object are ``report`` (the name of the class), ``schema_version``, and the fields of the
    class. Tuples become arrays, and device ids become nested arrays. ``json_schema()`` returns the schema.

    Raises:
        UnsupportedValueError: (a ValueError) If ``report`` is not a report.

    >>> from jax_array_info_core import from_json, planned_mesh_report
    >>> from_json(to_json(planned_mesh_report({"data": 4}))) == planned_mesh_report({"data": 4})
    True
    """
    import msgspec

    if type(report).__name__ not in _REPORTS:
        raise UnsupportedValueError(f"expected a report, got {type(report)}")
    fields = msgspec.to_builtins(report, enc_hook=_encode)
    return json.dumps({"report": type(report).__name__, "schema_version": SCHEMA_VERSION, **fields})


def from_json(text: str) -> Report:
    """Return a report that was written by ``to_json``.

    Unknown fields, such as those added by a later version, are ignored.

    Args:
        text: JSON of one report.

    Raises:
        ReportFormatError: (a ValueError) If the text is not a report in JSON, a number is out of its bounds,
            or a field refers to an entry of another that does not exist.
        UnsupportedValueError: (a ValueError) If ``text`` is not text.
    """
    import msgspec

    require(text, (str, bytes, bytearray), "the JSON of a report as text, which to_json returns")
    try:
        fields = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        is_long = "set_int_max_str_digits" in str(
            error
        )  # Python's advice for integers of thousands of digits
        problem = "an integer is out of bounds" if is_long else error
        raise ReportFormatError(f"expected the JSON of a report: {problem}") from error
    name = fields.get("report") if isinstance(fields, dict) else None
    if not isinstance(name, str) or name not in _REPORTS:
        raise ReportFormatError(
            f"the field 'report' must name one of {', '.join(sorted(_REPORTS))}, got {printable(repr(name))}"
        )
    version = fields.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ReportFormatError(
            f"schema_version {printable(repr(version))} cannot be read, only {SCHEMA_VERSION}: "
            "use the version of jax-array-info that wrote the file, or a newer one"
        )
    try:
        report: Report = msgspec.convert(fields, _REPORTS[name], dec_hook=_decode)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise ReportFormatError(f"not a valid {name}: {printable(str(error))}") from error
    for problem in contradictions(report):
        raise ReportFormatError(f"not a valid {name}: {printable(problem)}")
    return report


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the output of ``to_json``, as a dict."""
    import msgspec

    names = sorted(_REPORTS)
    _, components = msgspec.json.schema_components(
        [_REPORTS[name] for name in names],
        schema_hook=_array_schema,
        ref_template="#/$defs/{name}",
    )
    for component in components.values():
        # Before Python 3.13, a docstring keeps the indentation of its source.
        component["description"] = inspect.cleandoc(component.get("description", ""))
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A report of jax-array-info",
        "oneOf": [
            {
                "$ref": f"#/$defs/{name}",
                "properties": {"report": {"const": name}, "schema_version": {"const": SCHEMA_VERSION}},
                "required": ["report", "schema_version"],
            }
            for name in names
        ],
        "$defs": components,
    }
    plain: dict[str, Any] = json.loads(json.dumps(schema))  # msgspec's defaults are tuples
    return plain


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NotImplementedError(f"a report cannot hold {type(value)}")


def _decode(field_type: Any, value: Any) -> Any:
    # Without an object dtype, NumPy pads all texts to the length of the longest.
    ids = np.array(value, object)
    if not all(type(number) is int and abs(number) < 2**63 for number in ids.flat):
        raise ValueError(f"device ids must be integers, {_NESTED}")
    return ids.astype(np.int64)


def _array_schema(field_type: Any) -> dict[str, Any]:
    return {
        "type": "array",
        "description": f"Device ids, {_NESTED}.",
    }
