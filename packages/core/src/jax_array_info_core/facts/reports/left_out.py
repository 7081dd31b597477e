"""Parts of a report that are left out because of an error in this package."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from ...base.errors import ArrayInfoError
from ...base.text import printable

_T = TypeVar("_T")
_U = TypeVar("_U")
ALL = "all that the compiled program tells"
"""Name of the part with all others that are made of the compiled program."""
_LONGEST = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A part of a report that could not be made. Its fields are None."""

    part: str
    """Name of the part, such as ``collectives``."""

    error: str
    """Last line of the exception, such as ``IndexError: list index out of range``."""

    @property
    def words(self) -> str:
        """The part and the error in a sentence."""
        return f"Left out: {self.part}, because of an error in jax-array-info ({self.error})."


class Parts:
    """Makes the parts of a report, and keeps those that fail.

    Args:
        left_out: Parts that failed before.
    """

    def __init__(self, left_out: Iterable[LeftOut] = ()) -> None:
        self._failed = {part.part: part for part in left_out}

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The parts that failed."""
        return tuple(self._failed.values())

    def made(self, part: str, make: Callable[[], _T], otherwise: _U) -> _T | _U:
        """Return what a function makes, or another value if it raises, now or before.

        Raises:
            ArrayInfoError: What the package refuses. MemoryError and KeyboardInterrupt are raised, too.
        """
        if part not in self._failed:
            try:
                return make()
            except (ArrayInfoError, MemoryError):
                raise
            except Exception as error:  # whatever a program has that nobody has seen
                lines = "".join(traceback.format_exception_only(error)).split("\n")
                last = printable(next(filter(str.strip, reversed(lines)))[:_LONGEST])
                self._failed[part] = LeftOut(part=part, error=last)
        return otherwise
