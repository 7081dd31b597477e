"""One process of a run: ``python -m jax_array_info_cli.launch.worker PROCESS DESCRIPTOR PORT WORDS…``."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING

from ..stdout import written_or_refused
from .channel import announce_end, announce_join, answer_with_stacks, receive_job
from .descendants import end_with_parent
from .jax_distributed import join_when_jax_is_imported
from .line_buffering import write_whole_lines
from .program import program_frames, run_as_main

if TYPE_CHECKING:
    from ..output import Output


def main() -> None:
    """Run a program, then print the table of its live arrays.

    A program that fails has none, but when a device had no memory left; then it comes before the traceback.
    """
    end_with_parent()
    process, descriptor, port = map(int, sys.argv[1:4])
    job, channel = receive_job(descriptor)
    own = os.getpid()
    code = 0

    def shows_arrays() -> bool:
        # A fork of the program ends here as well, and has no right to use jax.
        return not job.quiet and os.getpid() == own

    def begin_to_join() -> None:
        # What the program itself has registered since it imported jax runs before this.
        atexit.register(lambda: _leave_without_jax(code, channel if os.getpid() == own else None))
        announce_join(channel)

    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    if job.processes > 1:
        write_whole_lines()
    answer_with_stacks(channel)
    join_when_jax_is_imported(process, job.processes, port, begin_to_join)
    try:
        run_as_main(job.words, is_module=job.is_module, source=job.source)
    except BaseException as error:
        code = _exit_code(error)
        if code:
            if shows_arrays():
                _tell_if_out_of_memory(error)
            _show_only_program_frames()
            raise
    if shows_arrays():
        _show_live_arrays(job.output)


def _leave_without_jax(code: int, channel: int | None) -> None:
    """End a program that failed before jax says goodbye to the other processes.

    jax waits for them, a minute and more, and they do not come. A fork has no channel of its own.
    """
    if code:
        for stream in (sys.stdout, sys.stderr):
            # Nobody may be reading any more, or the program has closed it.
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        if channel is not None:
            announce_end(channel)
        os._exit(code)


def _exit_code(error: BaseException) -> int:
    """Return the exit code that Python makes of what has ended a program."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    code = error.code if isinstance(error, SystemExit) else 1
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _show_only_program_frames() -> None:
    """Let the traceback that Python is about to print begin where the program does."""
    show = sys.excepthook
    if show is sys.__excepthook__ and sys.stderr is not None:
        # Up to Python 3.12 the hook in C opens the script again, and hangs where that is a named pipe.
        show = traceback.print_exception

    def excepthook(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        frames = program_frames(frames)
        show(kind, error.with_traceback(frames), frames)

    sys.excepthook = excepthook


def _show_live_arrays(output: Output | None) -> None:
    """Write the table of live arrays to a file, or print it if the program has used jax at all."""
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


def _tell_if_out_of_memory(error: BaseException) -> None:
    """Print what is live, if the program has died as a device had no memory left."""
    if "jax" in sys.modules:
        from jax_array_info.verbs.oom import tell_if_out_of_memory

        tell_if_out_of_memory(error)


if __name__ == "__main__":
    main()
