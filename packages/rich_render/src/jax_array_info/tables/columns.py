"""Tables whose cells fold where a line is too short."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from rich.console import RenderableType
from rich.table import Table


def folding_table(title: RenderableType, columns: Iterable[str]) -> Table:
    """Return a table without rows.

    Args:
        title: Its title.
        columns: Headings of its columns; ``>`` before a heading aligns the column right. A column without a
            heading never folds.
    """
    table = Table(title=cast(str, title))  # rich draws any renderable as a title
    for name in columns:
        table.add_column(
            name.removeprefix(">"),
            justify="right" if name.startswith(">") else "left",
            overflow="fold",
            no_wrap=not name,
        )
    return table
