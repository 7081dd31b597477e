"""Notebooks as pages: their cells are blocks, and a kernel runs them when the site is built."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from .blocks import Block, BlockError, Shown
from .environment import environment
from .fences import CELL
from .lifelines import Lifeline
from .running import SECONDS


def markdown_of(path: Path) -> str:
    """Return a notebook as a page: its text, and a fence for each cell of code.

    The link to the notebook stands under the first cell.
    """
    parts: list[str] = []
    count = 0
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            count += 1
            ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", cell.source)), default=0))
            parts.append(f'{ticks}python {CELL}="{count}"\n{cell.source}\n{ticks}')
        else:
            parts.append(cell.source)
        if len(parts) == 1:
            parts.append(f"[Download this notebook]({path.name})")
    return "\n\n".join(parts) + "\n"


def run_notebook(path: Path, blocks: Sequence[Block]) -> list[tuple[Shown, ...]]:
    """Return what each cell of code of a notebook shows when a kernel runs them all.

    Raises:
        BlockError: A cell fails, takes too long or ends the kernel.
    """
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    with tempfile.TemporaryDirectory(prefix="notebook") as folder, Lifeline() as lifeline:
        client = NotebookClient(
            notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        manager = client.create_kernel_manager()
        manager.transport, manager.ip = "ipc", f"{folder}/kernel"  # no port, no key
        kernel = manager.kernel_spec
        assert kernel is not None
        kernel.argv = [*lifeline.words, *kernel.argv]
        try:
            client.execute(
                env=environment(devices=0, width=80) | {"IPYTHONDIR": f"{folder}/.ipython"},
                pass_fds=lifeline.descriptors,
            )
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            # An empty cell is not begun.
            last = max(
                (number for number, cell in enumerate(cells) if "execution" in cell.metadata), default=0
            )
            printed = "".join(_shown(output).text for output in cells[last].outputs)
            reason = str(error) if isinstance(error, CellExecutionError) else f"{error}\n{printed}"
            raise BlockError(blocks[last], reason) from None
    return [tuple(map(_shown, cell.outputs)) for cell in cells]


def _shown(output: NotebookNode) -> Shown:
    if output.output_type == "stream":
        return Shown(output.text)
    if output.output_type == "error":
        return Shown("\n".join(output.traceback))
    for kind in ("text/html", "image/svg+xml"):
        if kind in output.data:
            return Shown(html=output.data[kind])
    if "image/png" in output.data:
        return Shown(html=f'<img alt="" src="data:image/png;base64,{output.data["image/png"].strip()}">')
    return Shown(output.data.get("text/plain", ""))
