"""Reports as JSON, and checks of what is read."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from ...base.errors import ReportFormatError, UnsupportedValueError, require
from ...base.quantities import format_number
from ...base.reading_lock import prepared
from ...base.text import printable
from ...geometry.layouts.layout import MAX_DEVICES
from . import Report
from .changes import TreeDiff
from .hosts import MAX_PROCESSES, HostSummary
from .record import LINES
from .tree import TreeMesh, TreeReport

_NESTED = "nested as (*shard_counts, partial_sums * replicas)"
SCHEMA_VERSION = 3
"""Version of the JSON form. It rises by one for each release that removes or renames a field, or changes its
meaning: a file of another version is refused. A new field has a default and does not raise it."""

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
    if type(report).__name__ not in _REPORTS:
        raise UnsupportedValueError(f"expected a report, got {type(report)}")
    return _written(report)


def from_json(text: str) -> Report:
    """Return a report that was written by ``to_json``, ``save_tree`` or ``save_report``.

    Unknown fields, such as those added by a later version, are ignored.

    Args:
        text: JSON of one report, also after the line with the summary of a process.

    Raises:
        ReportFormatError: (a ValueError) If the text is not a report in JSON, a number is out of its bounds,
            or a field refers to an entry of another that does not exist.
        UnsupportedValueError: (a ValueError) If ``text`` is not text.
    """
    require(text, (str, bytes, bytearray), "the JSON of a report as text, which to_json returns")
    report: Report = _read(text, _REPORTS)
    return report


_SUMMARY = '{"report": "HostSummary"'
"""Start of the line that ``save_report`` writes before a report."""


def is_summary(line: bytes) -> bool:
    """Return whether a line is the summary of a process, as far as its start tells."""
    return line.startswith(_SUMMARY.encode())


def summary_to_json(summary: HostSummary) -> str:
    """Return the summary of a process as one line of JSON, as ``to_json`` does."""
    return _written(summary)


def summary_from_json(text: str | bytes) -> HostSummary:
    """Return a summary that was written by ``summary_to_json``.

    Raises:
        ReportFormatError: (a ValueError) If the text is not such a summary.
    """
    summary: HostSummary = _read(text, {HostSummary.__name__: HostSummary})
    if summary.process >= summary.process_count or summary.process_count > MAX_PROCESSES:
        numbers = f"{format_number(summary.process)} of {format_number(summary.process_count)}"
        raise ReportFormatError(f"not a valid HostSummary: process {numbers}")
    return summary


def _written(value: Any) -> str:
    import msgspec

    fields = msgspec.to_builtins(value, enc_hook=_encode)
    return json.dumps({"report": type(value).__name__, "schema_version": SCHEMA_VERSION, **fields})


def _read(text: str | bytes, kinds: Mapping[str, type]) -> Any:
    """Return JSON as an object of one of some classes, by their names, after all checks.

    The summary before a report is skipped.
    """
    import msgspec

    try:
        if not isinstance(text, str):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        if text.startswith(_SUMMARY) and HostSummary.__name__ not in kinds:
            text = text.partition("\n")[2]
        fields = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        # Python's advice for integers of thousands of digits.
        problem = "an integer is out of bounds" if "set_int_max_str_digits" in str(error) else error
        raise ReportFormatError(f"expected the JSON of a report: {problem}") from error
    name = fields.get("report") if isinstance(fields, dict) else None
    if not isinstance(name, str) or name not in kinds:
        raise ReportFormatError(
            f"the field 'report' must name one of {', '.join(sorted(kinds))}, got {printable(repr(name))}"
        )
    version = fields.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ReportFormatError(
            f"schema_version {printable(repr(version))} cannot be read, only {SCHEMA_VERSION}: "
            "use the version of jax-array-info that wrote the file"
        )
    try:
        report: Any = msgspec.convert(fields, prepared(kinds[name]), dec_hook=_decode)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise ReportFormatError(f"not a valid {name}: {printable(str(error))}") from error
    # What a file may ask for is less than what a tree on an abstract mesh may have.
    most = max((mesh.device_count for mesh in _meshes(report)), default=0)
    if most > MAX_DEVICES:
        raise ReportFormatError(
            f"not a valid {name}: {format_number(most)} devices exceed the limit of {MAX_DEVICES}"
        )
    return report


def _meshes(report: Any) -> tuple[TreeMesh, ...]:
    """Return the meshes and sets of devices to which the leaves of a report refer."""
    if isinstance(report, TreeDiff):
        return report.meshes_before + report.meshes_after
    return report.meshes if isinstance(report, TreeReport) else ()


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the output of ``to_json``, as a dict.

    Its definitions also have the lines of a memory record: ``RecordSample`` is that of a line whose field
    ``line`` is ``sample``.
    """
    import msgspec

    names = sorted(_REPORTS)
    _, components = msgspec.json.schema_components(
        [*(_REPORTS[name] for name in names), *LINES.values()],
        schema_hook=_array_schema,
        ref_template="#/$defs/{name}",
    )
    for component in components.values():
        # Before Python 3.13, a docstring keeps the indentation of its source.
        component["description"] = inspect.cleandoc(component.get("description", ""))
        for field in component.get("properties", {}).values():
            if field.get("default") == {}:  # as msgspec writes it from some version on
                del field["default"]
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
