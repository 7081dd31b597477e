"""Programs of ``jai-cli run``: what the command and the processes that run the program share."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jax_array_info_core.base.quantities import counted
from jax_array_info_core.base.text import printable_lines

if TYPE_CHECKING:
    from ..output import Output

OWN_FOLDER = os.path.dirname(__file__) + os.sep
LAUNCHING = (OWN_FOLDER, "<frozen runpy>")
"""The beginnings of the file names of frames that lead to the program."""

DUMP_STACKS = signal.SIGUSR2
"""Makes a process that was started write its stacks, even if it hangs in C."""

STDOUT, STDERR = 1, 2
TIMED_OUT = 124
"""Exit code after a timeout, as of the ``timeout`` command."""


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

    record: str | None = None
    """Folder for a record of the memory over time; None for no record."""

    recompiles: bool = False
    """Whether to print each recompilation when it happens, and the table of all compilations at the end."""

    fail_on_recompile: bool = False
    """Whether the command fails if there was one."""

    source: bytes | None = None
    """The code of the script, for several processes that cannot all read a pipe; None for a module, a
    directory or a zip file."""

    launcher: int | None = None
    """Process that has started this one; None if the command itself has become the program."""

    alive: int = -1
    """Pipe to that process, which is closed when this one dies."""

    process: int = 0
    """Index of this process."""

    port: int | None = None
    """Port of the coordinator on the loopback device; None if this process is the only one."""


NOTE = b"[["
"""Begin of a recompilation in the file in which a process writes to its launcher."""


def too_many(recompilations: int) -> str:
    """Return the message of a program that succeeds, but has recompilations."""
    return f"{counted(recompilations, 'recompilation', 'recompilations')} (--fail-on-recompile)"


def timed_out(seconds: float | None) -> str:
    """Return the message after a timeout."""
    return f"timed out after {seconds:g} s (--timeout)"


def print_message(message: str, stderr: int = STDERR) -> None:
    """Print a message of ``jai-cli run`` on stderr, escaped for it, unless stderr is closed or full.

    The program may have replaced or closed ``sys.stderr``, but not what is behind it.

    Args:
        message: The message.
        stderr: Descriptor of it, or of a copy, which the program may have closed.
    """
    # Without the object, the descriptor may be a file of the program.
    for descriptor in () if sys.__stderr__ is None else (stderr, STDERR):
        with contextlib.suppress(OSError):
            os.write(descriptor, message_line(message) + b"\n")
            return


def message_line(message: str) -> bytes:
    """Return a message of ``jai-cli run`` as it stands on stderr, escaped for it."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return printable_lines(f"jai-cli run: {message}", encoding).encode(encoding)


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


def put_first_on_path(folder: str) -> None:
    """Put a directory first on the module search path, unless Python must not, as with ``PYTHONSAFEPATH``."""
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """Reserve a free port on the loopback device that only gRPC can bind.

    If the port were released before use, another program could take it. A second coordinator would even
    share it with the first, since gRPC sets ``SO_REUSEPORT``, and the two runs would mix. This socket never
    listens. While it is bound, the system assigns the port to no other program, but gRPC can still bind it.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]
