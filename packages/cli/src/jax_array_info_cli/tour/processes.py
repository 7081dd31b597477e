"""The tour of several processes: process 0 prints the code of a cell, then each process its output."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any

from jax_array_info import gather_reports, mesh_plan
from jax_array_info.console import terminal_console

from .cells import Cell, print_cell, read_cells, run_cell

_TIMEOUT = 600.0
"""Seconds that a process waits for its turn to print."""


def show_tour_of_processes() -> None:
    """Run the tour in this process, together with the other processes."""
    import jax

    console = terminal_console()
    namespace: dict[str, Any] = {}
    for number, cell in enumerate(read_cells("processes_script.py"), 1):
        if jax.process_index() == 0:
            print_cell(number, cell, console)
        printed = _printed_by(cell, namespace)
        jax.block_until_ready([value for value in namespace.values() if isinstance(value, jax.Array)])
        _print_in_turn(printed)


def _printed_by(cell: Cell, namespace: dict[str, Any]) -> str:
    """Run a cell and return its output, to be printed in one piece."""
    encoding = sys.stdout.encoding
    with io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) as file:
        with contextlib.redirect_stdout(file):
            run_cell(cell, namespace)
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
        gather_reports(mesh_plan({"turn": turn + 1}), timeout=_TIMEOUT)


if __name__ == "__main__":
    show_tour_of_processes()
