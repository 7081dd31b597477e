"""Tests of the page of the kinds of lines in logs, and of the words in their table."""

import json
import re
from pathlib import Path

import pytest

from docs_hooks.log_kind_page import EXAMPLE, SECTIONS, log_kind_page
from jax_array_info_core import log_report, to_json
from jax_array_info_core.jobs.logs.events import KINDS
from tests.test_voice import found_in

pytestmark = pytest.mark.newest

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "log-kinds.md"


def test_the_page_of_kinds_is_that_of_the_code():
    assert PAGE.read_text("utf-8") == log_kind_page(), "nox -s docs -- --write writes it"


def test_the_page_has_a_row_for_each_kind_and_no_other():
    rows = [re.split(r" ?\| ?", row) for row in log_kind_page().splitlines() if row.startswith("| `")]
    assert [len(row) for row in rows] == [6] * len(KINDS)  # text with a bar would be a column of its own
    found = {name.strip("`"): (role, cause, remedy) for _, name, role, cause, remedy, _ in rows}
    assert {*found} == {one.name for one in KINDS}
    for one in KINDS:
        role, *words = found[one.name]
        assert role.startswith(f"[{one.role}](")
        assert words == [one.cause, one.remedy]


@pytest.mark.parametrize(
    ("name", "code"),
    [("host memory", "JAI506"), ("nccl", "JAI501"), ("barrier", "JAI502"), ("tpu start", "JAI503")],
)
def test_the_role_of_a_kind_leads_to_the_page_of_its_finding(name, code):
    [row] = [row for row in log_kind_page().splitlines() if row.startswith(f"| `{name}` |")]
    assert f"/{code}.md) |" in row


def test_each_kind_is_in_one_section():
    listed = [kind for kinds in SECTIONS.values() for kind in kinds]
    assert sorted(listed) == sorted(KINDS)
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_the_example_on_the_page_is_the_finding_in_json():
    [stored] = re.findall(r"^```json\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    [finding] = json.loads(to_json(log_report([EXAMPLE])))["findings"]
    shown = json.loads(stored)
    assert shown == {name: finding[name] for name in shown}
    assert shown["numbers"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_has_a_cause_and_a_remedy_in_whole_sentences(kind):
    for text in (kind.cause, kind.remedy):
        assert re.fullmatch(r"\S.{3,}[.!]", text), text
        assert found_in(text) == []
