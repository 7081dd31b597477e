"""The tour of ``jai-cli demo``: a script, shown and run cell by cell."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any

from jax_array_info.engine.console import on_console
from jax_array_info_core import collect_reports
from jax_array_info_core.pages.blocks import Rule, Sentence, Verbatim

if TYPE_CHECKING:
    from jax_array_info_core.reports import Report


def _cells() -> Iterator[tuple[str, str]]:
    """Yield the title and the code of each cell: what follows a line ``# %% title``."""
    script = resources.files(__package__).joinpath("tour_script.py").read_text(encoding="utf-8")
    _, *parts = re.split(r"^# %% (.+)\n", script, flags=re.MULTILINE)
    yield from zip(parts[::2], (code.strip("\n") for code in parts[1::2]), strict=True)


def show_tour(console: Any) -> None:
    """Run the tour on the devices that JAX sees, and print each cell with its output."""
    namespace: dict[str, Any] = {}
    with contextlib.redirect_stdout(console.file):
        for title, code in _cells():
            console.print(on_console([Sentence(""), Rule(title), Verbatim(code)], width=console.width))
            exec(compile(code, "tour.py", "exec"), namespace)


def collect_tour() -> list[Report]:
    """Run the tour on the devices that JAX sees, and return its reports."""
    namespace: dict[str, Any] = {}
    with collect_reports() as found:
        for _, code in _cells():
            exec(compile(code, "tour.py", "exec"), namespace)
    return list(found)
