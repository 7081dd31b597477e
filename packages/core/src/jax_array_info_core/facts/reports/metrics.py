"""Figures of reports by flat, stable names, for experiment trackers and monitoring."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...base.errors import UnsupportedValueError, require
from .devices import DevicesReport
from .growth import GrowthReport
from .hosts import HostsReport
from .live import LiveArrayReport
from .program import ProgramReport
from .timeline import TimelineReport
from .tree import LeafStatistics, TreeReport

_Figure: TypeAlias = "int | float | None"
_Figures: TypeAlias = "Callable[[Any], _Figure | Iterable[tuple[int, _Figure]]]"
_DEVICE = "{device}"
_PREFIX = re.compile(r"([A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*)?")


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a report."""

    report: type
    """Class of the report."""

    name: str
    """Name without the prefix. ``{device}`` in it stands for the id of a device."""

    unit: str
    """Unit: ``bytes``, ``count``, …"""

    description: str
    """Meaning of the figure, and when it is absent."""

    figure: _Figures
    """Function of the report that returns the figure, or ``(device id, figure)`` for each device. None stands
    for an unknown figure."""

    def of(self, report: Any) -> Iterator[tuple[str, _Figure]]:
        """Yield each name with its figure."""
        figures = self.figure(report)
        if figures is None or isinstance(figures, int | float):
            yield self.name, figures
            return
        for device, figure in figures:
            yield self.name.replace(_DEVICE, str(device)), figure


def _table(report: type, *rows: tuple[str, str, str, _Figures]) -> Iterator[Metric]:
    """Yield the metrics of a class of reports from rows of name, unit, description and function."""
    return (Metric(report, *row) for row in rows)


def _of_devices(field: str) -> Callable[[DevicesReport], Iterable[tuple[int, _Figure]]]:
    return lambda report: [(device.id, getattr(device, field)) for device in report.devices]


def _of_memory(field: str) -> Callable[[ProgramReport], _Figure]:
    return lambda report: None if report.memory is None else getattr(report.memory, field)


def _of_backward(field: str) -> Callable[[ProgramReport], _Figure]:
    return lambda report: getattr(_of_memory(field)(report), "nbytes", None)


def _of_work(field: str) -> Callable[[ProgramReport], _Figure]:
    """Return a figure of the share of work, which is unknown if the share is."""
    return lambda report: getattr(report.work, field) if report.work and report.work.share else None


def _if_compiled(figure: Callable[[ProgramReport], _Figure]) -> Callable[[ProgramReport], _Figure]:
    """Return a figure of the compiled program, which is unknown if only the compiler's refusal is known."""
    return lambda report: figure(report) if report.is_known else None


def _if_on_devices(field: str) -> Callable[[TreeReport], _Figure]:
    """Return a total per device, which is unknown if the bytes per device of some leaf are."""
    return lambda report: None if report.unknown_count else getattr(report, field)


def _of_statistics(field: str) -> Callable[[TreeReport], _Figure]:
    def total(report: TreeReport) -> _Figure:
        known: list[LeafStatistics] = [row.statistics for row in report.rows if row.statistics is not None]
        return sum(getattr(statistics, field) for statistics in known) if known else None

    return total


def _bytes_in_use(report: TimelineReport) -> _Figure:
    of_process = (process for process in report.processes if process.process == report.process)
    devices = (device for process in of_process for device in process.devices)
    return next((device.bytes_in_use for device in devices if device.id == report.device), None)


def _if_sampled(figure: Callable[[TimelineReport], _Figure]) -> Callable[[TimelineReport], _Figure]:
    return lambda report: figure(report) if report.times else None


