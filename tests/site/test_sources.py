"""Tests that notebooks contain no output and built pages no paths of the machine."""

import json
import tempfile
from pathlib import Path

import pytest

from tests.site.conftest import ROOT, SITE

NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_output_is_stored_in_a_notebook(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [cell["outputs"] for cell in cells if cell.get("outputs")] == []


def test_no_page_contains_a_path_of_the_machine(page):
    text = (SITE / page).read_text(encoding="utf-8")
    temporary = [f"{tempfile.gettempdir()}/{name}" for name in ("page", "notebook")]
    assert [path for path in (str(ROOT), f"{Path.home()}/", *temporary) if path in text] == []
