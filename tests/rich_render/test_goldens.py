"""Tests that the page of each stored report is the stored one, and that its JSON stays."""

from __future__ import annotations

import json

import pytest

from jax_array_info import to_json
from tests.goldens import FOLDER, NAMES, drawn, stored

pytestmark = pytest.mark.oldest_and_newest


@pytest.mark.parametrize("name", NAMES)
def test_pages_of_stored_reports_are_the_stored_ones(name: str) -> None:
    assert drawn(name) == (FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_the_json_of_stored_reports_stays(name: str) -> None:
    report, _ = stored(name)
    assert json.loads(to_json(report)) == json.loads((FOLDER / f"{name}.json").read_text())["report"]
