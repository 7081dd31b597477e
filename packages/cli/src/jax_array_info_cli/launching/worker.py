"""What a process of ``jai-cli run`` does: ``python -m jax_array_info_cli.launching.worker JOB PROGRAM…``."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import os
import signal
import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING

from ..writing import written_or_refused
from .descendants import end_with_parent
from .joining import announce_join, join_when_jax_is_imported
from .lifeline import Lifeline
from .program import program_frames, run_as_main
from .stacks import answer_with_stacks
from .stdio import write_whole_lines

if TYPE_CHECKING:
    from jax_array_info_core import LiveArrayReport

    from ..output import Format


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What a process is told to do."""

    is_module: bool
    """Whether the first word of the program names a module."""

    process: int
    """Which process this is."""

    processes: int
    """How many there are."""

    port: int
    """Where on the loopback device they meet."""

    quiet: bool
    """Whether the table of live arrays at the end is left out, and that of a program out of memory."""

    format: Format
    """As what that table is written at the end."""

    output: str | None
    """The file that it is written to; None for the standard output."""

    parent: int
    """Id of the process that started this one, without which it does not live on."""

    lifeline: int
    """Descriptor of the pipe that tells it when this process ends."""

    source: int | None
    """Descriptor of the pipe with the code of the script; None for a module, a folder or a zip file."""

    joiners: int
    """Descriptor of the pipe in which it announces that it joins the others."""

    stacks: int
    """Descriptor of the pipe for its stacks, when it is asked for them."""


def main() -> None:
    """Run a program, script or module and arguments, then print the table of its live arrays.

    A program that fails has none, but when a device had no memory left; then it comes before the traceback.
    """
    _, described, *words = sys.argv
    job = Job(**json.loads(described))
    own = os.getpid()

    def shows_arrays() -> bool:
        # A fork of the program ends here as well, and has no right to use jax.
        return not job.quiet and os.getpid() == own

    end_with_parent(job.parent)
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    if job.processes > 1:
        write_whole_lines()
    answer_with_stacks(job.stacks)
    os.set_inheritable(job.joiners, False)
    ending = _Ending(Lifeline(job.lifeline))

    def begin_to_join() -> None:
        if job.processes > 1:
            ending.forestall_jax()
            announce_join(job.process, job.joiners)

    join_when_jax_is_imported(job.process, job.processes, job.port, begin_to_join)
    try:
        run_as_main(words, is_module=job.is_module, source=_source(job))
    except SystemExit as error:
        ending.code = _exit_code(error.code)
        if ending.code:
            if shows_arrays():
                _tell_if_out_of_memory(error)
            raise
    except BaseException as error:
        ending.code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        if shows_arrays():
            _tell_if_out_of_memory(error)
        _show_only_program_frames()
        raise
    if shows_arrays():
        _show_stats(job)


def _source(job: Job) -> bytes | None:
    """Return the code of the script, None where the program is none."""
    if job.source is None:
        return None
    with open(job.source, "rb") as file:
        return file.read()


class _Ending:
    """How the program ended, for what happens when the interpreter does."""

    def __init__(self, lifeline: Lifeline) -> None:
        self.code = 0
        self._lifeline = lifeline

    def forestall_jax(self) -> None:
        """End a program that failed before jax says goodbye to the other processes.

        jax waits for them, a minute and more, and they do not come. What the program itself has
        registered since it imported jax runs before this.
        """
        atexit.register(self._leave)

    def _leave(self) -> None:
        if self.code:
            for stream in (sys.stdout, sys.stderr):
                # Nobody may be reading any more, or the program has closed it.
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            self._lifeline.announce_end()
            os._exit(self.code)


def _exit_code(code: object) -> int:
    """Return the exit code that Python makes of what ``sys.exit`` was given."""
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


def _show_stats(job: Job) -> None:
    """Print the table of live arrays, if the program has used jax at all; or write it to a file."""
    if job.output is None and "jax" not in sys.modules:
        return
    from jax_array_info import live_array_report, print_array_stats
    from jax_array_info_core import compat

    if job.output is not None:
        _write_stats(live_array_report(), job.format, job.output)
    elif compat.has_backends() and sys.stdout is not None and not sys.stdout.closed:
        with written_or_refused():
            print_array_stats()


def _write_stats(report: LiveArrayReport, written_as: Format, path: str) -> None:
    """Write the table of live arrays to a file; where it cannot be written, say so and exit with 1."""
    import click

    from ..output import Output
    from ..printing import print_report

    try:
        Output(written_as, path).show([report], lambda console: print_report(console, report))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)


def _tell_if_out_of_memory(error: BaseException) -> None:
    """Print what is live, if the program has died as a device had no memory left."""
    if "jax" in sys.modules:
        from jax_array_info.verbs.oom import tell_if_out_of_memory

        tell_if_out_of_memory(error)


if __name__ == "__main__":
    main()
