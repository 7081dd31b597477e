"""Table of questions of the README, for the pages that repeat it and for ``help(jax_array_info)``."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
HEADING = "## Which call answers your question?\n"
SECTION = re.compile(rf"^{re.escape(HEADING)}.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
CODE = re.compile(r"`([^`]*)`")


def page_with_questions(page: str) -> str:
    """Return a page of ``docs/`` with the README's section of questions in place of its own.

    A page without that heading is returned as it is.
    """
    section = _section().replace("](docs/", "](")
    return SECTION.sub(lambda _: section, page)


def lines_for_help() -> list[str]:
    """Return each question of the table, and below it, indented, each call in Python that answers it."""
    lines = []
    for row in re.findall(r"^\| (.*) \|$", _section(), re.MULTILINE)[1:]:
        question, calls, *_ = row.split(" | ")
        lines += [
            CODE.sub(r"\1", LINK.sub(r"\1", question)),
            *(f"    {call}" for call in CODE.findall(calls)),
        ]
    return lines


def _section() -> str:
    [section] = SECTION.findall(README.read_text(encoding="utf-8"))
    return str(section)
