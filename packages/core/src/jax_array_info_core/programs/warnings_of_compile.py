"""XLA's rematerialization warnings of one compilation."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..compat.compile_events import own_compilations, prints_warnings
from ..compat.stages import text_with_locations
from ..errors import LayoutError, NotationError
from ..hlo.dataflow import Dataflow, Value
from ..hlo.locations import operations
from ..hlo.module import Module
from ..hlo.warnings import REMATERIALIZATION, RematerializationWarning, warnings_in
from ..layouts.dtypes import bits_of_name, packed_nbytes
from ..layouts.spec import MeshAxes, Spec
from ..layouts.xla import parse_xla_sharding, spec_of_xla
from ..layouts.xla_sharding import XlaSharding
from ..origins.origins import UserLines
from ..reports.origin import Origin
from ..reports.program import Known, Rematerialization
from .stderr_of_c import captured_from_c


def rematerialization(
    warning: RematerializationWarning, mesh: Mapping[str, int] | None, origin: Origin | None
) -> Rematerialization:
    """Return the row for a warning.

    Args:
        warning: XLA's warning.
        mesh: Size of each mesh axis by name; None without a mesh.
        origin: Line of the operation.
    """
    shape = warning.shape
    return Rematerialization(
        before=_spec(warning.before, mesh),
        after=_spec(warning.after, mesh),
        before_text=warning.before,
        after_text=warning.after,
        shape=() if shape is None else shape.dims,
        dtype="" if shape is None else shape.dtype,
        op=warning.op_name or (f"%{warning.name}" if warning.name else ""),
        nbytes=_whole_nbytes(warning),
        origin=origin,
    )


def ranked(rows: Iterable[Rematerialization]) -> tuple[Rematerialization, ...]:
    """Return the rows, equal ones merged, the most bytes first.

    Versions of XLA write the same sharding differently: where both specs are known, they are compared.
    """
    counts: dict[Rematerialization, int] = {}
    first: dict[Rematerialization, Rematerialization] = {}
    for row in rows:
        key = replace(row, count=1)
        if row.before is not None and row.after is not None:
            key = replace(key, before_text="", after_text="")
        first.setdefault(key, row)
        counts[key] = counts.get(key, 0) + row.count
    merged = (replace(first[key], count=count) for key, count in counts.items())
    return tuple(sorted(merged, key=lambda row: (row.nbytes is None, -(row.nbytes or 0), -row.count)))


@functools.lru_cache(maxsize=1024)
def _sharding(text: str) -> XlaSharding | None:
    """Return the sharding that a text describes; None if it is not one, such as that of a tuple."""
    try:
        return parse_xla_sharding(text)
    except NotationError:
        return None


def _spec(text: str, mesh: Mapping[str, int] | None) -> Spec | None:
    """Return the spec that is equivalent to a sharding on a mesh."""
    sharding = _sharding(text)
    if sharding is None or mesh is None:
        return None
    try:
        return spec_of_xla(sharding, mesh)
    except LayoutError:
        return None


def _whole_nbytes(warning: RematerializationWarning) -> int | None:
    """Return the bytes of the value with all its shards, which have equal sizes after XLA's padding."""
    sharding = _sharding(warning.before)
    if warning.shape is None or sharding is None or sharding.kind == "unknown":
        return None
    dims = warning.shape.dims
    counts = sharding.counts if sharding.kind == "tiled" else (1,) * len(dims)
    if len(counts) != len(dims):
        return None
    whole = [length * count for length, count in zip(dims, counts, strict=True)]
    return packed_nbytes(whole, bits_of_name(warning.shape.dtype))


_PHRASE = REMATERIALIZATION.encode()
# "2026-11-22 17:26:09.160888: E external/…/spmd_partitioner.cc:613] [spmd] …" up to JAX 0.5, and after that,
# with the thread, "W1122 17:26:20.652093   29950 spmd_partitioner.cc:656] [SPMD] …".
_PREFIX = rb"(?:\d{4}-\d\d-\d\d [\d:.]+: [A-Z] \S*|[A-Z]\d{4} [\d:.]+ +(\d{1,9}) )spmd_partitioner\.cc:\d+\] "
# Lines that libtpu prints about programs, with its table of the buffers of one that does not fit.
_LIBTPU = re.compile(
    rb"[A-Z]\d{4} [\d:.]+ +\d+ (?:autofdo_agent|deepsea_\w+|hlo_rematerialization|net_util"
    rb"|tpu_spmd_partitioner)\.cc:"
    rb"|Memory Space: |Total bytes: \d+ \(|  cumulative_size; |  -{20,}$"
    rb"| +[\d.]+[KMGT]?i?B\( *\d+%\); |  The rest \d+ values are less than "
)
_LINE = re.compile(rb"%b\[(?:spmd|SPMD)\] %b" % (_PREFIX, _PHRASE))


