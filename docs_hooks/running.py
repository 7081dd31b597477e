"""Execution of a page's blocks in separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from jax_array_info_core.base.files import write_whole

from .blocks import Console, Python
from .worker import RECORD, UNOPTIMIZED

WORKER = Path(__file__).parent / "worker.py"
KEPT = Path(__file__).parent.parent / ".nox" / "pages"
"""Folder of the output of the last run of each page, by the hash of its blocks."""
AT_ONCE = min(os.cpu_count() or 1, 4)
"""Number of pages that run at the same time."""
PACKAGES = Path(__file__).parent.parent / "packages"
INHERITED = ("PATH", "HOME", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE")
"""Environment variables that programs need; all others stay out of the build, so that pages do not vary."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A piece of a block's output: a command, HTML and its plain text, then text with terminal escapes."""

    text: str = ""
    html: str = ""
    plain: str = ""
    command: str = ""


class BlockError(Exception):
    """A block that fails, times out or contradicts its options.

    Attributes:
        number: Index of the block on its page, from 0.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number = number


def environment() -> dict[str, str]:
    """Return the environment variables of the processes of a page."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ} | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": UNOPTIMIZED,
        "TF_CPP_MIN_LOG_LEVEL": "2",  # XLA's warnings have times
        "COLUMNS": "80",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "FORCE_COLOR": "1",
        "PYTHON_COLORS": "0",  # tracebacks are the same on each version of Python
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONUTF8": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",  # keeps the output if the process is killed
    }


def code_as_it_is() -> tuple[object, ...]:
    """Return a cache key that changes with the source of the packages, with Python and with JAX."""
    files = [WORKER, *PACKAGES.rglob("*.py")]
    return sys.version, version("jax"), *((path, path.stat().st_mtime_ns) for path in files)


@cache
def run_blocks(blocks: tuple[Python | Console, ...], code: object) -> list[list[Shown]]:
    """Run the blocks of a page and return the output pieces of each.

    The cache is for ``mkdocs serve``: a save runs only pages with changed blocks. Files keep it for the next
    build, except in CI, which runs all pages.

    Args:
        blocks: The blocks, which run in order and share a working directory.
        code: Cache key from ``code_as_it_is``.

    Raises:
        BlockError: If a block fails.
    """
    if code is None or "CI" in os.environ:
        return _run_all(blocks)
    kept, key = KEPT / sha256(repr(blocks).encode()).hexdigest(), sha256(repr(code).encode()).hexdigest()
    if kept.exists():
        last, shown = msgspec.json.decode(kept.read_bytes(), type=tuple[str, list[list[Shown]]])
        if last == key:
            return shown
    shown = _run_all(blocks)
    KEPT.mkdir(parents=True, exist_ok=True)
    write_whole(kept, msgspec.json.encode((key, shown)))
    return shown


def _run_all(blocks: tuple[Python | Console, ...]) -> list[list[Shown]]:
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
    """Return the file name of each block: its option, or one with its number among the Python blocks."""
    numbers = count(1)
    return [
        (block.file or f"block{next(numbers)}.py") if isinstance(block, Python) else "" for block in blocks
    ]


def _processes(blocks: Iterable[Python | Console]) -> Iterator[list[dict[str, Any]]]:
    """Yield the blocks of each process, with their numbers and file names, as JSON values."""
    requests: list[dict[str, Any]] = []
    for number, (block, name) in enumerate(zip(blocks, names_of(blocks), strict=True)):
        if requests and block.fresh == "yes":
            yield requests
            requests = []
        requests.append(msgspec.to_builtins(block) | {"number": number, "name": name})
    if requests:
        yield requests


def _run(requests: list[dict[str, Any]], folder: Path) -> tuple[int, str]:
    """Run blocks in a process and return its exit code and its output, without the path of the folder."""
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
