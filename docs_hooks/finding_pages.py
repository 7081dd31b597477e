"""Pages of findings: one per code, made of the files in the core, and the table of all codes."""

from __future__ import annotations

import re
from pathlib import Path

from jax_array_info_core.facts.reports.codes import CODES

FOLDER = "packages/core/src/jax_array_info_core/facts/explained"
EXPLAINED = Path(__file__).parent.parent / FOLDER
INDEX = Path(__file__).parent.parent / "docs/findings/index.md"
TABLE = re.compile(r"(?<=^\|---\|---\|---\|---\|\n)(?:\|.*\n)+", re.MULTILINE)
TO_FILE = re.compile(rf"\]\(((?:\.\./)*)\.\./{FOLDER}/")
"""Links to the files, which lead to their pages on the site."""


def finding_pages() -> dict[str, str]:
    """Return the Markdown of the page of each code by its path in ``docs/``."""
    up = "../" * (FOLDER.count("/") + 1)
    return {code.page: code.text.replace(f"]({up}docs/", "](../") for code in CODES.values()}


def index_page() -> str:
    """Return the Markdown of the page of all codes, whose table is that of ``CODES``."""
    links = {code: f"[{code.code}](../../{FOLDER}/{code.code}.md)" for code in CODES.values()}
    table = "".join(
        f"| {link} | `{code.name}` | {code.severity} | {code.meaning} |\n" for code, link in links.items()
    )
    return TABLE.sub(lambda _: table, INDEX.read_text(encoding="utf-8"), count=1)
