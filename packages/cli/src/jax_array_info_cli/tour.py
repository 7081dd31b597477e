"""The tour of ``jai-cli demo``: scripts, shown and run cell by cell.

Of several processes, process 0 prints the code of a cell, then each process its output.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from dataclasses import replace
from importlib import resources
from typing import Any, NamedTuple

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from jax_array_info import gather_reports, planned_mesh_report
from jax_array_info.style import marks, terminal_console
from jax_array_info_core import collect_reports
from jax_array_info_core.reports import ArrayReport, Report

_SCRIPT = "tour_script.py"
_SCRIPT_OF_PROCESSES = "tour_of_processes_script.py"
_TIMEOUT = 600.0
"""Seconds that a process waits for its turn to print."""


class Cell(NamedTuple):
    """A section of a script that begins with a line ``# %% title``."""

    title: str
    code: str


def split_cells(script: str) -> list[Cell]:
    """Return the cells of a script. Text before the first cell is skipped."""
    _, *parts = re.split(r"^# %% (.+)\n", script, flags=re.MULTILINE)
    return [Cell(title, code.strip("\n")) for title, code in zip(parts[::2], parts[1::2], strict=True)]


def _read_cells(name: str) -> list[Cell]:
    """Return the cells of a script of this package."""
    return split_cells(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def _print_cell(number: int, cell: Cell, console: Console) -> None:
    """Print a cell's title and code."""
    title = f"{number}. {cell.title} "
    rule = marks(console.encoding).horizontal * max(console.width - len(title), 0)
    console.print()
    console.print(Text.assemble((title, "bold"), (rule, "bright_green")))
    console.print(Syntax(cell.code, "python", theme="ansi_dark", background_color="default", word_wrap=True))
    console.print()


def _run_cell(cell: Cell, namespace: dict[str, Any]) -> None:
    """Run a cell in a namespace that holds the results of earlier cells."""
    exec(compile(cell.code, "<tour>", "exec"), namespace)


def show_tour(console: Console) -> None:
    """Run the tour on the devices that JAX sees, and print it."""
    namespace: dict[str, Any] = {}
    with contextlib.redirect_stdout(console.file):
        for number, cell in enumerate(_read_cells(_SCRIPT), 1):
            _print_cell(number, cell, console)
            _run_cell(cell, namespace)


def collect_tour() -> list[Report]:
    """Run the tour on the devices that JAX sees, and return its reports.

    An array shown as a panel and then as a picture is one report.
    """
    namespace: dict[str, Any] = {}
    with collect_reports() as found:
        for cell in _read_cells(_SCRIPT):
            _run_cell(cell, namespace)
    unnamed = [replace(report, name=None) if isinstance(report, ArrayReport) else report for report in found]
    before = [None, *unnamed]
    return [report for report, own, last in zip(found, unnamed, before, strict=False) if own != last]


def show_tour_of_processes() -> None:
    """Run the tour in this process, together with the other processes."""
    import jax

    console = terminal_console()
    namespace: dict[str, Any] = {}
    for number, cell in enumerate(_read_cells(_SCRIPT_OF_PROCESSES), 1):
        if jax.process_index() == 0:
            _print_cell(number, cell, console)
        printed = _printed_by(cell, namespace)
        jax.block_until_ready([value for value in namespace.values() if isinstance(value, jax.Array)])
        _print_in_turn(printed)


def _printed_by(cell: Cell, namespace: dict[str, Any]) -> str:
    """Run a cell and return its output, to be printed in one piece."""
    encoding = sys.stdout.encoding
    with io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) as file:
        with contextlib.redirect_stdout(file):
            _run_cell(cell, namespace)
        file.seek(0)
        return file.read()


def _print_in_turn(text: str) -> None:
    """Print the text of each process in turn.

    The processes wait for each other without a collective: on jax 0.4.38, Gloo confuses one that is still
    running on some device with the next one, and aborts.
    """
    import jax

    for turn in range(jax.process_count()):
        if turn == jax.process_index():
            print(text, end="", flush=True)
        gather_reports(planned_mesh_report({"turn": turn + 1}), timeout=_TIMEOUT)


if __name__ == "__main__":
    show_tour_of_processes()
