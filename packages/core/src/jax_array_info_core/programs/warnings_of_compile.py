"""XLA's rematerialization warnings of one compilation."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator

from ..compat.fresh_compile import own_compilations, prints_warnings
from ..hlo.dataflow import Dataflow, Value
from ..hlo.module import Frame, Module
from ..hlo.warnings import REMATERIALIZATION, RematerializationWarning, warnings_in
from ..layouts.spec import MeshAxes
from ..origins.origins import innermost
from ..reports.origin import Origin
from ..reports.program import Known, Rematerialization
from .rematerializations import ranked, rematerialization
from .stderr_relay import taken_from_stderr

_PHRASE = REMATERIALIZATION.encode()
# "2026-11-22 17:26:09.160888: E external/…/spmd_partitioner.cc:613] [spmd] …" up to JAX 0.5, and after that,
# with the thread, "W1122 17:26:20.652093   29950 spmd_partitioner.cc:656] [SPMD] …".
_PREFIX = rb"\d{4}-\d\d-\d\d [\d:.]+: [A-Z] \S+\] |[A-Z]\d{4} [\d:.]+ +(\d+) \S+\] "
# Lines that libtpu prints about programs, with its table of the buffers of one that does not fit.
_LIBTPU = re.compile(
    rb"[A-Z]\d{4} [\d:.]+ +\d+ (?:autofdo_agent|tpu_spmd_partitioner|hlo_rematerialization|deepsea_\w+)\.cc:"
    rb"|Memory Space: |Total bytes: \d+ \(|  cumulative_size; |  -{20,}$"
    rb"| +[\d.]+[KMGT]?i?B\( *\d+%\); |  The rest \d+ values are less than "
)
_LINE = re.compile(rb"(?:%b)?\[(?:spmd|SPMD)\] %b" % (_PREFIX, _PHRASE))


class CapturedWarnings:
    """The rematerialization warnings of a with block. They are complete after the block."""

    text: str = ""
    """The lines of the warnings."""

    known: Known = "not captured"
    """Whether the lines are all that there are."""


@contextlib.contextmanager
def captured_warnings(platform: str | None = None) -> Iterator[CapturedWarnings]:
    """Take XLA's rematerialization warnings out of standard error while a program compiles.

    Everything else passes through, including other lines of the same compilation. Blocks in several threads
    run one after the other.

    Args:
        platform: Platform that the program is compiled for; None for JAX's default. For TPUs, XLA does not
            print warnings by default.
    """
    captured = CapturedWarnings()
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

    with taken_from_stderr(start_of_warning) as lines, own_compilations() as compilations:
        yield captured
    if lines is not None:
        captured.text = b"".join(line for line in lines if _PHRASE in line).decode("utf-8", "replace")
        if captured.text or (compilations and prints_warnings(platform)):
            captured.known = "known"
        elif not compilations:
            captured.known = "compiled before"


def rematerializations_of(
    text: str, module: Module, mesh: MeshAxes | None, is_hidden: Callable[[str], bool]
) -> tuple[Rematerialization, ...]:
    """Return the values that XLA replicates and shards again, the most bytes first.

    Args:
        text: The warnings of the compilation, one per line.
        module: The compiled program, whose tables have the source lines.
        mesh: The mesh of the specs.
        is_hidden: A function that returns whether to skip the frames of a file.
    """
    if not text:
        return ()
    sizes = mesh.shape if mesh else None
    dataflow = Dataflow(module)
    return ranked(
        rematerialization(warning, sizes, _origin(warning, module, dataflow, is_hidden))
        for line in text.splitlines()
        for warning in warnings_in(line)
        if isinstance(warning, RematerializationWarning)
    )


def _origin(
    warning: RematerializationWarning,
    module: Module,
    dataflow: Dataflow,
    is_hidden: Callable[[str], bool],
) -> Origin | None:
    """Return the line of the operation; of an argument, the line of its first consumer."""

    def stacks() -> Iterator[tuple[Frame, ...]]:
        yield warning.frames
        if warning.frame_id is not None:
            yield module.stack(warning.frame_id)
        if warning.op_name is not None:
            for parameter in module.parameters():
                if parameter.op_name == warning.op_name:
                    consumers = dataflow.consumers(Value(module.entry, parameter.name))
                    yield from (consumer.frames for consumer in consumers)

    origins = (innermost(frames, is_hidden) for frames in stacks())
    return next((origin for origin in origins if origin is not None), None)
