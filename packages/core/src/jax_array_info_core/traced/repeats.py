"""Panels of several traced values that are inspected by one call, printed once where they are equal."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import NamedTuple, Protocol

from ..reports.array import ArrayReport
from .logs import log_failed_delivery


class Show(Protocol):
    """A function that prints a report, with the number of equal reports for which it is printed."""

    def __call__(self, report: ArrayReport, count: int = 1, /) -> None:
        """Print the report."""


class Call(NamedTuple):
    """A call in the user's code that inspects values: several times if its function is called again."""

    show: Show
    name: str | None
    place: Hashable
    """The call in its file, as ``caller_outside`` returns it."""


class Repeats:
    """The panels of one call in a lowered program.

    A panel waits until each value that the call inspects has a result, and at the longest for the end of the
    compilation, whether it succeeds or fails.
    """

    def __init__(self, show: Show) -> None:
        self.values: set[object] = set()
        """The pending reports of the call in the program."""
        self._show = show
        self._resolved: set[object] = set()
        """Those with a result of the current compilation."""
        # XLA calls back in its own threads, and several threads can compile one program.
        self._waiting: deque[ArrayReport] = deque()

    def add(self, report: ArrayReport, _: int = 1) -> None:
        """Hold a report until its panel is printed."""
        self._waiting.append(report)

    def resolved(self, value: object) -> None:
        """Handle the result of a value."""
        self._resolved.add(value)
        if self._resolved >= self.values:
            self.flush()

    def ended(self) -> None:
        """Handle the end of a compilation."""
        self.flush()
        self._resolved.clear()

    def flush(self) -> None:
        """Print the reports that wait. Errors are logged, and the user's program continues."""
        distinct: list[tuple[ArrayReport, int]] = []
        while self._waiting:
            try:
                report = self._waiting.popleft()
            except IndexError:  # another thread prints it
                break
            index = next((place for place, (other, _) in enumerate(distinct) if other == report), None)
            if index is None:
                distinct.append((report, 1))
            else:
                distinct[index] = (report, distinct[index][1] + 1)
        for report, count in distinct:
            with log_failed_delivery():
                self._show(report, count)
