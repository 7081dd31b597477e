"""Limits on the number of rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

_T = TypeVar("_T")


def check_max_rows(max_rows: int | None) -> None:
    """Raise ValueError for a negative number of rows."""
    if max_rows is not None and max_rows < 0:
        raise ValueError(f"max_rows must be at least 0, or None for all rows, got {max_rows}")


def split_rows(rows: Sequence[_T], max_rows: int | None) -> tuple[Sequence[_T], Sequence[_T]]:
    """Return the first rows, which are shown, and the remaining rows.

    Args:
        rows: All rows.
        max_rows: Maximum number of rows to show; None for all.

    Raises:
        ValueError: If ``max_rows`` is negative.
    """
    check_max_rows(max_rows)
    shown = rows[:max_rows]
    return shown, rows[len(shown) :]