METRICS = (
    *_table(
        DevicesReport,
        ("bytes_in_use/device_{device}", "bytes", "bytes allocated now", _of_devices("bytes_in_use")),
        (
            "peak_bytes_in_use/device_{device}",
            "bytes",
            "most bytes allocated at any time so far",
            _of_devices("peak_bytes_in_use"),
        ),
        (
            "bytes_limit/device_{device}",
            "bytes",
            "most bytes that can be allocated",
            _of_devices("bytes_limit"),
        ),
        (
            "array_bytes/device_{device}",
            "bytes",
            "bytes of live arrays; shared buffers count once",
            _of_devices("array_nbytes"),
        ),
        (
            "unexplained_bytes/device_{device}",
            "bytes",
            "bytes in use that belong to no live array",
            _of_devices("unexplained_nbytes"),
        ),
    ),
    *_table(
        LiveArrayReport,
        ("live_arrays/count", "count", "number of live arrays", lambda report: report.array_count),
        (
            "live_arrays/bytes/device_{device}",
            "bytes",
            "bytes of live arrays on a device",
            lambda report: report.device_nbytes,
        ),
        (
            "live_arrays/host_bytes/device_{device}",
            "bytes",
            "bytes of live arrays in host memory, for devices that have any",
            lambda report: report.host_nbytes,
        ),
    ),
    *_table(
        TreeReport,
        ("tree/leaf_count", "count", "number of leaves", lambda report: len(report.rows)),
        ("tree/element_count", "count", "number of elements of all leaves", lambda report: report.elements),
        (
            "tree/parameter_count",
            "count",
            "number of elements of the parameters; absent if no leaf is known as one",
            lambda report: report.parameters,
        ),
        ("tree/bytes", "bytes", "bytes without replicas", lambda report: report.nbytes),
        (
            "tree/fullest_device_bytes",
            "bytes",
            "bytes on the device with the most; absent if a leaf has no known bytes per device",
            _if_on_devices("fullest_device_nbytes"),
        ),
        (
            "tree/emptiest_device_bytes",
            "bytes",
            "bytes on the device with the fewest; absent as above",
            _if_on_devices("emptiest_device_nbytes"),
        ),
        (
            "tree/avoidable_bytes",
            "bytes",
            "bytes that the fullest device would save without replication; absent as above",
            _if_on_devices("avoidable_nbytes"),
        ),
        (
            "tree/host_bytes",
            "bytes",
            "bytes per device in host memory; absent as above",
            _if_on_devices("host_nbytes"),
        ),
        ("tree/numpy_bytes", "bytes", "bytes of NumPy leaves", lambda report: report.numpy_nbytes),
        (
            "tree/foreign_bytes",
            "bytes",
            "bytes of array-like leaves that are not in device memory",
            lambda report: sum(place.nbytes for place in report.elsewhere) - report.numpy_nbytes,
        ),
        (
            "tree/nan_count",
            "count",
            "number of elements that are NaN; absent without `statistics=True`",
            _of_statistics("nans"),
        ),
        (
            "tree/infinite_count",
            "count",
            "number of infinite elements; absent without `statistics=True`",
            _of_statistics("infinities"),
        ),
    ),
    *_table(
        ProgramReport,
        (
            "program/argument_bytes",
            "bytes",
            "bytes of the arguments per device",
            _of_memory("argument_nbytes"),
        ),
        ("program/output_bytes", "bytes", "bytes of the outputs per device", _of_memory("output_nbytes")),
        (
            "program/alias_bytes",
            "bytes",
            "bytes of outputs that reuse the memory of an argument",
            _of_memory("alias_nbytes"),
        ),
        (
            "program/temporary_bytes",
            "bytes",
            "bytes of temporary values per device",
            _of_memory("temporary_nbytes"),
        ),
        ("program/code_bytes", "bytes", "bytes of the program's code", _of_memory("code_nbytes")),
        (
            "program/needed_bytes",
            "bytes",
            "bytes that the program needs at one time per device",
            _of_memory("needed_nbytes"),
        ),
        (
            "program/available_bytes",
            "bytes",
            "bytes that a device of the topology has; absent without a topology",
            _of_memory("available_nbytes"),
        ),
        (
            "program/saved_bytes",
            "bytes",
            "bytes per device that JAX saves for the backward pass; absent if they are not known",
            _of_backward("saved"),
        ),
        (
            "program/live_at_backward_bytes",
            "bytes",
            "bytes per device of the temporaries that are live when the backward pass begins",
            _of_backward("live_at_backward"),
        ),
        ("program/host_bytes", "bytes", "bytes per device in host memory", _of_memory("host_nbytes")),
        (
            "program/sent_bytes",
            "bytes",
            "bytes that a device sends in one call; absent if those of a collective are unknown",
            lambda report: report.sent_nbytes,
        ),
        (
            "program/collective_count",
            "count",
            "number of collectives in the program",
            _if_compiled(
                lambda report: (
                    None if report.collectives is None else sum(one.count for one in report.collectives)
                )
            ),
        ),
        (
            "program/dot_flops",
            "flops",
            "floating-point operations of dots in one call, on one device; absent if some are not counted",
            _if_compiled(lambda report: report.dot_flops),
        ),
        (
            "program/work_share",
            "share",
            "share of the heavy work that a device does: 1 if it is divided evenly, the number of devices if"
            " each does all; absent if unknown",
            _of_work("share"),
        ),
        (
            "program/repeated_flops",
            "flops",
            "operations of a device beyond its share, in one call; absent as above",
            _of_work("repeated_flops"),
        ),
        (
            "program/finding_count",
            "count",
            "number of findings",
            lambda report: None if report.findings is None else len(report.findings),
        ),
    ),
    *_table(
        HostsReport,
        (
            "hosts/process_count",
            "count",
            "number of processes of the job",
            lambda report: report.process_count,
        ),
        (
            "hosts/missing_count",
            "count",
            "number of processes that did not answer",
            lambda report: len(report.missing),
        ),
        (
            "hosts/unread_count",
            "count",
            "number of files or answers that could not be read",
            lambda report: len(report.unread),
        ),
        (
            "hosts/different_count",
            "count",
            "number of processes with other arrays than most",
            lambda report: len(report.differences),
        ),
        (
            "hosts/fullest_bytes",
            "bytes",
            "bytes of the process with the most",
            lambda report: report.fullest_nbytes if report.hosts else None,
        ),
        (
            "hosts/emptiest_bytes",
            "bytes",
            "bytes of the process with the fewest",
            lambda report: report.emptiest_nbytes if report.hosts else None,
        ),
        (
            "hosts/peak_bytes",
            "bytes",
            "most bytes allocated on any device at any time",
            lambda report: max(filter(None, (host.peak_nbytes for host in report.hosts)), default=None),
        ),
    ),
    *_table(
        TimelineReport,
        (
            "timeline/bytes_in_use",
            "bytes",
            "bytes in use in the last sample, on the device of the timeline",
            _if_sampled(_bytes_in_use),
        ),
        (
            "timeline/peak_bytes",
            "bytes",
            "most bytes in use, on the device of the timeline",
            lambda report: None if report.peak is None else report.peak.nbytes,
        ),
        (
            "timeline/growth_bytes_per_minute",
            "bytes per minute",
            "sum of the slopes of the allocation sites that still grow, once there are 30 samples",
            lambda report: (
                math.fsum(trend.nbytes_per_minute for trend in report.growth if not trend.is_over)
                if report.is_growth_known and report.times
                else None
            ),
        ),
        (
            "timeline/out_of_memory_count",
            "count",
            "number of allocations that failed, in any process",
            lambda report: len(report.out_of_memory),
        ),
        (
            "timeline/process_count",
            "count",
            "number of processes of the job",
            lambda report: report.process_count,
        ),
        (
            "timeline/running_count",
            "count",
            "number of processes that run",
            lambda report: sum(process.state == "running" for process in report.processes),
        ),
    ),
    *_table(
        GrowthReport,
        ("growth/step_count", "count", "number of steps since entry", lambda report: report.steps),
        ("growth/array_count", "count", "number of live arrays now", lambda report: report.count),
        (
            "growth/added_array_count",
            "count",
            "change of this number since entry",
            lambda report: report.count - report.count_before,
        ),
        (
            "growth/added_bytes/device_{device}",
            "bytes",
            "change of the bytes of live arrays on a device since entry",
            lambda report: [
                (device, more) for devices, _, more in report.device_growth for device in devices
            ],
        ),
        (
            "growth/growing_count",
            "count",
            "number of allocation sites that still grow",
            lambda report: sum(origin.rose and origin.stopped_at is None for origin in report.origins),
        ),
    ),
)
"""All metrics. A name never changes its meaning: dashboards and alerts refer to it."""


