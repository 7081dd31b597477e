"""Tests of the glossary: it has each label that is printed, and each of its entries is printed."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest
from rich.table import Table

from jax_array_info_core import from_json, json_schema, planned_report, shard_report, xla_report
from jax_array_info_core.pages import blocks, page
from tests.core.reports.test_json import every_report
from tests.rendered import as_text
from tests.schemas import complete
from tests.test_voice import PACKAGES, strings_of

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parent.parent
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TEXT = "qx"
"""Text of every field of a report; no label has it."""
TURNS = 60
BOXES = re.compile(r"[\u2500-\u257f]")
OUTPUT = re.compile(r"^([ >]*)(`{3,})(?:text|console)[^\n]*\n(.*?)^\1\2", re.MULTILINE | re.DOTALL)
TITLED = re.compile(rf"\d|{TEXT}")
"""What titles of tables have of a report, such as its name."""
LABEL = re.compile(r"(?!in (?!NumPy)|[A-Z]\S*(?: \S+){3})([a-zA-Z][a-zA-Z -]*): ")
"""Words before a colon: not ``in`` and the name of a memory kind, and not a sentence of four words or more."""
PHRASE = re.compile(r"[A-Za-z][\w'-]*(?: [A-Za-z][\w'-]*)*")
VALUE = re.compile(r"'[^']*'|\[[^\]]*\]|[\d,.]+ [KMGT]?i?B\b|[\w.]*\d[\w.]*|\w+\.py|\w+(?:/\w+)+|…")
"""What differs from output to output: quoted names, sizes, words with digits, files and paths."""


@cache
def printed():
    """Return the headings of all tables, and the lines of the text, of reports of each class with every field."""
    schema = json_schema()
    headings, lines = set(), set()

    def recorded(table, console, options, render=Table.__rich_console__):
        headings.update(str(column.header).strip() for column in table.columns)
        return render(table, console, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "__rich_console__", recorded)
        for choice in schema["oneOf"]:
            name = choice["$ref"].rpartition("/")[2]
            for turn in range(TURNS):
                made = complete(schema, name, turn, lambda *_: TEXT)
                report = from_json(json.dumps({"report": name, "schema_version": 1, **made}))
                for block in page(report):
                    if isinstance(block, blocks.Table) and not TITLED.search(block.title):
                        headings.add(re.split("[:;]", block.title)[0])
                for text in as_text(report, 1000):
                    lines.update(" ".join(BOXES.sub(" ", line).split()) for line in text.splitlines())
    return frozenset(headings - {""}), frozenset(lines)


def labels():
    """Return the headings, and the words before the colon of each line that begins with such words."""
    headings, lines = printed()
    return headings | {match[1] for line in lines if (match := LABEL.match(line)) and TEXT not in match[1]}


def entries():
    """Return the texts in the first column of the glossary's tables, as far as they are printed text."""
    rows = (re.split(r"(?<!\\)\|", line)[1] for line in GLOSSARY.splitlines() if line.startswith("| "))
    return [text for row in rows for text in re.findall(r"`([^`]+)`", row)]


def label_of(entry):
    """Return the label at the beginning of an entry: ``mesh`` of ``mesh: data=4``."""
    match = LABEL.match(f"{entry.removesuffix(':')}: ")
    return match[1] if match else entry


def phrases(entry):
    """Return the words of an entry between its values: numbers, quoted names and what is left out."""
    return [found for part in VALUE.split(entry) for found in PHRASE.findall(part)]


@cache
def outputs():
    """Return the text of reports, the output that pages store, and what
    modules print and tests expect, such as errors.
    """
    lines = [*printed()[1], *(line for report in samples() for line in as_text(report, 1000))]
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("packages/**/*.md")]:
        lines += [match[3] for match in OUTPUT.finditer(path.read_text(encoding="utf-8"))]
    for module in PACKAGES:
        lines += strings_of(ast.parse(module.read_text(encoding="utf-8")))
    for path in (ROOT / "tests").rglob("test_*.py"):
        if path != Path(__file__):
            lines += strings_of(ast.parse(path.read_text(encoding="utf-8")))
    return " ".join(BOXES.sub(" ", "\n".join(lines)).split())


def samples():
    """Return reports with the real content that some phrases need."""
    plan = planned_report((64, 64), {"x": 4, "y": 2}, ("x",))
    kinds = ("{replicated}", "{maximal device=3}", "{manual}", "{unknown}", "{devices=[2,4]<=[8]}")
    meshes = (None, {"x": 4, "y": 2})
    explained = [xla_report(text, mesh) for text in kinds for mesh in meshes]
    return [*every_report(), plan, shard_report(plan, 5), *explained]


def test_each_label_that_is_printed_has_an_entry():
    assert sorted(labels() - set(map(label_of, entries()))) == []


def test_each_entry_is_printed():
    words = outputs()
    missing = [
        entry
        for entry in entries()
        if not all(re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", words) for phrase in phrases(entry))
    ]
    assert missing == []
