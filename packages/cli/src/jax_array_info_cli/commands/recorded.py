"""``jai-cli log``, ``profile``, ``hosts``, ``memory``, ``top``, ``report``: files that programs write."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from jax_array_info_core.base.text import printable

from ..output import (
    Output,
    Problems,
    Refusal,
    ignore_codes_option,
    line_options,
    output_options,
    reading,
    refuse_reports,
    refused,
)
from ..reporting import Answer, Command, report_command

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from jax_array_info.engine.running import Sort
    from jax_array_info_core.jobs.timeline.timeline_report import Follower
    from jax_array_info_core.reports import TimelineReport

WRITE_HOSTS = (
    'python -c "import jax; from jax_array_info import live_array_report, save_report;'
    " x = jax.numpy.zeros((1024, 1024)); save_report(live_array_report(), '.')\""
)
WRITE_RECORD = (
    'python -c "import jax; from jax_array_info import record_memory;'
    " recorder = record_memory('memory/'); x = jax.numpy.zeros((1024, 1024)); recorder.stop()\""
)


@report_command(
    "echo 'Some donated buffers were not usable: float32[8,64].' > train.log",
    "jai-cli log train.log --mesh x=4,y=2",
    "jai-cli log - < train.log",
    "jai-cli log train.log --format json",
    has_verdict=True,
    has_rows=True,
)
@click.argument("source", metavar="LOG", type=click.Path(allow_dash=True))
@click.option("--mesh", help="Mesh of the run, such as x=4,y=2, to print partition specs.")
@ignore_codes_option
def log(source: str, mesh: str | None, ignore_codes: tuple[str, ...]) -> Answer:
    """Say what ended a job, from its logs: the error, the rank that failed first, and the remedy.

    LOG is a file, a folder with a log per rank (named such as rank0.log, worker-3.out or train_0.err), a log
    with the lines of several ranks, or - for standard input. The first line names the rank that failed first
    and its error; errors of other ranks that follow from it are listed apart. Programs and allocations that
    do not fit, stalls, failed hosts, connections and devices, and errors that JAX raises are explained, with
    the numbers that the log has. A fatal line that is not known is printed as it is.

    Warnings are listed as well: slow compilations, captured constants, unused donations, and values that XLA
    shards by full replication. Logs of any size are read in bounded memory. JAX is not imported.

    Exits with 0 if nothing in the log is fatal, with 1 if something is, and with 2 if there is no answer.
    """
    from jax_array_info_core import log_report
    from jax_array_info_core.base.errors import SpecError
    from jax_array_info_core.geometry.layouts.notation import parse_mesh

    problems = Problems()
    sizes = problems.catch("--mesh", parse_mesh, mesh)
    problems.refuse()
    is_folder = os.path.isdir(source)
    with (
        reading(source) if is_folder else _opened(source, "log") as file,
        refused(SpecError, prefix="--mesh: "),
    ):
        report = log_report(source if is_folder else file, mesh=sizes, ignore_codes=ignore_codes)
    return Answer(replace(report, name=printable(source)), report.is_fatal)


@report_command(
    "python -c 'import jax; jax.profiler.save_device_memory_profile(\"memory.prof\")'",
    "jai-cli profile memory.prof",
    "jai-cli profile - < memory.prof",
    "jai-cli profile memory.prof --format json",
    has_rows=True,
)
@click.argument("source", metavar="PROFILE", type=click.Path(allow_dash=True))
@line_options
def profile(source: str) -> Answer:
    """Show the contents of a device memory profile, by device and source line.

    PROFILE is a file written by jax.profiler.save_device_memory_profile, or - for standard input. JAX is
    not imported, so no backend starts.
    """
    from jax_array_info_core import memory_profile_report
    from jax_array_info_core.arrays.origins.profiles import MAX_NBYTES

    with _opened(source, "device memory profile") as file:
        # Files such as /dev/zero have no end: read one byte more than the limit at most.
        report = memory_profile_report(file.read(MAX_NBYTES + 1))
    return Answer(report)


@report_command(
    WRITE_HOSTS,
    "jai-cli hosts .",
    "jai-cli hosts . --rows --output hosts.svg",
    has_verdict=True,
    has_rows=True,
)
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option(
    "--rows",
    is_flag=True,
    help="Read the reports of all files, not only their summaries, and compare all processes that differ.",
)
@click.option(
    "--details",
    metavar="COUNT",
    type=click.IntRange(min=0),
    default=8,
    show_default=True,
    help="Number of processes that differ whose arrays are compared, without --rows.",
)
@ignore_codes_option
def hosts(folder: str, rows: bool, details: int, ignore_codes: tuple[str, ...]) -> Answer:
    """Compare the processes of a job by the files that they wrote to the folder DIR.

    Each process calls save_report(live_array_report(), DIR), which writes the file process-INDEX.json. Files
    with reports of trees or of devices are compared as well. Only the first line of each file is read, and
    the reports of the processes whose arrays differ.

    Findings are processes without a file, processes whose arrays differ from those of most processes in
    shape, dtype, sharding, label or number, and files that cannot be read or are of another job.

    Exits with 0 if nothing was found, with 1 if there are findings, and with 2 if there is no answer, for
    example because the folder has no files or the output cannot be written.
    """
    from jax_array_info_core.jobs.hosts.files import hosts_in_folder

    with reading(folder, "and not in a folder of several") as progress:
        report = hosts_in_folder(
            folder, rows=rows, details=details, ignore_codes=ignore_codes, on_progress=progress
        )
    return Answer(report, not report.passed)


@report_command(
    WRITE_RECORD,
    "jai-cli memory memory/",
    "jai-cli memory memory/ --output memory.html",
    has_rows=True,
)
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option(
    "--process",
    metavar="INDEX",
    type=click.IntRange(min=0),
    help="Index of the process. Default: the one with the highest peak.",
)
@click.option(
    "--run",
    metavar="NUMBER",
    type=click.IntRange(min=0),
    help="Number of its run, if several programs had this index. Default: the one with the highest peak.",
)
@click.option(
    "--device",
    metavar="ID",
    type=int,
    help="Id of the device. Default: the one with the highest peak.",
)
@click.option(
    "--last",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Look only at so many seconds before the last sample.",
)
def memory(
    folder: str,
    process: int | None,
    run: int | None,
    device: int | None,
    last: float | None,
) -> Answer:
    """Show the memory of a job over time, from the record in the folder DIR.

    The program writes the record with record_memory(DIR), or jai-cli run --record DIR starts it. The job may
    have ended, or still run: the record is only read.

    The first lines have allocations that failed, the peak with its time, step and mark, and the allocation
    sites that grow. The picture shows the bytes in use of one device by allocation site.
    """
    from jax_array_info_core import timeline_report

    with reading(folder, "not a folder with a record") as progress:
        return Answer(
            timeline_report(folder, process=process, run=run, device=device, last=last, on_progress=progress)
        )


@report_command(
    "jai-cli show 64,64 --mesh x=8 --spec x --output array.json",
    "jai-cli report array.json",
    "jai-cli array.json",
    has_rows=True,
)
@click.argument("source", metavar="FILE", type=click.Path())
def report(source: str) -> Answer:
    """Show a report in JSON, as its own command or function prints it.

    FILE is from --format json of any command, or from save_report, save_tree or to_json in Python.
    """
    from jax_array_info_core import load_report

    with reading(source):
        return Answer(load_report(source))


@contextlib.contextmanager
def _opened(source: str, what: str) -> Iterator[IO[Any]]:
    """Open a file, or standard input for -. If it cannot be read, end the command with exit code 2.

    Args:
        source: Path of the file.
        what: The content that the command takes.
    """
    if source == "-" and sys.stdin is None:
        raise Refusal("standard input: it is closed")
    from jax_array_info_core.base.files import open_without_waiting

    with (
        reading(source, f"not a {what}"),
        click.open_file(source, "rb") if source == "-" else open_without_waiting(source) as file,
    ):
        yield file


_Value = TypeVar("_Value")

LAST = 60.0
"""Seconds of the record that are shown."""
FAR_FULLER = 1.1
"""Factor by which another device must be fuller to be shown instead, if none was asked for."""


@click.command(
    cls=Command,
    examples=(
        WRITE_RECORD,
        "jai-cli top memory/ | cat",
        "jai-cli top memory/ --format json | cat",
    ),
)
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option(
    "--process",
    metavar="INDEX",
    type=click.IntRange(min=0),
    help="Process whose arrays are shown. Default: the one with the fullest device.",
)
@click.option(
    "--run",
    metavar="NUMBER",
    type=click.IntRange(min=0),
    help="Its run whose arrays are shown, if several programs had this index. Default: the fullest one.",
)
@click.option(
    "--device",
    metavar="ID",
    type=int,
    help="Device whose arrays are shown. Default: the fullest one of the process.",
)
@output_options
def top(folder: str, process: int | None, run: int | None, device: int | None, output: Output) -> None:
    """Show the memory of a job while it runs, from the record that it writes into DIR.

    A job writes a record with record_memory(DIR), or by jai-cli run --record DIR. Run this command in another
    shell, also on another machine that sees the folder. It shows the memory in use, the peak and the limit of
    each device, the largest allocation sites with their change in the last minute, the marks of the program,
    and each process that ended or is no longer heard from. For a whole record, use jai-cli memory.

    On a terminal, the page is drawn again each second. Keys: s sorts by bytes, by change or by name; p, or
    the arrows up and down, shows another process; the arrows left and right show another device; q quits. A
    job that has not started is waited for. Into a pipe or a file, and on a terminal with TERM=dumb, the
    current state is written once.

    The record is only read. JAX is not imported, so no backend starts.
    """
    from jax_array_info.engine.terminal import can_show
    from jax_array_info.style import terminal_console
    from jax_array_info_core.jobs.timeline.timeline_report import Follower

    output.require_place()
    refuse_reports(folder, "not a folder with a record")
    view = View(Follower(folder), folder, process, device, run)
    if output.format == "text" and output.path is None and can_show(console := terminal_console()):
        _watch(console, view)
        return
    report, problem = view.read()
    if report is None:
        raise Refusal(problem)

    if output.format == "text":
        output.write_text(
            lambda console: console.print(view.page(report, console, console.width, None), highlight=False)
        )
    else:
        output.show([[report]])


def _watch(console: Console, view: View) -> None:
    from jax_array_info import style
    from jax_array_info.engine.terminal import progress_bar, show_pages
    from jax_array_info_core.base.text import printable

    with progress_bar(f"reading {printable(view.folder)}"):
        view.read()  # of a long record, the first time takes seconds

    def draw(width: int, height: int) -> RenderableType:
        report, problem = view.read()
        if report is None:
            return style.written(f"waiting for a record: {problem}", "", "Ctrl+C quits")
        return view.page(report, console, width, height)

    show_pages(console, draw, view.press)


@dataclass(slots=True)
class View:
    """The part of a record that is shown, and how."""

    follower: Follower
    folder: str
    process: int | None
    device: int | None
    run: int | None = None
    sort: Sort = "bytes"
    _report: TimelineReport | None = field(default=None)

    def read(self) -> tuple[TimelineReport | None, str]:
        """Read what is new, and return the report; without one, None and the reason.

        Raises:
            Refusal: If the folder cannot be read.
        """
        from jax_array_info_core.base.text import printable
        from jax_array_info_core.errors import FileFormatError, UnsupportedValueError

        folder = printable(self.folder)
        try:
            process, run, device = self._chosen()
            self._report = self.follower.report(last=LAST, process=process, run=run, device=device)
        except FileNotFoundError:
            return None, f"{folder}: no such folder"
        except (FileFormatError, UnsupportedValueError) as error:
            return None, f"{folder}: {error}"
        except OSError as error:
            raise Refusal(f"{folder}: {error.strerror or error}") from error
        return self._report, ""

    def _chosen(self) -> tuple[int | None, int | None, int | None]:
        """Return the process, run and device to show: those that are shown, unless another is far fuller."""
        shown, asked = self._report, (self.process, self.run, self.device)
        if shown is not None and asked == (None, None, None):
            peaks = {
                (row.process, row.run, device.id): device.peak_nbytes
                for row in shown.processes
                for device in row.devices
            }
            of_shown = shown.process, shown.run, shown.device
            if max(peaks.values(), default=0) <= FAR_FULLER * peaks.get(of_shown, 0):
                return of_shown
        return asked

    def page(
        self, report: TimelineReport, console: Console, width: int, height: int | None
    ) -> RenderableType:
        """Return the page of a report; without a height, that of a snapshot, which has no line of keys."""
        from jax_array_info.engine.running import running_job
        from jax_array_info.style import shows_colors

        keys = "" if height is None else self._keys(report)
        colors = shows_colors(console)
        return running_job(report, width=width, height=height, use_color=colors, sort=self.sort, keys=keys)

    def _keys(self, report: TimelineReport) -> str:
        """Return the line that explains the keys that do something."""
        from jax_array_info.engine.terminal import keyboard_of_terminal

        if keyboard_of_terminal() is None:
            return "Ctrl+C quits"
        has_devices = any(len(row.devices) > 1 for row in report.processes)
        keys = [
            "q: quit",
            f"s: sort ({self.sort})",
            *(["p: next process"] if len(report.processes) > 1 else []),
            *(["right: next device"] if has_devices else []),
        ]
        return "   ".join(keys)

    def press(self, key: str) -> bool:
        """Change what is shown, and return whether a key quits."""
        from jax_array_info.engine.running import SORTS

        if key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif self._report is not None and key in ("p", "down", "up"):
            runs = [(row.process, row.run) for row in self._report.processes]
            shown = self._report.process, self._report.run
            self.process, self.run = _next(runs, shown, -1 if key == "up" else 1)
            self.device = None
        elif self._report is not None and key in ("right", "left"):
            self.process, self.run = self._report.process, self._report.run
            ids = [device.id for device in self._report.chosen.devices] if self._report.chosen else []
            self.device = _next(ids, self._report.device, -1 if key == "left" else 1)
        return key in ("q", "Q")


def _next(values: list[_Value], value: _Value, by: int) -> _Value:
    """Return the value that comes next in a list, which begins again after its end."""
    return values[(values.index(value) + by) % len(values)]
