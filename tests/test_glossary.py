"""Tests of the glossary, whose terms are in use, and of columns: each that its head does not explain has a meaning."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from docs_hooks.column_page import column_page, tables_of_pages
from jax_array_info_core import from_json, json_schema
from jax_array_info_core.facts.pages import REPORTS, blocks, page
from tests.goldens import NAMES, stored
from tests.schemas import covering
from tests.test_voice import PACKAGES, PAGES, docstrings_of, strings_of, tree_of

pytestmark = pytest.mark.newest

DOCS = Path(__file__).parent.parent / "docs"
GLOSSARY = DOCS / "glossary.md"
MOST_TERMS = 65
MOST_WORDS = 25
TURNS = 20
OPTIONS = {
    "DevicesReport": [{}, {"kinds": True}],
    "LiveArrayReport": [{"by": by} for by in ("shape", "origin", "device", "dtype", "sharding")],
    "TreeReport": [{"sort": sort} for sort in ("tree", "waste")],
}
"""Options of pages that decide on their tables."""
PLAIN = {"device", "dtype", "function", "leaf", "path"}
"""Heads that say all."""
SYMBOLS = re.compile(r"`[^`]*`|×\d+")
"""What terms have for example: ``sharded over `x` ``."""


def terms():
    """Return the words of the first column of the glossary's tables."""
    rows = [
        line.split("|")[1].strip() for line in GLOSSARY.read_text("utf-8").splitlines() if line[:2] == "| "
    ]
    return [row for row in rows if row != "term"]


@cache
def texts():
    """Return the other pages, and the docstrings and strings of the packages, in lower case on one line."""
    texts = [
        path.read_text("utf-8") for path in PAGES if path not in (GLOSSARY, DOCS / "reference/columns.md")
    ]
    for module in PACKAGES:
        tree = tree_of(module)
        texts += [*(node.value for node in docstrings_of(tree)), *strings_of(tree)]
    return " ".join(" ".join(texts).split()).lower()


def reports():
    """Yield the stored reports, and those of each class with every field."""
    yield from (stored(name)[0] for name in NAMES)
    schema = json_schema()
    for choice in schema["oneOf"]:
        name = choice["$ref"].rpartition("/")[2]
        for made in covering(schema, name, lambda *_: "qx", TURNS)[0]:
            yield from_json(json.dumps({"report": name, "schema_version": 3, **made}))


def columns_of_pages():
    """Yield each column of each page of the reports, with the module of the page."""
    for report in reports():
        name = type(report).__name__
        module, _, _ = REPORTS[name].page.partition(".")
        for options in OPTIONS.get(name, [{}]):
            every = blocks.cut(page(report, **options), None)
            tables = (block for block in every if isinstance(block, blocks.Table))
            yield from ((module, column) for table in tables for column in table.columns)


def declared_columns():
    """Yield each column that a module of pages declares, with the module."""
    for module, tables in tables_of_pages().items():
        yield from ((module, column) for columns in tables.values() for column in columns)


def test_the_glossary_has_few_terms_and_each_is_in_use():
    found = terms()
    assert len(found) == len({*found}) <= MOST_TERMS
    words = [SYMBOLS.sub("", term).strip().lower() for term in found]
    assert [one for one in words if not re.search(rf"(?<!\w){re.escape(one)}s?(?!\w)", texts())] == []


def test_pages_show_the_columns_that_they_declare():
    shown, declared = (
        {(module, column.title, column.meaning) for module, column in columns}
        for columns in (columns_of_pages(), declared_columns())
    )
    assert sorted(shown - declared) == []
    assert sorted(declared - shown) == []


def test_each_column_that_its_head_does_not_explain_has_a_short_meaning():
    for module, column in declared_columns():
        where = f"{module}: {column.title}"
        assert column.meaning or column.title in PLAIN or column.replaces, where
        assert len(column.meaning.split()) <= MOST_WORDS, where
        assert not re.search(r"^[A-Z](?![A-Z])|\.$|\s{2}|\n", column.meaning), where


def test_the_page_of_columns_is_that_of_the_code():
    assert (DOCS / "reference/columns.md").read_text("utf-8") == column_page()
