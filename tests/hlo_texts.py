"""Records of compiled programs of all versions, of TPU and of GPU. ``tests/data/hlo/programs.py`` has the programs.

Beside each record is its text, to be read by people.
"""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path

from jax_array_info_core.xla.hlo.module import Module, read_module
from tests.hlo_assembler import assembled

FOLDER = Path(__file__).parent / "data" / "hlo"
SUFFIX = ".tar.xz"

CPU = ("0.4.38", "0.5.3", "0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.10.2", "0.11.2", "0.12.0.1")
"""Versions of JAX with programs for CPU."""

ACCELERATORS = ("v5p", "v5e", "h100")
"""Devices with programs of JAX 0.12.0.1."""

EVERYWHERE = CPU + ACCELERATORS
"""All of them."""


@cache
def records(where: str) -> dict[str, bytes]:
    """Return the records of all programs by name, such as ``step``, for a version or a device."""
    found = {}
    with tarfile.open(FOLDER / f"{where}{SUFFIX}") as archive:
        for entry in archive:
            file = archive.extractfile(entry)
            assert file is not None
            if entry.name.endswith(".pb"):
                found[entry.name.removesuffix(".pb")] = file.read()
    return found


def stored(where: str, program: str) -> Module:
    """Return a program, such as ``step``, for a version or a device."""
    return read_module(records(where)[program])


def module_of(text: str) -> Module:
    """Return the program of a text: see ``hlo_assembler``."""
    return read_module(assembled(text))


def entry_of(*lines: str, before: str = "", header: str = "is_scheduled=true") -> Module:
    """Return the program whose entry has some lines, with other computations before it."""
    body = "\n".join(lines)
    return module_of(f"HloModule test, {header}\n\n{before}\n\nENTRY %main {{\n{body}\n}}\n")
