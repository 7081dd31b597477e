"""``jai-cli top``: the memory of a running job, from the record that it writes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import click

from ..output import Output, output_options
from ..reporting import Command
from ..usage import Refusal, refuse_reports
from .recorded import WRITE_RECORD

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from jax_array_info.pictures.top import Sort
    from jax_array_info_core.reports import TimelineReport
    from jax_array_info_core.timeline.timeline_report import Follower

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
    from jax_array_info_core.timeline.timeline_report import Follower

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
    from jax_array_info_core.text import printable

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
        from jax_array_info_core.errors import FileFormatError, UnsupportedValueError
        from jax_array_info_core.text import printable

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
                (one.process, one.run, device.id): device.peak_nbytes
                for one in shown.processes
                for device in one.devices
            }
            of_shown = shown.process, shown.run, shown.device
            if max(peaks.values(), default=0) <= FAR_FULLER * peaks.get(of_shown, 0):
                return of_shown
        return asked

    def page(
        self, report: TimelineReport, console: Console, width: int, height: int | None
    ) -> RenderableType:
        """Return the page of a report; without a height, that of a snapshot, which has no line of keys."""
        from jax_array_info.pictures.top import top_table
        from jax_array_info.style import shows_colors

        return top_table(
            report,
            width=width,
            height=height,
            use_color=shows_colors(console),
            sort=self.sort,
            keys="" if height is None else self._keys(report),
        )

    def _keys(self, report: TimelineReport) -> str:
        """Return the line that explains the keys that do something."""
        from jax_array_info.engine.terminal import keyboard_of_terminal

        if keyboard_of_terminal() is None:
            return "Ctrl+C quits"
        has_devices = any(len(one.devices) > 1 for one in report.processes)
        keys = [
            "q: quit",
            f"s: sort ({self.sort})",
            *(["p: next process"] if len(report.processes) > 1 else []),
            *(["right: next device"] if has_devices else []),
        ]
        return "   ".join(keys)

    def press(self, key: str) -> bool:
        """Change what is shown, and return whether a key quits."""
        from jax_array_info.pictures.top import SORTS

        if key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif self._report is not None and key in ("p", "down", "up"):
            runs = [(one.process, one.run) for one in self._report.processes]
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
