"""Compiled programs as plain values."""

from __future__ import annotations

from ..compat.frame_numbers import text_for_frame_numbers
from ..compat.stages import Stages, program_text
from ..hlo.module import Module
from ..hlo.read import read_module
from ..hlo.renumbered_frames import renumbered


def module_of(stages: Stages) -> Module | None:
    """Return the compiled program; None if it is not compiled.

    Args:
        stages: The stages of the program.
    """
    if stages.compiled is None:
        return None
    text = program_text(stages.compiled)
    mlir = text_for_frame_numbers(stages.lowered)
    return read_module(text if mlir is None else renumbered(text, mlir))