def metrics(report: Any, *, prefix: str = "jax_array_info") -> dict[str, float]:
    """Return the figures of a report by flat names, to pass to an experiment tracker.

    The names and their units are on the page Metrics of the reference and do not change. They have letters,
    digits, underscores and slashes, as clu, TensorBoard, Weights & Biases, MLflow and Prometheus 3 accept.

    Args:
        report: A ``DevicesReport``, ``LiveArrayReport``, ``TreeReport``, ``ProgramReport``,
            ``HostsReport``, ``TimelineReport`` or ``GrowthReport``.
        prefix: First part of each name, followed by a slash; without one for an empty prefix. Tell apart
            several reports of one class with it, such as ``"memory/train_step"``.

    Returns:
        Finite numbers by name, such as ``jax_array_info/bytes_in_use/device_0``. A figure that is unknown,
        such as the bytes in use of a CPU, is absent. The number of names does not depend on the number of
        arrays.

    Raises:
        UnsupportedValueError: If the report is of another class, or the prefix has other characters.

    >>> import jax.numpy as jnp
    >>> from jax_array_info_core import tree_report
    >>> metrics(tree_report({"params": {"w": jnp.zeros((8, 4))}}), prefix="model")["model/tree/bytes"]
    128.0
    """
    kinds = tuple(dict.fromkeys(metric.report for metric in METRICS))
    if not isinstance(report, kinds):
        names = ", ".join(kind.__name__ for kind in kinds)
        raise UnsupportedValueError(f"expected a report with metrics ({names}), got {type(report)}")
    require(prefix, str, "a prefix as a string")
    if _PREFIX.fullmatch(prefix) is None:
        raise UnsupportedValueError(
            "prefix must have letters, digits and underscores, with slashes between its parts, such as"
            f" 'memory/train_step', got {prefix!r}"
        )
    start = f"{prefix}/" if prefix else ""
    figures = (pair for metric in METRICS if isinstance(report, metric.report) for pair in metric.of(report))
    return {f"{start}{name}": number for name, figure in figures if (number := _finite(figure)) is not None}


def _finite(figure: _Figure) -> float | None:
    """Return a figure as a float; None if it is unknown, infinite or NaN, or exceeds the range of floats."""
    try:
        number = None if figure is None else float(figure)
    except OverflowError:
        return None
    return number if number is not None and math.isfinite(number) else None
