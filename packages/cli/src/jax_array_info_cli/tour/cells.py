"""Cells of a script: the code of each, followed by its output."""

from __future__ import annotations

import contextlib
import itertools
import re
from dataclasses import replace
from importlib import resources
from typing import Any, NamedTuple

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from jax_array_info.style import marks
from jax_array_info_core import ArrayReport, Report, collect_reports

SCRIPT = "one_process_script.py"


class Cell(NamedTuple):
    """A section of a script that begins with a line ``# %% title``."""

    title: str
    code: str


def split_cells(script: str) -> list[Cell]:
    """Return the cells of a script. Text before the first cell is skipped."""
    _, *parts = re.split(r"^# %% (.+)\n", script, flags=re.MULTILINE)
    return [Cell(title, code.strip("\n")) for title, code in zip(parts[::2], parts[1::2], strict=True)]


def _heading(title: str, console: Console) -> Text:
    """Return a title followed by a rule. Long titles wrap."""
    rule = marks(console.encoding).horizontal * max(console.width - len(title), 0)
    return Text.assemble((title, "bold"), (rule, "bright_green"))


def read_cells(name: str) -> list[Cell]:
    """Return the cells of a script of this package."""
    return split_cells(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


def print_cell(number: int, cell: Cell, console: Console) -> None:
    """Print a cell's title and code."""
    console.print()
    console.print(_heading(f"{number}. {cell.title} ", console))
    console.print(Syntax(cell.code, "python", theme="ansi_dark", background_color="default", word_wrap=True))
    console.print()


def run_cell(cell: Cell, namespace: dict[str, Any]) -> None:
    """Run a cell in a namespace that holds the results of earlier cells."""
    exec(compile(cell.code, "<tour>", "exec"), namespace)


def show_tour(console: Console) -> None:
    """Run the tour on the devices that JAX sees, and print it."""
    namespace: dict[str, Any] = {}
    with contextlib.redirect_stdout(console.file):
        for number, cell in enumerate(read_cells(SCRIPT), 1):
            print_cell(number, cell, console)
            run_cell(cell, namespace)


def collect_tour() -> list[Report]:
    """Run the tour on the devices that JAX sees, and return its reports.

    An array shown as a panel and then as a picture is one report.
    """
    namespace: dict[str, Any] = {}
    with collect_reports() as found:
        for cell in read_cells(SCRIPT):
            run_cell(cell, namespace)
    return [next(equal) for _, equal in itertools.groupby(found, _without_name)]


def _without_name(report: Report) -> Report:
    return replace(report, name=None) if isinstance(report, ArrayReport) else report
