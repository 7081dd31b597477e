"""Tests of the table of questions, which is written once, in the README."""

import pydoc
import re

import pytest

import jax_array_info
from docs_hooks.questions import HEADING, README, lines_for_help, page_with_questions

pytestmark = pytest.mark.newest

DOCS = README.parent / "docs"


@pytest.mark.parametrize("name", ["index.md", "shell.md"])
def test_a_page_with_the_questions_has_those_of_the_readme(name):
    stored = (DOCS / name).read_text(encoding="utf-8")
    assert HEADING in stored
    assert stored == page_with_questions(stored), "nox -s docs -- --write writes it"


def test_links_of_the_readme_lead_from_a_page_of_docs_to_the_same_page():
    section = page_with_questions(f"# A\n\n{HEADING}stale\n\n## B\n")
    assert section.startswith(f"# A\n\n{HEADING}\n| Question |")
    assert section.endswith("\n\n## B\n")
    assert "](guides/inside-jit.md)" in section
    assert "stale" not in section


def test_other_pages_stay_as_they_are():
    assert page_with_questions("# A\n\nText.\n") == "# A\n\nText.\n"


def test_help_begins_with_the_questions_and_the_calls_that_answer_them():
    listed = "\n".join(lines_for_help())
    assert f"\n\n{listed}\n\n" in jax_array_info.__doc__, f"write this into its docstring:\n{listed}"
    shown = pydoc.plain(pydoc.render_doc(jax_array_info))
    assert 0 < shown.index("Which call answers your question?") < shown.index("PACKAGE CONTENTS")


def test_help_lists_no_exceptions_which_would_come_first():
    shown = pydoc.plain(pydoc.render_doc(jax_array_info))
    assert "class ArrayTracker" in shown
    assert not re.search(r"class \w+Error", shown)
    assert jax_array_info.CheckError is jax_array_info.errors.CheckError


def test_each_call_of_the_table_is_public():
    called = set(re.findall(r"\b([a-z]+_[a-z_]+)\(", "\n".join(lines_for_help())))
    assert {"sharding_info", "print_check", "report_on_oom"} < called
    assert called <= set(jax_array_info.__all__)
