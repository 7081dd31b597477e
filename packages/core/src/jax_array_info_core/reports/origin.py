"""A line of source that made something."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A line of source that made something."""

    file: str
    """Path of the source file, as Python knows it; ``<stdin>`` and the like where there is none."""

    line: int
    """Number of the line, from 1."""

    function: str
    """Name of the function, ``<module>`` outside any."""

    def __str__(self) -> str:
        """Return it as ``train.py:141 init_params``."""
        name = re.split(r"[\\/]", self.file)[-1]
        return f"{name}:{self.line} {self.function}"
