"""Texts of compiled programs of all versions, of TPU and of GPU. ``tests/data/hlo/programs.py`` has the programs."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "hlo"
SUFFIX = ".tar.xz"

CPU = ("0.4.38", "0.5.3", "0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.10.2", "0.11.2", "0.12.0.1")
"""Versions of JAX with programs for CPU."""

ACCELERATORS = ("v5p", "v5e", "h100")
"""Devices with programs of JAX 0.12.0.1."""

EVERYWHERE = CPU + ACCELERATORS
"""All of them."""


@cache
def texts(where: str) -> dict[str, str]:
    """Return the texts of all programs by name, such as ``step``, for a version or a device."""
    found = {}
    with tarfile.open(FOLDER / f"{where}{SUFFIX}") as archive:
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            found[entry.name.removesuffix(".txt")] = file.read().decode()
    return found


def text(where: str, program: str) -> str:
    """Return the text of a program, such as ``step``, for a version or a device."""
    return texts(where)[program]
