"""Reports as JSON, and checks of what is read."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import numpy as np

from ..errors import ReportFormatError, UnsupportedValueError, require
from ..layouts.layout import MAX_DEVICES, ShardingLayout
from ..layouts.spec import MeshAxes, Spec, UnevenAxis
from ..quantities import LARGEST, format_number
from ..reading_lock import prepared
from ..text import printable
from . import Report
from .array import ArrayReport, ShardingDescription
from .changes import TreeDiff
from .checks import CheckReport
from .hosts import MAX_PROCESSES, HostSummary
from .mesh import MeshReport
from .program import ProgramReport
from .program_timeline import ProgramTimelineReport
from .record import LINES
from .timeline import TimelineReport
from .tree import TreeMesh, TreeReport, TreeRow

_NESTED = "nested as (*shard_counts, partial_sums * replicas)"
SCHEMA_VERSION = 2
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
        is_long = "set_int_max_str_digits" in str(
            error
        )  # Python's advice for integers of thousands of digits
        problem = "an integer is out of bounds" if is_long else error
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
    for problem in contradictions(report):
        raise ReportFormatError(f"not a valid {name}: {printable(problem)}")
    return report


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


_PLAIN = frozenset({str, int, float, bool, type(None)})


def contradictions(report: Report | HostSummary) -> Iterator[str]:
    """Yield a description of each field that does not fit another one of the report.

    Totals are not added up again, and numbers have their bounds in the types of the fields.
    """
    for part in _parts(report):
        if isinstance(part, TreeReport | CheckReport) and part.avoidable_nbytes > part.fullest_device_nbytes:
            yield "avoidable_nbytes is more than fullest_device_nbytes"
        if isinstance(part, CheckReport) and part.small_shard_nbytes > part.avoidable_nbytes:
            yield "small_shard_nbytes is more than avoidable_nbytes"
        match part:
            case Spec():
                for axis in set(part.unconstrained).difference(range(len(part.axes))):
                    yield f"a spec of {len(part.axes)} entries that leaves axis {format_number(axis)} to XLA"
            case MeshAxes():
                yield from _of_mesh(part)
            case ShardingDescription():
                yield from _of_names("a sharding", part.spec, part.mesh)
            case ShardingLayout():
                owned = [device for _, devices in part.processes for device in devices]
                if owned and not np.isin(part.device_ids, owned).all():
                    yield "a layout with devices that belong to no process"
            case ArrayReport() if part.local_part is not None:
                whole = 0 if part.layout is None else math.prod(part.layout.shape)
                if not 0 <= part.local_part.element_count <= whole:
                    yield "a local part larger than the array"
            case MeshReport() if part.axes.sizes != part.layout.shape:
                yield f"a mesh of sizes {part.axes.sizes} with a layout of shape {part.layout.shape}"
            case MeshReport():
                for noun, owners in (("host", part.hosts), ("slice", part.slices)):
                    owned = [device for _, devices in owners for device in devices]
                    if owners and not np.isin(part.layout.device_ids, owned).all():
                        yield f"a mesh with devices in no {noun}"
            case UnevenAxis():
                if not 0 <= part.axis < len(part.shape) or min(part.count, part.fitting_count) < 1:
                    yield f"an uneven axis {format_number(part.axis)} of shape {part.shape}"
            case TreeMesh():
                yield from _of_tree_mesh(part)
            case TreeRow():
                yield from _of_axes(part)
            case TreeReport():
                yield from _of_paths("leaves", (row.path for row in part.rows))
                yield from _of_meshes(part.rows, part.meshes)
                earlier: set[str] = set()
                for row in part.rows:
                    if row.same_as is not None and row.same_as not in earlier:
                        yield f"{row.path} is the same as {row.same_as!r}, which is not an earlier leaf"
                    earlier.add(row.path)
            case TreeDiff():
                before = [*part.removed, *(change.before for change in part.changed)]
                after = [*part.added, *(change.after for change in part.changed)]
                for rows, meshes in ((before, part.meshes_before), (after, part.meshes_after)):
                    yield from _of_paths("leaves", (row.path for row in rows))
                    yield from _of_meshes(rows, meshes)
            case TimelineReport():
                points = {len(part.times), len(part.steps), len(part.in_use)}
                if len(points | {len(series.nbytes) for series in part.series}) > 1:
                    yield "series with different numbers of points"
                if list(part.times) != sorted(part.times):
                    yield "times that do not ascend"
            case ProgramReport():
                for what, values in (("arguments", part.arguments), ("outputs", part.outputs)):
                    yield from _of_paths(what, (value.path for value in values))
            case ProgramTimelineReport():
                yield from _of_timeline(part)


def _of_timeline(report: ProgramTimelineReport) -> Iterator[str]:
    """Yield the problems of the points of a timeline."""
    if any(after <= before for before, after in itertools.pairwise(report.points)):
        yield "points that are not in the order of the schedule"
    counts = {len(each) for each in (report.operations, report.live_nbytes, report.total_nbytes)}
    if counts.union(len(one.nbytes) for one in report.series) != {len(report.points)}:
        yield f"figures of other than the {len(report.points)} points"
    if report.peak is not None and report.peak >= len(report.points):
        yield f"a peak at point {format_number(report.peak)} of {len(report.points)}"


def _parts(value: Any) -> Iterator[object]:
    """Yield all dataclasses in a value, nested ones first."""
    is_tuple = isinstance(value, tuple)
    if not is_tuple and not dataclasses.is_dataclass(value):
        return
    for entry in value if is_tuple else (getattr(value, field.name) for field in dataclasses.fields(value)):
        if type(entry) not in _PLAIN:
            yield from _parts(entry)
    if not is_tuple:
        yield value


def _of_mesh(mesh: MeshAxes) -> Iterator[str]:
    count = len(mesh.names)
    if len(mesh.sizes) != count or len(mesh.types) not in (0, count):
        yield f"a mesh with {count} names, {len(mesh.sizes)} sizes and {len(mesh.types)} types of axes"
    elif len(set(mesh.names)) < count:
        yield f"a mesh with two axes of the same name: {mesh.names}"
    elif not 1 <= math.prod(mesh.sizes) <= LARGEST:
        yield f"a mesh of sizes {mesh.sizes}"


def _of_names(what: str, spec: Spec | None, mesh: MeshAxes | None) -> Iterator[str]:
    if spec is not None and mesh is not None:
        names = {name for entry in (*spec.axes, spec.unreduced) for name in entry}
        if unknown := sorted(names.difference(mesh.names)):
            yield f"{what}: a spec with {', '.join(map(repr, unknown))} over a mesh with {mesh.names}"


def _of_tree_mesh(mesh: TreeMesh) -> Iterator[str]:
    if mesh.device_count > MAX_DEVICES:
        yield f"{format_number(mesh.device_count)} devices exceed the limit of {MAX_DEVICES}"
    elif mesh.axes is not None and math.prod(mesh.axes.sizes) != mesh.device_count:
        yield f"a mesh of sizes {mesh.axes.sizes} with {mesh.device_count} devices"
    elif mesh.devices is not None and len(set(mesh.devices)) != mesh.device_count:
        yield f"{len(set(mesh.devices))} device ids for {mesh.device_count} devices"


def _of_axes(row: TreeRow) -> Iterator[str]:
    """Yield what does not fit the number of axes of a leaf."""
    shard_shape = row.shape if row.shard_shape is None else row.shard_shape
    spec = row.spec or Spec(())
    used = [name for entry in (*spec.axes, spec.unreduced) for name in entry]
    if list(map(type, shard_shape)) != list(map(type, row.shape)):
        yield f"{row.path}: shards of shape {tuple(shard_shape)} of an array of shape {tuple(row.shape)}"
    elif len(spec.axes) > len(row.shape):
        yield f"{row.path}: a spec with {len(spec.axes)} entries for an array of shape {tuple(row.shape)}"
    elif len(set(used)) < len(used):
        yield f"{row.path}: a spec with the same mesh axis twice"
    elif any(axis.shape != row.shape for axis in row.uneven):
        yield f"{row.path}: an uneven axis of another shape than {tuple(row.shape)}"
    elif not all(0 <= axis < len(row.shape) for axis in row.batched_axes):
        yield f"{row.path}: a batched axis that shape {tuple(row.shape)} does not have"


def _of_meshes(rows: Iterable[TreeRow], meshes: Sequence[TreeMesh]) -> Iterator[str]:
    """Yield what does not fit between leaves and their meshes."""
    for row in rows:
        if row.mesh is None:
            continue
        if not 0 <= row.mesh < len(meshes):
            yield f"{row.path} is on mesh {format_number(row.mesh)} of {len(meshes)} meshes"
            continue
        mesh = meshes[row.mesh]
        yield from _of_names(row.path, row.spec, mesh.axes)
        for number, noun in ((row.replicas, "replicas"), (row.partial_sums, "partial sums")):
            if number > mesh.device_count:
                yield f"{row.path}: {number} {noun} on {mesh.device_count} devices"


def _of_paths(what: str, paths: Iterable[str]) -> Iterator[str]:
    for path, count in Counter(paths).items():
        if count > 1:
            yield f"{count} {what} have the path {path!r}"
