"""A scanner for short texts, with errors that mark the position."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from ..errors import NotationError

_T = TypeVar("_T")


class Scanner:
    """A text and the position up to which it has been read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def take(self, pattern: str) -> str | None:
        """Skip blanks, then return the text that matches a pattern and move past it; None without a match."""
        match = re.compile(rf"\s*+({pattern})").match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match[1]

    def expect(self, pattern: str, expected: str) -> str:
        """Return the text that matches a pattern and move past it, or raise an error with the expectation."""
        found = self.take(pattern)
        if found is None:
            self.fail(f"expected {expected}")
        return found

    def number(self, *, least: int = 0) -> int:
        """Read a decimal number."""
        before = self.position
        digits = self.expect(r"[0-9]+", "a number")
        if len(digits) > 18:
            self.fail("expected a number of at most 18 digits", before)
        number = int(digits)
        if number < least:
            self.fail(f"expected a number of at least {least}", before)
        return number

    def listed(self, item: Callable[[], _T], closing: str) -> tuple[_T, ...]:
        """Read items separated by commas, and the text that closes the list."""
        items: list[_T] = []
        while self.take(re.escape(closing)) is None:
            items.append(item())
            if self.take(",") is None:
                self.expect(re.escape(closing), f"',' or '{closing}'")
                break
        return tuple(items)

    def separated(self, item: Callable[[], _T], by: str) -> tuple[_T, ...]:
        """Read one or more items with a separator between them."""
        items = [item()]
        while self.take(by):
            items.append(item())
        return tuple(items)

    def at_end(self) -> bool:
        """Return whether only blanks remain."""
        return self.take(r"\Z") is not None

    def end(self, expected: str = "the end") -> None:
        """Raise an error if anything but blanks remains."""
        if not self.at_end():
            self.fail(f"expected {expected}")

    def fail(self, problem: str, position: int | None = None) -> NoReturn:
        """Raise an error that shows the text with a caret under a position, the current one by default."""
        at = self.position if position is None else position
        at += len(self.text[at:]) - len(self.text[at:].lstrip())
        raise NotationError(self.text, at, problem)
