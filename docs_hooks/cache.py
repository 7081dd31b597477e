"""Keeps what the blocks of a page showed, until something that decides it changes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from .blocks import Block, Shown
from .environment import ROOT, fingerprint

FOLDER = ROOT / ".cache" / "site"

Run = Callable[[Sequence[Block]], list[tuple[Shown, ...]]]


def cached(blocks: Sequence[Block], run: Run, folder: Path = FOLDER) -> list[tuple[Shown, ...]]:
    """Return what ``run`` returns for the blocks, from the folder where it is known.

    It is kept by the blocks with their options, but not where they stand; the sources of the packages and of
    this one; and the versions of jax and Python.
    """
    placeless = [msgspec.to_builtins(block) for block in blocks]
    for facts in placeless:
        del facts["line"]
    key = hashlib.sha256(msgspec.json.encode([fingerprint(), placeless])).hexdigest()
    path = folder / f"{key}.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=list[tuple[Shown, ...]])
    results = run(blocks)
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(msgspec.json.encode(results))
    unfinished.replace(path)
    return results
