"""The job of a run: a program and the options to run it with, sent to every process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..output import Output


@dataclass(frozen=True, slots=True)
class Job:
    """A program and the options to run it with."""

    argv: tuple[str, ...]
    """Path of the script or name of the module, followed by the program's arguments."""

    is_module: bool = False
    """Whether the first argument names a module."""

    processes: int = 1
    """Number of processes that run it."""

    timeout: float | None = None
    """Seconds after which all processes are stopped."""

    quiet: bool = False
    """Whether to omit the table of live arrays, at the end and on an out-of-memory error."""

    output: Output | None = None
    """Destination of that table at the end; None for standard output."""

    source: bytes | None = None
    """The code of the script; None for a module, a directory or a zip file."""
