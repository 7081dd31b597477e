"""Reference page of the columns of tables, generated from the tables that pages declare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from jax_array_info_core.base.grouping import by_key
from jax_array_info_core.facts import pages
from jax_array_info_core.facts.pages.blocks import Column

PAGE = """# Columns of tables

Look up a column of a printed table. In a notebook and in HTML, the head of a column has the same text as a
tooltip. Columns without content are left out, and a narrow table has several in one. Bytes are binary:
1 KiB is 1,024 bytes. The [glossary](../glossary.md) explains the terms.

{sections}
"""


def column_page() -> str:
    """Return the page: for each module of pages, what prints it, and each of its tables."""
    return PAGE.format(sections="\n\n".join(_sections()))


def tables_of_pages() -> dict[str, dict[str, Sequence[Column]]]:
    """Return the tables that each module of pages declares, in the order of the classes of reports."""
    names = dict.fromkeys(shown.page.partition(".")[0] for shown in pages.REPORTS.values())
    modules = {name: import_module(f"{pages.__name__}.{name}") for name in names}
    return {name: module.TABLES for name, module in modules.items() if hasattr(module, "TABLES")}


def _sections() -> Iterator[str]:
    """Yield the heading of each module, and those of its tables with their columns."""
    shown = by_key((one.page.partition(".")[0], one) for one in pages.REPORTS.values())
    for name, tables in tables_of_pages().items():
        verbs = dict.fromkeys(f"`{one.verb}`" for one in shown[name])
        commands = dict.fromkeys(f"`jai-cli {one.command}`" for one in shown[name] if one.command)
        yield f"## {', '.join([*verbs, *commands])}"
        for title, columns in tables.items():
            yield f"### {title}"
            yield "\n".join(["| column | meaning |", "|---|---|", *_rows(columns)])


def _rows(columns: Sequence[Column]) -> Iterator[str]:
    """Yield the row of each column with a meaning, but for those that stand for others."""
    for column in columns:
        if column.meaning and not column.replaces:
            yield f"| `{column.title.strip() or column.name}` | {column.meaning} |"
