"""A scanner of short texts, whose errors show the place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from ..errors import NotationError

_T = TypeVar("_T")


class Scanner:
    """Reads a text from left to right, and knows where it stopped."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def take(self, pattern: str) -> str | None:
        """Return what matches here, after blanks, and go past it; None where nothing does."""
        match = re.compile(rf"\s*({pattern})").match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match[1]

    def expect(self, pattern: str, what: str) -> str:
        """Return what matches here and go past it, or fail saying what was expected."""
        found = self.take(pattern)
        if found is None:
            self.fail(f"expected {what}")
        return found

    def number(self, *, least: int = 0) -> int:
        """Return a decimal number."""
        before = self.position
        digits = self.expect(r"[0-9]+", "a number")
        if len(digits) > 18:
            self.fail("expected a number of at most 18 digits", before)
        number = int(digits)
        if number < least:
            self.fail(f"expected a number of at least {least}", before)
        return number

    def listed(self, item: Callable[[], _T], closing: str) -> tuple[_T, ...]:
        """Return items separated by commas, up to and past what closes them."""
        items: list[_T] = []
        while self.take(re.escape(closing)) is None:
            items.append(item())
            if self.take(",") is None:
                self.expect(re.escape(closing), f"',' or '{closing}'")
                break
        return tuple(items)

    def separated(self, item: Callable[[], _T], by: str) -> tuple[_T, ...]:
        """Return one item or more with a separator between them."""
        items = [item()]
        while self.take(by):
            items.append(item())
        return tuple(items)

    def at_end(self) -> bool:
        """Return whether only blanks are left."""
        return self.take(r"\Z") is not None

    def end(self) -> None:
        """Fail where anything but blanks is left."""
        if not self.at_end():
            self.fail("expected the end")

    def fail(self, problem: str, position: int | None = None) -> NoReturn:
        """Raise the error that shows the text with a caret under the place."""
        at = self.position if position is None else position
        at += len(self.text[at:]) - len(self.text[at:].lstrip())
        raise NotationError(self.text, at, problem)
