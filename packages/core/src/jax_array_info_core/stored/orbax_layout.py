"""Directories of Orbax: the item that holds the arrays of a checkpoint."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

from ..errors import FileFormatError
from ..text import printable
from .budget import Budget
from .regular_files import read_whole

METADATA = "_METADATA"
"""File that an item with arrays has."""
_STEP_METADATA = "_CHECKPOINT_METADATA"
_COMMITTED = "commit_success.txt"
_UNFINISHED = ".orbax-checkpoint-tmp"
_STEP = re.compile(r"(?:.*_)?([0-9]{1,18})")
_SHOWN = 10


class Place(NamedTuple):
    """The directory of an item."""

    directory: Path
    part: str
    """The step and the item that were chosen; empty if neither was."""


def item_of(directory: Path, item: str | None, budget: Budget) -> Place:
    """Return the item to read in a directory of Orbax.

    Args:
        directory: Directory of an item, of a step, or of a manager.
        item: Name of the item; None for the only one.
        budget: What the files may take.

    Raises:
        FileFormatError: If there is no complete checkpoint, or the item is not known.
        OSError: If a directory cannot be read.
    """
    absolute = Path(os.path.abspath(directory))
    if any(_UNFINISHED in name for name in absolute.parts):
        raise FileFormatError("an Orbax checkpoint that was not completely written")
    names = _subdirectories(directory)
    if (directory / METADATA).is_file():
        _require_complete(directory, budget)
        if item not in (None, absolute.name):
            raise FileFormatError(f"this is the directory of one item, which has no item {_quoted(item)}")
        return Place(directory, "")
    if not (directory / _STEP_METADATA).exists() and (steps := _steps(directory, names)):
        return _newest(directory, steps, item, budget)
    if (directory / _STEP_METADATA).exists() or _items(directory, names):
        _require_complete(directory, budget)
        return _item_of_step(directory, names, item, "")
    raise FileFormatError(_not_a_checkpoint(directory, names))


def _subdirectories(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if os.path.isdir(entry))  # entry.is_dir fails on loops


def _items(directory: Path, names: list[str]) -> list[str]:
    """Return the items with arrays in the directory of a step."""
    complete = [name for name in names if _UNFINISHED not in name]
    return [name for name in complete if (directory / name / METADATA).is_file()]


def _steps(directory: Path, names: list[str]) -> list[tuple[int, str]]:
    """Return number and name of each step in the directory of a manager, the newest first."""
    steps = []
    for name in names:
        number = _STEP.fullmatch(name.partition(_UNFINISHED)[0])
        if number and (_UNFINISHED in name or _is_step(directory / name)):
            steps.append((int(number[1]), name))
    return sorted(steps, reverse=True)


def _is_step(directory: Path) -> bool:
    known = (METADATA, _STEP_METADATA)
    return any((directory / name).exists() for name in known) or bool(
        _items(directory, _subdirectories(directory))
    )


def _newest(directory: Path, steps: list[tuple[int, str]], item: str | None, budget: Budget) -> Place:
    """Return the item of the newest complete step."""
    for number, name in steps:
        step = directory / name
        if _UNFINISHED in name or not _is_complete(step, budget):
            continue
        part = f"step {number}"
        if (step / METADATA).is_file():
            return Place(step, part)
        return _item_of_step(step, _subdirectories(step), item, part)
    found = ", ".join(printable(name) for _, name in steps[:_SHOWN])
    raise FileFormatError(f"no step of this Orbax checkpoint was completely written: {found}")


def _item_of_step(directory: Path, names: list[str], item: str | None, part: str) -> Place:
    """Return the chosen item of a step, or its only item with arrays."""
    items = _items(directory, names)
    known = ", ".join(map(_quoted, items[:_SHOWN])) + (", …" if len(items) > _SHOWN else "")
    place = part or "the directory"
    if not items:
        raise FileFormatError(f"{place} has no item with arrays")
    if item is None and len(items) > 1:
        raise FileFormatError(
            f"{place} has the items {known}: choose one with item={_quoted(items[0])}, "
            f"or pass {printable(os.fspath(directory / items[0]))}"
        )
    chosen = items[0] if item is None else item
    if chosen not in items:
        raise FileFormatError(f"{place} has no item {_quoted(chosen)} with arrays: it has {known}")
    named = f"item {printable(chosen)}" if len(items) > 1 else ""
    return Place(directory / chosen, ", ".join(filter(None, (part, named))))


def _require_complete(directory: Path, budget: Budget) -> None:
    if not _is_complete(directory, budget):
        raise FileFormatError("an Orbax checkpoint that was not completely written")


def _is_complete(directory: Path, budget: Budget) -> bool:
    """Return whether the checkpoint in a directory was committed. Checkpoints before Orbax 0.6 do not say."""
    if any(_UNFINISHED in name for name in _subdirectories(directory)):
        return False
    if (directory / _COMMITTED).exists() or not (directory / _STEP_METADATA).exists():
        return True
    try:
        found = json.loads(read_whole(directory / _STEP_METADATA, budget))
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("commit_timestamp_nsecs") is not None


def _not_a_checkpoint(directory: Path, names: list[str]) -> str:
    """Return why a directory cannot be read, with the file in it that can be."""
    files = sorted(path.name for path in directory.iterdir() if path.is_file())
    if not files and not names:
        return "an empty directory"
    problem = "a directory that is not an Orbax checkpoint"
    for suffix in (".safetensors.index.json", ".safetensors", "_shardings.json", ".npz"):
        for name in files:
            if name.endswith(suffix):
                return f"{problem}: choose a file in it, such as {printable(name)}"
    return problem


def _quoted(name: str | None) -> str:
    return printable(repr(name))
