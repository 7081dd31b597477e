"""Allocation sites: lines of source code."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A line of source code: the allocation site of an array, or the definition of a function."""

    file: str
    """Path of the source file as Python records it; a name such as ``<stdin>`` for code without a file."""

    line: int
    """Line number, from 1."""

    function: str
    """Name of the function; ``<module>`` for module-level code."""

    def __str__(self) -> str:
        """Return the text form, such as ``train.py:141 init_params``."""
        name = re.split(r"[\\/]", self.file)[-1]
        return f"{name}:{self.line} {self.function}"
