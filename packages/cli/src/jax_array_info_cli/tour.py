"""Shows a script cell by cell: the code of each, then what it prints."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any, NamedTuple

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

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


def show_tour() -> None:
    """Run the tour on the devices that JAX finds."""
    script = resources.files(__package__).joinpath("tour_script.py").read_text(encoding="utf-8")
    console = Console()
    namespace: dict[str, Any] = {}
    for number, cell in enumerate(split_cells(script), 1):
        console.print()
        console.print(_heading(f"{number}. {cell.title} ", console))
        console.print(
            Syntax(cell.code, "python", theme="ansi_dark", background_color="default", word_wrap=True)
        )
        console.print()
        exec(compile(cell.code, "<tour>", "exec"), namespace)
