"""``jai-cli FILE``: what a file or a folder is, and the command that shows it."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import NamedTuple

from jax_array_info_core.text import printable

from .usage import Refusal

LOGS = (".log", ".txt", ".out", ".err")
"""Suffixes of the logs in a folder."""
_TREES = (".json", ".npz", ".npy", ".safetensors")
_REPORT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"report"\s*:\s*"(\w+)"')
"""Start of a saved report, or of the summary before it."""
_HEAD = 64
_DEEPEST = 3
"""Folders inside each other from a manager's to that of an item with arrays."""


class Entry(NamedTuple):
    """How a file or a folder is read."""

    command: str
    """Name of the command that reads it."""
    kind: str
    """What it is, in words."""


def is_path(word: str) -> bool:
    """Return whether a word that is not a command looks like a path, or is one."""
    return "/" in word or "." in word or Path(word).exists()


def entry_of(name: str) -> Entry:
    """Return how a file or a folder is read, by its content.

    Raises:
        Refusal: If no command shows it without further arguments, or it cannot be read.
    """
    path, shown = Path(name), printable(name)
    try:
        if path.is_dir():
            return _entry_of_folder(path, shown)
        if path.suffix == ".py":
            takers = f"jai-cli run {shown} runs it; jai-cli program and why take {shown}:FUNCTION"
            raise Refusal(f"{shown}: a program: {takers}")
        head = b""
        if path.is_file():  # others, such as pipes, are read once
            with path.open("rb") as file:
                head = file.read(_HEAD)
        elif not path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except OSError as error:
        raise Refusal(f"{shown}: {error.strerror or error}") from error
    if report := _REPORT.match(head):
        is_tree = report[1] == b"TreeReport"
        return Entry("tree", "a saved tree") if is_tree else Entry("report", "a saved report")
    if path.suffix.lower() in _TREES or head.startswith((b"PK\x03\x04", b"\x93NUMPY")):
        return Entry("tree", "the arrays of a file")
    if head.startswith(b"\x1f\x8b"):
        return Entry("profile", "a device memory profile")
    return Entry("log", "a log")


def _entry_of_folder(folder: Path, shown: str) -> Entry:
    from jax_array_info_core.stored.orbax import METADATA

    if any(folder.glob("*.jsonl")):
        return Entry("memory", "a record of memory")
    for path in folder.glob("*.json"):
        with path.open("rb") as file:
            if _REPORT.match(file.read(_HEAD)):
                return Entry("hosts", "the reports of processes")
    if any(any(folder.glob("*/" * depth + METADATA)) for depth in range(_DEEPEST)):
        return Entry("tree", "an Orbax checkpoint")
    if any(path.suffix in LOGS for path in folder.iterdir()):
        return Entry("log", "logs")
    kinds = f"a record (*.jsonl), saved reports (*.json), a checkpoint, logs ({', '.join(LOGS)})"
    raise Refusal(f"{shown}: a folder with none of these: {kinds}")
