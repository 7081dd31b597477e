"""JSON form of reports, with the names of the dataclass fields as keys."""

from __future__ import annotations

import inspect
import json
from typing import Any, get_args

import numpy as np

from ..errors import ReportFormatError
from ..quantities import MAX_DIGITS
from ..text import printable
from . import Report
from .consistency import contradictions

_NESTED = "nested as (*shard_counts, partial_sums * replicas)"
SCHEMA_VERSION = 1
"""Version of the JSON form, raised when a field is removed or changes its meaning."""

_REPORTS: dict[str, type] = {report.__name__: report for report in get_args(Report)}


def to_json(report: Report) -> str:
    """Return a report as one line of JSON.

    The keys of the object are ``report`` (the name of the class), ``schema_version``, and the fields of the
    class. Tuples become arrays, and device ids become nested arrays. ``json_schema()`` returns the schema.

    >>> from jax_array_info_core import from_json, mesh_plan
    >>> from_json(to_json(mesh_plan({"data": 4}))) == mesh_plan({"data": 4})
    True
    """
    import msgspec

    fields = msgspec.to_builtins(report, enc_hook=_encode)
    return json.dumps({"report": type(report).__name__, "schema_version": SCHEMA_VERSION, **fields})


def from_json(text: str) -> Report:
    """Return a report that was written by ``to_json``.

    Unknown fields, such as those added by a later version, are ignored.

    Args:
        text: JSON of one report.

    Raises:
        ReportFormatError: (a ValueError) If the text is not a report in JSON, its fields contradict each
            other, or a number is longer than 300 digits.
    """
    import msgspec

    try:
        fields = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_float)
    except (ValueError, RecursionError) as error:
        raise ReportFormatError(f"expected the JSON of a report: {error}") from error
    name = fields.get("report") if isinstance(fields, dict) else None
    if not isinstance(name, str) or name not in _REPORTS:
        raise ReportFormatError(
            f"the field 'report' must name one of {', '.join(sorted(_REPORTS))}, got {printable(repr(name))}"
        )
    version = fields.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ReportFormatError(
            f"schema_version {printable(repr(version))} cannot be read: only {SCHEMA_VERSION} is supported"
        )
    try:
        report: Report = msgspec.convert(fields, _REPORTS[name], dec_hook=_decode)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise ReportFormatError(f"not a valid {name}: {printable(str(error))}") from error
    for problem in contradictions(report):
        raise ReportFormatError(f"not a valid {name}: {printable(problem)}")
    return report


def _int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits, more than {MAX_DIGITS}")
    return int(digits)


def _float(text: str) -> float:
    number = float(text)
    if not abs(number) < float(10**MAX_DIGITS):  # nor is NaN
        raise ValueError(f"{text[:MAX_DIGITS]} is not a number below 1e{MAX_DIGITS}")
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
