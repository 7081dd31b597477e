"""Notebooks as pages, with cells that run when the site is built."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from .blocks import PageError
from .pages import TICKS, output_fence
from .running import Shown, environment
from .terminal import frame
from .worker import SECONDS

PICTURES = {
    "text/html": "{}",
    "image/svg+xml": "{}",
    "image/png": '<img alt="" src="data:image/png;base64,{}">',
}
"""HTML templates for outputs other than text, by MIME type in order of preference."""


def notebook_page(path: Path, code: object) -> str:
    """Return a notebook as a page: its text, its code, and the output of each cell.

    A download link follows the first cell.

    Raises:
        PageError: If a cell fails, times out or ends the kernel.
    """
    cells = nbformat.read(path, as_version=4).cells
    shown = iter(run_cells(tuple(cell.source for cell in cells if cell.cell_type == "code"), code))
    parts = []
    for cell in cells:
        if cell.cell_type == "code":
            parts += [f"{TICKS}python\n{cell.source}\n{TICKS}", output_fence(frame(next(shown)))]
        else:
            parts.append(cell.source)
    return "\n\n".join([parts[0], f"[Download this notebook]({path.name})", *parts[1:]]) + "\n"


@cache
def run_cells(sources: tuple[str, ...], code: object) -> list[list[Shown]]:
    """Run code cells in one kernel and return the output of each.

    Raises:
        PageError: If a cell fails, times out or ends the kernel.
    """
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    with tempfile.TemporaryDirectory(prefix="notebook") as folder:
        client = NotebookClient(
            nbformat.v4.new_notebook(cells=cells),
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        manager = client.create_kernel_manager()
        manager.transport, manager.ip = "ipc", f"{folder}/kernel"  # over TCP, it prints a security warning
        with client.setup_kernel(env=environment() | {"IPYTHONDIR": f"{folder}/.ipython"}):
            for number, cell in enumerate(cells):
                try:
                    client.execute_cell(cell, number)
                except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                    raise PageError(f" code cell {number + 1}: {error}") from None
    return [[_shown(output) for output in cell.outputs] for cell in cells]


def _shown(output: NotebookNode) -> Shown:
    if output.output_type == "stream":
        return Shown(output.text)
    for mime_type, html in PICTURES.items():
        if mime_type in output.data:
            return Shown(html=html.format(output.data[mime_type].strip()))
    return Shown(output.data.get("text/plain", ""))
