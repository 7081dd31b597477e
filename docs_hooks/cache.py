"""Keeps what the blocks of a page showed, until something that decides it changes."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from .blocks import Block, Shown
from .environment import ROOT

FOLDER = ROOT / ".cache" / "site"

Run = Callable[[Sequence[Block]], list[tuple[Shown, ...]]]


def cached(
    blocks: Sequence[Block], run: Run, surroundings: str, folder: Path = FOLDER
) -> list[tuple[Shown, ...]]:
    """Return what ``run`` returns for the blocks, from the folder where it is known.

    Args:
        blocks: They are the same with their options, wherever they stand.
        run: What runs them.
        surroundings: The fingerprint of all else that decides what they show.
        folder: Where it is kept, a file for each page.
    """
    placeless = [msgspec.to_builtins(block) for block in blocks]
    for facts in placeless:
        del facts["line"]
    key = hashlib.sha256(msgspec.json.encode([surroundings, placeless])).hexdigest()
    path = folder / f"{key}.json"
    with suppress(FileNotFoundError, msgspec.DecodeError):  # a file that was cut off is none
        return msgspec.json.decode(path.read_bytes(), type=list[tuple[Shown, ...]])
    results = run(blocks)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as unfinished:
        unfinished.write(msgspec.json.encode(results))
    Path(unfinished.name).replace(path)
    return results
