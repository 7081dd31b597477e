"""Tables with cells that fold on narrow consoles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from rich.console import RenderableType
from rich.table import Table


def folding_table(title: RenderableType, columns: Iterable[str]) -> Table:
    """Return a table without rows.

    Args:
        title: Title above the table.
        columns: Heads of the columns. A leading ``>`` aligns the column right. A column without a head never
            folds.
    """
    table = Table(title=cast(str, title))  # Rich accepts any renderable as a title
    for name in columns:
        table.add_column(
            name.removeprefix(">"),
            justify="right" if name.startswith(">") else "left",
            overflow="fold",
            no_wrap=not name,
        )
    return table
