"""Recompilations of a program: lines on stderr when they happen, one for all its processes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jax_array_info_core.base.quantities import format_device_ids
from jax_array_info_core.facts.reports.compiles import recompilation_words

from . import NOTE, print_message

if TYPE_CHECKING:
    from jax_array_info_core.facts.reports.compiles import Compilation

_PATIENCE = 2.0
"""Seconds to wait until all processes have compiled the same, before those that have are named."""


def watch(written: int, is_printed: Callable[[], bool], *, is_read: bool) -> Callable[[bool], int]:
    """Watch the program of this process, and return a function that prints the table of the watch, if it may.

    That returns the number of recompilations.

    Args:
        written: Descriptor of the file that the launcher reads, or of stderr.
        is_printed: Whether this process prints its lines: with a rank above 0, it prints nothing.
        is_read: Whether the launcher reads the file, and prints them instead.
    """
    from jax_array_info_core.jobs.timeline.recorder import record_recompilation
    from jax_array_info_core.programs.recompiles.watch import watch_program

    process = os.getpid()

    def tell(compilation: Compilation) -> None:
        if os.getpid() != process:
            return  # a fork of the program
        record_recompilation(compilation)
        place = compilation.origin.place if compilation.origin else ""
        words = compilation.function, compilation.number, compilation.reason, place
        if is_read:
            os.write(written, json.dumps([words, compilation.seconds]).encode() + b"\n")
        elif is_printed():
            print_message(recompilation_words(*words, compilation.seconds), written)

    watching = watch_program(tell)

    def end(is_printed: bool) -> int:
        report = watching.report()
        if report.count and is_printed and sys.stderr is not None:
            # No failure here may hide an error of the program.
            with contextlib.suppress(Exception), contextlib.redirect_stdout(sys.stderr):
                from jax_array_info import print_compilations

                print_compilations(report, max_rows=None)
        return len(report.recompilations)

    return end


class Recompilations:
    """The recompilations of several processes, as these note them."""

    def __init__(self, processes: int, write: Callable[[str], None]) -> None:
        """Begin without any.

        Args:
            processes: Number of processes.
            write: Writes a line.
        """
        self._processes, self._write = processes, write
        self._read = [0] * processes
        """Bytes of the notes of each process that were read."""
        self._waiting: dict[str, tuple[float, dict[int, float]]] = {}
        """When the first process noted them, and the seconds of each, by their words."""
        self._told: set[str] = set()
        """The words of all lines."""

    @property
    def count(self) -> int:
        """Number of recompilations. One that some processes have later has another line, but counts once."""
        return len(self._told)

    def read(self, process: int, written: Callable[[int], bytes]) -> None:
        """Read the new notes of a process.

        Args:
            process: Index of the process.
            written: Returns what it has written, but for so many bytes.
        """
        notes, end, _ = written(self._read[process]).rpartition(b"\n")
        self._read[process] += len(notes + end)
        for line in notes.split(b"\n"):
            if line.startswith(NOTE):
                words, seconds = json.loads(line)
                _, durations = self._waiting.setdefault(json.dumps(words), (time.monotonic(), {}))
                durations[process] = seconds

    def tell(self, *, is_end: bool) -> None:
        """Write the lines of what all processes have compiled, or some of them by the end or a while ago."""
        for words, (since, durations) in [*self._waiting.items()]:
            if is_end or len(durations) == self._processes or time.monotonic() - since > _PATIENCE:
                del self._waiting[words]
                self._told.add(words)
                noun = "process" if len(durations) == 1 else "processes"
                named = f"{noun} {format_device_ids([*durations])}: " if self._processes > 1 else ""
                function, number, reason, place = json.loads(words)
                longest = max(durations.values())
                self._write(named + recompilation_words(function, number, reason, place, longest))
