"""Tests that page sources contain no pasted output and built pages no paths of the machine."""

import json
import re
import tempfile
from pathlib import Path

import pytest

from tests.site.conftest import ROOT, SITE

BOX = re.compile(
    "[\N{BOX DRAWINGS LIGHT HORIZONTAL}-\N{QUADRANT UPPER RIGHT AND LOWER LEFT AND LOWER RIGHT}]"
)
SOURCES = sorted(path for suffix in ("md", "ipynb") for path in (ROOT / "docs").rglob(f"*.{suffix}"))
SOURCES += [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]  # pages too


def test_the_character_range_covers_box_drawing_and_block_elements():
    assert [
        character for character in "\u24ff\u2500\u2550\u257f\u2580\u259f\u25a0" if BOX.match(character)
    ] == list("\u2500\u2550\u257f\u2580\u259f")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_output_is_pasted_into_a_page(path):
    text = path.read_text(encoding="utf-8")
    lines = enumerate(text.splitlines(), start=1)
    assert [f"{number}: {line}" for number, line in lines if BOX.search(line)] == []
    if path.suffix == ".ipynb":
        assert [cell["outputs"] for cell in json.loads(text)["cells"] if cell.get("outputs")] == []


def test_no_page_contains_a_path_of_the_machine(page):
    text = (SITE / page).read_text(encoding="utf-8")
    temporary = [f"{tempfile.gettempdir()}/{name}" for name in ("page", "notebook")]
    assert [path for path in (str(ROOT), f"{Path.home()}/", *temporary) if path in text] == []
