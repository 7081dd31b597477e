"""Run a page's blocks in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from .blocks import Console, Python
from .worker import RECORD

WORKER = Path(__file__).parent / "worker.py"
PACKAGES = Path(__file__).parent.parent / "packages"
INHERITED = ("PATH", "HOME", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE")
"""Variables that programs need to be found and to run; no other setting of the builder comes onto a page."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One piece of a block's output: a command, HTML, then text with a terminal's colours."""

    text: str = ""
    html: str = ""
    command: str = ""


class BlockError(Exception):
    """A block fails, takes too long or does not do what its options say.

    Attributes:
        number: The place of the block among those of its page, from 0.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


def environment() -> dict[str, str]:
    """Return the variables of every process of a page."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ} | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "COLUMNS": "80",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "FORCE_COLOR": "1",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",  # what a block has printed is there however its process ends
    }


def code_as_it_is() -> tuple[object, ...]:
    """Return a key that changes with the code of the packages."""
    return tuple((path, path.stat().st_mtime_ns) for path in [WORKER, *PACKAGES.rglob("*.py")])


@cache
def run_blocks(blocks: tuple[Python | Console, ...], code: object) -> list[list[Shown]]:
    """Return the output of each block of a page, pieces in their order.

    The cache is for ``mkdocs serve``: a save runs only the pages whose blocks have changed.

    Args:
        blocks: They run in one folder, each after the one before it.
        code: From ``code_as_it_is``.

    Raises:
        BlockError: A block fails.
    """
    shown: list[list[Shown]] = [[] for _ in blocks]
    with tempfile.TemporaryDirectory(prefix="page") as temporary:
        folder = Path(temporary).resolve()
        for requests in _processes(blocks):
            status, printed = _run(requests, folder)
            number: int | None = requests[0]["number"]
            for piece in printed.split(RECORD)[1:]:
                head, _, text = piece.partition("\n")
                first = json.loads(head)
                number = first.pop("number")
                if number is not None:
                    shown[number].append(Shown(text, **first))
            if number is not None:
                text = "".join(piece.text for piece in shown[number])
                raise BlockError(number, f"its process ended with {status}\n{text}")
    return shown


def names_of(blocks: Iterable[Python | Console]) -> list[str]:
    """Return the file name of each block: its own, or one with its number among the Python that runs."""
    numbers = count(1)
    return [
        (block.file or f"block{next(numbers)}.py") if isinstance(block, Python) else "" for block in blocks
    ]


def _processes(blocks: Iterable[Python | Console]) -> Iterator[list[dict[str, Any]]]:
    """Yield the blocks of each process, with their numbers and file names."""
    requests: list[dict[str, Any]] = []
    for number, (block, name) in enumerate(zip(blocks, names_of(blocks), strict=True)):
        if requests and block.fresh == "yes":
            yield requests
            requests = []
        requests.append(msgspec.to_builtins(block) | {"number": number, "name": name})
    if requests:
        yield requests


def _run(requests: list[dict[str, Any]], folder: Path) -> tuple[int, str]:
    """Run blocks in a process; return its exit code and its output, without the name of the folder."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.run(
            [sys.executable, str(WORKER)],
            input=json.dumps(requests).encode(),
            cwd=folder,
            env=environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        output.seek(0)
        return process.returncode, output.read().replace(f"{folder}/", "").replace(str(folder), ".")
