"""How many rows of a table are shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


def check_max_rows(max_rows: int | None) -> None:
    """Raise ValueError for what is no number of rows."""
    if max_rows is not None and max_rows < 0:
        raise ValueError(f"max_rows must be at least 0, or None for all rows, got {max_rows}")


def split_rows(rows: Sequence[_T], max_rows: int | None) -> tuple[Sequence[_T], Sequence[_T]]:
    """Return the rows that are shown, and what is left.

    Args:
        rows: All of them.
        max_rows: How many to show; None for all.

    Raises:
        ValueError: that is no number of rows.
    """
    check_max_rows(max_rows)
    shown = rows[:max_rows]
    return shown, rows[len(shown) :]
