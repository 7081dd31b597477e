"""Tests that the pages and the JSON of each stored report are the stored ones."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from jax_array_info import to_json
from jax_array_info_core.facts.pages import REPORTS
from jax_array_info_core.reports import Report
from tests.goldens import FOLDER, NAMES, drawn, stored

pytestmark = pytest.mark.newest


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_report_has_its_stored_pages_and_json_in_characters_of_the_encoding(name: str) -> None:
    pages = drawn(name)
    assert pages == (FOLDER / f"{name}.txt").read_text()
    for titles, text in re.findall(r"^=== (.+) ===\n((?:(?!=== ).*\n)*)", pages, re.MULTILINE):
        assert "ascii" not in titles or text.isascii()
    report, _ = stored(name)
    assert json.loads(to_json(report)) == json.loads((FOLDER / f"{name}.json").read_text())["report"]


def test_each_class_of_reports_has_a_stored_one() -> None:
    classes = {type(stored(name)[0]).__name__ for name in NAMES}
    assert classes == {one.__name__ for one in get_args(Report)} == REPORTS.keys() - {"Code"}


def test_what_stored_reports_show_is_one_sentence_and_no_two_show_the_same() -> None:
    cases = [json.loads((FOLDER / f"{name}.json").read_text()) for name in NAMES]
    sentences = [case["shows"] for case in cases if "shows" in case]
    assert all(re.fullmatch(r"[A-Z].*\w\.", sentence) and ". " not in sentence for sentence in sentences)
    assert len(set(sentences)) == len(sentences)