class CapturedWarnings:
    """The rematerialization warnings of one compilation."""

    text: str = ""
    """The lines of the warnings."""

    known: Known = "not captured"
    """Whether the lines are all that there are."""


def captured_warnings(function: Callable[[], None], platform: str | None = None) -> CapturedWarnings:
    """Call a function that compiles, and take XLA's rematerialization warnings out of standard error.

    Everything else passes through, including other lines of the same compilation.

    Args:
        function: The function.
        platform: Platform that the program is compiled for; None for JAX's default. For TPUs, XLA does not
            print warnings by default.
    """
    result = CapturedWarnings()
    thread = threading.get_native_id()
    is_inside_table = False

    def is_of_libtpu(line: bytes) -> bool:
        """Return whether a line is one of libtpu's own, or an empty line after one."""
        nonlocal is_inside_table
        is_inside_table = bool(_LIBTPU.match(line)) or (is_inside_table and not line.strip())
        return is_inside_table

    def start_of_warning(line: bytes) -> int | None:
        """Return where a warning begins, unless another Python thread compiles and XLA names it."""
        if platform == "tpu" and is_of_libtpu(line):
            return 0
        found = _LINE.search(line) if _PHRASE in line else None
        if found is None:
            return None
        if found[1] is not None and int(found[1]) != thread:
            # Some versions compile in a thread of their own.
            others = {other.native_id for other in threading.enumerate()}
            return None if int(found[1]) in others else found.start()
        return found.start()

    with own_compilations() as compilations:
        lines = captured_from_c(function, start_of_warning)
    if lines is not None:
        result.text = b"".join(line for line in lines if _PHRASE in line).decode("utf-8", "replace")
        if result.text or (compilations and prints_warnings(platform)):
            result.known = "known"
        elif not compilations:
            result.known = "compiled before"
    return result


def rematerializations_of(
    text: str,
    module: Module,
    mesh: MeshAxes | None,
    lines: UserLines,
    *,
    lowered: Any = None,
    platform: str = "cpu",
) -> tuple[Rematerialization, ...]:
    """Return the values that XLA replicates and shards again, the most bytes first.

    Args:
        text: The warnings of the compilation, one per line.
        module: The compiled program, whose tables have the source lines.
        mesh: The mesh of the specs.
        lines: The search for the user's line.
        lowered: The lowered program; None if it is not known.
        platform: Platform that the program is compiled for.
    """
    if not text:
        return ()
    sizes = mesh.shape if mesh else None
    places = _Lines(module, lines, lowered, platform)
    return ranked(
        rematerialization(warning, sizes, places.origin(warning))
        for line in text.splitlines()
        for warning in warnings_in(line)
        if isinstance(warning, RematerializationWarning)
    )


@dataclass(frozen=True)
class _Lines:
    """Source lines of the warnings of one program."""

    module: Module
    lines: UserLines
    lowered: Any
    platform: str

    def origin(self, warning: RematerializationWarning) -> Origin | None:
        """Return the line of the operation; of an argument, the line of its first consumer."""
        found = self.lines.origin(warning.frames)
        if self._is_hidden(found) and warning.frame_id is not None:
            found = self._numbered(warning.frame_id, warning.op_name) or found
        if self._is_hidden(found) and warning.op_name is not None:
            found = self._of_parameter(warning.op_name) or found
        return found

    def _is_hidden(self, origin: Origin | None) -> bool:
        return origin is None or self.lines.is_hidden(origin.file)

    def _numbered(self, number: int, name: str | None) -> Origin | None:
        """Return the line of a frame's number, or the only one that an operation of the name has.

        The number is one of the table before XLA optimizes. On TPU, the table of the compiled program is
        another one, with the frames that are left.
        """
        possible = self._possible(name) if name else set()
        found = self.lines.origin(self.module.stacks.of(number)) if self.platform == "cpu" else None
        if found is not None and (not possible or found in possible):
            return found
        return possible.pop() if len(possible) == 1 else None

    def _possible(self, name: str) -> set[Origin | None]:
        """Return the lines of the operations of a name; none for one in a called function."""
        return {
            self.lines.origin((file, line, function) for file, line, _, function in reversed(stack))
            for operation, stack in operations(self._mlir)
            if operation == name
        }

    @functools.cached_property
    def _mlir(self) -> str:
        return text_with_locations(self.lowered)

    def _of_parameter(self, name: str) -> Origin | None:
        """Return the line of the first consumer of an argument."""
        dataflow = Dataflow(self.module)
        consumers = (
            consumer
            for parameter in self.module.parameters()
            if parameter.op_name == name
            for consumer in dataflow.consumers(Value(self.module.entry, parameter.name))
        )
        found = self.lines.nearest(consumers)
        return None if found is None else self.lines.origin(found.frames)
