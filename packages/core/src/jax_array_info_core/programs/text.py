"""Compiled programs as plain values."""

from __future__ import annotations

from typing import Any

from ..compat.executables import text_for_frame_numbers
from ..hlo.frames import renumbered
from ..hlo.module import Module
from ..hlo.read import read_module


def module_of(text: str | None, lowered: Any) -> Module | None:
    """Return a program as plain values; None if its text is not known.

    Args:
        text: The program as XLA prints it.
        lowered: The lowered program; None if it is not known.
    """
    if text is None:
        return None
    mlir = text_for_frame_numbers(lowered)
    return read_module(text if mlir is None else renumbered(text, mlir))
