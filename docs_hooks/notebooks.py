"""Notebooks as pages: a kernel runs their cells when the site is built."""

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
"""HTML of the kinds of output that are not text, the best first."""


def notebook_page(path: Path, code: object) -> str:
    """Return a notebook as a page: its text, its code, and what each cell shows.

    The link to the notebook stands under the first cell.

    Raises:
        PageError: A cell fails, takes too long or ends the kernel.
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
    """Return what each cell shows when a kernel runs them all.

    Raises:
        PageError: A cell fails, takes too long or ends the kernel.
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
        manager.transport, manager.ip = "ipc", f"{folder}/kernel"  # over TCP it warns of eavesdroppers
        with client.setup_kernel(env=environment() | {"IPYTHONDIR": f"{folder}/.ipython"}):
            for number, cell in enumerate(cells):
                try:
                    client.execute_cell(cell, number)
                except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                    raise PageError(f" cell of code {number + 1}: {error}") from None
    return [[_shown(output) for output in cell.outputs] for cell in cells]


def _shown(output: NotebookNode) -> Shown:
    if output.output_type == "stream":
        return Shown(output.text)
    for kind, html in PICTURES.items():
        if kind in output.data:
            return Shown(html=html.format(output.data[kind].strip()))
    return Shown(output.data.get("text/plain", ""))
