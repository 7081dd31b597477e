"""A process that runs a program: ``python start.py DESCRIPTOR PROCESS PORT ARGV…``."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from ..standard_streams import written_or_refused
from .alone import end_after
from .channel import announce_end, announce_join, answer_with_stacks, receive_job
from .jax_distributed import join_when_jax_is_imported, when_jax_is_imported
from .program import print_message, program_frames, read_source, run_as_main
from .relay import end_with_parent

if TYPE_CHECKING:
    from ..output import Output


def main() -> None:
    """Run a program, then print the table of its live arrays, except with a rank other than 0.

    A failed program gets no table, except after an out-of-memory error: then it precedes the traceback.
    """
    descriptor, process, port = map(int, sys.argv[1:4])
    argv = sys.argv[4:]
    job, channel = receive_job(descriptor)
    source = job.source
    own_pid = os.getpid()
    environment = dict(os.environ)
    code = 0
    end_record: Callable[[BaseException], None] | None = None

    def shows_arrays() -> bool:
        # A fork of the program also ends here, and must not use jax.
        return not job.quiet and os.getpid() == own_pid

    def rank() -> int:
        from jax_array_info_core.compat import process_index
        from jax_array_info_core.compat.launchers import launcher_rank

        # The processes of a simulation print a table each.
        return launcher_rank(environment) or (0 if job.processes else process_index())

    def begin_to_join() -> None:
        # Exit handlers that the program registers after it imports jax run before this one.
        atexit.register(lambda: _leave_without_jax(code, channel if os.getpid() == own_pid else None))
        announce_join(channel)

    def begin_to_record(*_: object) -> None:
        nonlocal end_record
        if job.record is not None:
            from jax_array_info_core.timeline.recorder import record_program

            end_record = record_program(job.record)

    if job.processes:
        end_with_parent()
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        if job.processes > 1:
            write_whole_lines()
        answer_with_stacks(channel)
        join_when_jax_is_imported(process, job.processes, port, begin_to_join, begin_to_record)
    else:
        os.close(channel)
        # A program may execute itself again by these arguments.
        sys.orig_argv[:] = [sys.orig_argv[0], *(["-m"] if job.is_module else []), *argv]
        source = None if job.is_module else read_source(argv[0])
        if job.record is not None:
            when_jax_is_imported(begin_to_record)
        if job.timeout is not None:
            end_after(job.timeout)
    path = sys.path[:]
    try:
        try:
            run_as_main(argv, is_module=job.is_module, source=source)
        finally:
            # The program may have removed entries that the imports below need.
            sys.path = [*(sys.path or ()), *path]
    except BaseException as error:
        code = _exit_code(error)
        if code:
            if end_record is not None:
                end_record(error)
            if shows_arrays() and "jax" in sys.modules and not rank():
                from jax_array_info.verbs.oom import tell_if_out_of_memory

                tell_if_out_of_memory(error)
            _show_only_program_frames()
            raise
    if shows_arrays():
        _show_live_arrays(job.output, rank)


def _leave_without_jax(code: int, channel: int | None) -> None:
    """Exit a failed program before jax waits for the other processes.

    jax would wait a minute or more for processes that never come. A fork passes None as its channel.
    """
    if code:
        for stream in (sys.stdout, sys.stderr):
            # The reader may have closed the pipe, or the program the stream.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        if channel is not None:
            announce_end(channel)
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


def _show_live_arrays(output: Output | None, rank: Callable[[], int]) -> None:
    """Write the table of live arrays to a file, or print it, if the program has started devices."""
    from jax_array_info_core import compat

    if "jax" not in sys.modules or not compat.has_backends():
        if output is not None:
            print_message(f"{output.path} is not written: the program has started no device of JAX")
    elif output is not None:
        import click

        from jax_array_info import live_array_report

        try:
            output.of_rank(rank()).show([[live_array_report()]])
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
    elif not rank() and sys.stdout is not None and not sys.stdout.closed:
        from jax_array_info import print_array_stats

        with written_or_refused():
            print_array_stats()


_LINE_BUFFERED = 1
_SIZE = 2**16


def write_whole_lines() -> None:
    """Make Python and C write each line in one piece, as soon as it is complete.

    By default, C writes to a pipe in blocks that end anywhere, so lines of Python and Gloo would mix.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    library = ctypes.CDLL(None)
    # The C library of macOS has another name for stdout: leave its buffering unchanged.
    with contextlib.suppress(ValueError):
        stdout = ctypes.c_void_p.in_dll(library, "stdout")
        # Under PYTHONUNBUFFERED, C has a buffer of one byte and keeps it unless it gets another. C flushes
        # after Python has exited, so the buffer is never freed.
        library.malloc.restype = ctypes.c_void_p
        buffer = ctypes.c_void_p(library.malloc(ctypes.c_size_t(_SIZE)))
        library.setvbuf(stdout, buffer, _LINE_BUFFERED, ctypes.c_size_t(_SIZE))
