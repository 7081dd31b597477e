"""One process of a run: ``python -m jax_array_info_cli.launch.worker PROCESS DESCRIPTOR PORT ARGV…``."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import io
import os
import pickle
import signal
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING

from ..standard_streams import written_or_refused
from .program import Job, join_when_jax_is_imported, program_frames, run_as_main

if TYPE_CHECKING:
    from ..output import Output

DUMP_STACKS = signal.SIGUSR2
JOINS = b"\n"
"""Written to the supervisor before this process waits for the others."""
END_OF_STACKS = b"\0"
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run a program, then print the table of its live arrays.

    A failed program gets no table, except after an out-of-memory error: then it precedes the traceback.
    """
    if sys.platform == "linux":  # which then kills this process when its parent exits
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    process, channel, port = map(int, sys.argv[1:4])
    os.set_inheritable(channel, False)
    with open(channel, "rb", closefd=False) as file:
        job: Job = pickle.load(file)  # noqa: S301, written by the supervisor
    own_pid = os.getpid()
    code = 0

    def shows_arrays() -> bool:
        # A fork of the program also ends here, and must not use jax.
        return not job.quiet and os.getpid() == own_pid

    def begin_to_join() -> None:
        # Exit handlers that the program registers after it imports jax run before this one.
        atexit.register(lambda: _leave_without_jax(code))
        os.write(channel, JOINS)

    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    if job.processes > 1:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True, write_through=False)
    _answer_with_stacks(channel)
    join_when_jax_is_imported(process, job.processes, port, begin_to_join)
    path = sys.path[:]
    try:
        try:
            run_as_main(job)
        finally:
            # The program may have removed entries that the imports below need.
            sys.path = [*(sys.path or ()), *path]
    except BaseException as error:
        code = _exit_code(error)
        if code:
            if shows_arrays() and "jax" in sys.modules:
                from jax_array_info.verbs.oom import tell_if_out_of_memory

                tell_if_out_of_memory(error)
            _show_only_program_frames()
            raise
    if shows_arrays():
        _show_live_arrays(job.output)


def _answer_with_stacks(channel: int) -> None:
    """Make this worker write the stacks of its threads to the supervisor on ``DUMP_STACKS``.

    ``faulthandler`` writes them even if the process hangs in C. It then chains to the Python handler, which
    marks the end of the stacks; that one only runs while the process executes Python code.
    """

    def mark_end(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):  # the program may have closed every descriptor
            os.write(channel, END_OF_STACKS)

    signal.signal(DUMP_STACKS, mark_end)
    faulthandler.register(DUMP_STACKS, file=channel, all_threads=True, chain=True)


def _leave_without_jax(code: int) -> None:
    """Exit a failed program before jax waits for the other processes, a minute or more."""
    if code:
        for stream in (sys.stdout, sys.stderr):
            # The reader may have closed the pipe, or the program the stream.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(code)


def _exit_code(error: BaseException) -> int:
    """Return the exit code of Python for an exception that ends a program."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    code = error.code if isinstance(error, SystemExit) else 1
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _show_only_program_frames() -> None:
    """Make the traceback that Python is about to print begin with the program's frames."""
    show = sys.excepthook
    if show is sys.__excepthook__ and sys.stderr is not None:
        # Up to Python 3.12, the hook in C opens the script again, and hangs if that is a named pipe.
        show = traceback.print_exception

    def excepthook(cls: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        frames = program_frames(frames)
        show(cls, error.with_traceback(frames), frames)

    sys.excepthook = excepthook


def _show_live_arrays(output: Output | None) -> None:
    """Write the table of live arrays to a file, or print it if the program has used jax."""
    if output is not None:
        import click

        from jax_array_info import live_array_report

        try:
            output.show([[live_array_report()]])
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
    elif "jax" in sys.modules and sys.stdout is not None and not sys.stdout.closed:
        from jax_array_info import print_array_stats
        from jax_array_info_core import compat

        if compat.has_backends():
            with written_or_refused():
                print_array_stats()


if __name__ == "__main__":
    main()
