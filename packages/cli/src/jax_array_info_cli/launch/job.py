"""A program and how it is to be run, as every process of a run knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..output import Output


@dataclass(frozen=True, slots=True)
class Job:
    """A program and how it is to be run."""

    words: tuple[str, ...]
    """Script or name of a module, then the arguments of the program."""

    is_module: bool = False
    """Whether the first word names a module."""

    processes: int = 1
    """Number of processes that run it."""

    timeout: float | None = None
    """Seconds after which everything is ended."""

    quiet: bool = False
    """Whether the table of live arrays is left out, at the end and out of memory."""

    output: Output | None = None
    """Where that table goes at the end, instead of the standard output."""

    source: bytes | None = None
    """The code of the script; None for a module, a folder or a zip file."""
