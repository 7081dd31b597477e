"""Execution of a program in this process, as with ``python SCRIPT`` and ``python -m MODULE``."""

from __future__ import annotations

import builtins
import contextlib
import linecache
import os
import pkgutil
import runpy
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

from jax_array_info_core.text import printable_lines

if TYPE_CHECKING:
    from ..output import Output


@dataclass(frozen=True, slots=True)
class Job:
    """A program and the options to run it with."""

    argv: tuple[str, ...]
    """Path of the script or name of the module, followed by the program's arguments."""

    is_module: bool = False
    """Whether the first argument names a module."""

    processes: int = 0
    """Number of processes with simulated devices that run it; 0 for one process, as under Python."""

    timeout: float | None = None
    """Seconds after which all processes are stopped."""

    quiet: bool = False
    """Whether to omit the table of live arrays, at the end and on an out-of-memory error."""

    output: Output | None = None
    """Destination of that table at the end; None for standard output."""

    source: bytes | None = None
    """The code of the script, for several processes that cannot all read a pipe; None for a module, a
    directory or a zip file."""

    record: str | None = None
    """Folder for a record of the memory over time; None for no record."""


OWN_FOLDER = os.path.dirname(__file__) + os.sep
LAUNCHING = (OWN_FOLDER, "<frozen runpy>")
"""The beginnings of the file names of frames that lead to the program."""

STDERR = 2
TIMED_OUT = 124
"""Exit code after a timeout, as of the ``timeout`` command."""


def timed_out(seconds: float | None) -> str:
    """Return the message after a timeout."""
    return f"timed out after {seconds:g} s (--timeout)"


def print_message(message: str) -> None:
    """Print a message of ``jai-cli run`` on stderr, escaped for it, unless stderr is closed or full."""
    if sys.stderr is not None:  # otherwise the descriptor may be a file of the program
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        with contextlib.suppress(OSError):
            os.write(STDERR, f"{printable_lines(f'jai-cli run: {message}', encoding)}\n".encode(encoding))


def worker_command(argv: Sequence[str], *numbers: int) -> list[str]:
    """Return the command of a process that runs a program. The program's arguments are there for ``ps``."""
    return [sys.executable, f"{OWN_FOLDER}start.py", *map(str, numbers), *argv]


def read_source(script: str) -> bytes | None:
    """Return the code of a script, or None for a directory or a zip file.

    If it cannot be read, the process exits with 2 and one line, as Python does.
    """
    try:
        if script == "-":
            return sys.stdin.buffer.read() if sys.stdin else b""
        if pkgutil.get_importer(script) is not None:
            return None
        with open(script, "rb") as file:
            return file.read()
    except OSError as error:
        print_message(f"can't open file {script!r}: {error.strerror}")
        sys.exit(2)


def run_as_main(argv: Sequence[str], *, is_module: bool, source: bytes | None) -> None:
    """Run a script or a module as the main program.

    The public functions of ``runpy`` remove ``__main__`` when the program ends. Here it stays, with
    everything that the program has left in it.

    Args:
        argv: Path of the script, directory or zip file with a ``__main__.py``, or name of the module,
            followed by the program's arguments.
        is_module: Whether the first argument names a module.
        source: The code of the script; None for a module, a directory or a zip file.
    """
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=builtins)
    name = argv[0]
    if is_module:
        sys.argv[:] = ["-m", *argv[1:]]
        put_first_on_path(os.getcwd())
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
        return
    sys.argv[:] = argv
    if source is None:
        sys.path.insert(0, os.path.join(os.getcwd(), name))
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    loader: object = BuiltinImporter
    if name == "-":
        path, folder = "<stdin>", ""
    else:
        path = os.path.join(os.getcwd(), name)  # with its dots, as Python has it
        real = os.path.realpath(path)
        # The path of a shell's pipe does not resolve to a file.
        folder = os.path.dirname(real if os.path.exists(real) else path)
        loader = SourceFileLoader("__main__", path)
    put_first_on_path(folder)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
    if not os.path.isfile(path):
        # For tracebacks, because a pipe cannot be read again.
        lines = source.decode(errors="replace").splitlines(keepends=True)
        linecache.cache[path] = (len(source), None, lines, path)
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def put_first_on_path(folder: str) -> None:
    """Put a directory first on the module search path, unless Python must not, as with ``PYTHONSAFEPATH``."""
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)


def program_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that led to the program."""
    left = traceback
    while traceback is not None:
        following = traceback.tb_next
        if traceback.tb_frame.f_code.co_filename == __file__:
            left = following
        traceback = following
    return left
