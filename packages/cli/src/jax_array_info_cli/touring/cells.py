"""Shows a script cell by cell: the code of each, then what it prints."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any, NamedTuple

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from jax_array_info.consoles import terminal_console
from jax_array_info.style import marks


class Cell(NamedTuple):
    """A part of a script that begins with a line ``# %% title``."""

    title: str
    code: str


def split_cells(script: str) -> list[Cell]:
    """Return the cells of a script; what stands before the first one belongs to none."""
    _, *parts = re.split(r"^# %% (.+)\n", script, flags=re.MULTILINE)
    return [Cell(title, code.strip("\n")) for title, code in zip(parts[::2], parts[1::2], strict=True)]


def _heading(title: str, console: Console) -> Text:
    """Return a title and the rest of its line as a rule; a long title wraps."""
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
    """Run a cell after those that ran in the same namespace."""
    exec(compile(cell.code, "<tour>", "exec"), namespace)


def show_tour() -> None:
    """Run the tour on the devices that JAX finds."""
    console = terminal_console()
    namespace: dict[str, Any] = {}
    for number, cell in enumerate(read_cells("one_process_script.py"), 1):
        print_cell(number, cell, console)
        run_cell(cell, namespace)
