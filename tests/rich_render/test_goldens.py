"""Tests that the page of each stored report is the stored one, and that its JSON stays."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from jax_array_info import to_json
from jax_array_info.engine.render import render, text_of
from jax_array_info_core.facts.pages import REPORTS
from jax_array_info_core.reports import Report
from tests.goldens import FOLDER, NAMES, drawn, stored

pytestmark = pytest.mark.oldest_and_newest


@pytest.mark.parametrize("name", NAMES)
def test_pages_of_stored_reports_are_the_stored_ones(name: str) -> None:
    assert drawn(name) == (FOLDER / f"{name}.txt").read_text()


def test_each_class_of_reports_has_a_stored_one() -> None:
    classes = {type(stored(name)[0]).__name__ for name in NAMES}
    assert classes == {one.__name__ for one in get_args(Report)} == REPORTS.keys() - {"Code"}


@pytest.mark.parametrize("name", NAMES)
def test_the_json_of_stored_reports_stays(name: str) -> None:
    report, _ = stored(name)
    assert json.loads(to_json(report)) == json.loads((FOLDER / f"{name}.json").read_text())["report"]


@pytest.mark.parametrize("name", NAMES)
def test_stored_pages_of_a_limited_encoding_have_its_characters_only(name: str) -> None:
    report, options = stored(name)
    assert text_of(render(report, **options), encoding="ascii").isascii()


def test_what_stored_reports_show_is_one_sentence_and_no_two_show_the_same() -> None:
    cases = [json.loads((FOLDER / f"{name}.json").read_text()) for name in NAMES]
    sentences = [case["shows"] for case in cases if "shows" in case]
    assert all(re.fullmatch(r"[A-Z].*\w\.", sentence) and ". " not in sentence for sentence in sentences)
    assert len(set(sentences)) == len(sentences)
