"""Tests that generated reference pages are complete."""

import dataclasses
import re
from html import unescape
from operator import attrgetter

import click
import pytest

import jax_array_info
from jax_array_info_cli.commands import jai_cli
from tests.contexts import CONTEXTS
from tests.site.conftest import ROOT, SITE, pages_of_the_site
from tests.site.test_links import read

API = [SITE / page for page in pages_of_the_site() if page.startswith("reference/api/")]


def text_of(page):
    return unescape(re.sub(r"<[^>]+>", "", (SITE / page).read_text(encoding="utf-8")))


PUBLIC = [
    *jax_array_info.__all__,
    *(f"errors.{name}" for name in jax_array_info.errors.__all__ if name not in jax_array_info.__all__),
    *(f"layouts.{name}" for name in jax_array_info.layouts.__all__ if name not in jax_array_info.__all__),
    *(f"reports.{name}" for name in jax_array_info.reports.__all__),
]
PUBLIC_PLACES = {f"jax_array_info.{name}" for name in PUBLIC}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_on_exactly_one_page_with_its_fields(name):
    [page] = [page for page in API if f"jax_array_info.{name}" in read(page).places]
    value = attrgetter(name)(jax_array_info)
    fields = dataclasses.fields(value) if isinstance(value, type) and dataclasses.is_dataclass(value) else ()
    for field in fields:
        assert f"jax_array_info.{name}.{field.name}" in read(page).places


@pytest.mark.parametrize("path", API, ids=lambda path: path.stem)
def test_an_api_page_says_what_its_lines_stand_for_where_they_are_not_replaced(path):
    note = "line stands for the docstring of that name"
    name = path.relative_to(SITE).with_suffix(".md")
    assert (ROOT / "docs" / name).read_text(encoding="utf-8").count(note) == 1
    assert note not in text_of(path)


@pytest.fixture(scope="module")
def tab(browser):
    return browser.new_page()


@pytest.mark.parametrize("path", API, ids=lambda path: path.stem)
def test_an_api_page_is_short_and_keeps_to_the_screen_of_a_phone(path, tab):
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.goto(path.as_uri())
    assert tab.evaluate("document.documentElement.scrollHeight") <= 8000
    tab.set_viewport_size({"width": 390, "height": 900})
    assert tab.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("path", API, ids=lambda path: path.stem)
def test_the_table_of_contents_has_one_entry_per_class_or_function_and_none_for_fields(path, tab):
    tab.goto(path.as_uri())
    entries = tab.locator(".md-sidebar--secondary .md-nav__link[href*='#']").evaluate_all(
        "links => links.map(link => link.hash.slice(1))"
    )
    places = read(path).places
    assert [entry for entry in entries if entry in PUBLIC_PLACES] == [
        place for place in places if place in PUBLIC_PLACES
    ]
    members = [entry.removeprefix("jax_array_info.") for entry in entries if entry not in PUBLIC_PLACES]
    assert [name for name in members if not callable(attrgetter(name)(jax_array_info))] == []


def test_each_setting_is_documented_once():
    places = read(SITE / "reference/api/settings.html").places
    for field in dataclasses.fields(jax_array_info.Config):
        assert [place for place in places if place.endswith(f".{field.name}")] == [
            f"jax_array_info.Config.{field.name}"
        ]


def test_each_command_has_a_section_with_every_option():
    text = text_of("reference/cli.html")
    with click.Context(jai_cli, info_name="jai-cli") as context:
        for name in jai_cli.list_commands(context):
            assert f"jai-cli {name}" in text
            for parameter in jai_cli.get_command(context, name).params:
                if getattr(parameter, "hidden", False):  # what it refuses, the page does not offer
                    continue
                assert all(option in text for option in parameter.opts if option.startswith("-"))


def test_each_context_has_a_row_with_the_first_version_that_it_is_tested_on():
    from docs_hooks.context_page import versions_of

    versions = versions_of(ROOT / "noxfile.py")
    html = (SITE / "reference/contexts.html").read_text(encoding="utf-8")
    rows = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html, re.S)
    ]
    assert rows[0] == ["context", "source", "called under", "reports", "since"]
    assert [re.sub("<.*?>", "", row[0]) for row in rows[1:]] == list(CONTEXTS)
    for row, context in zip(rows[1:], CONTEXTS.values(), strict=True):
        assert row[1] == context.source
        since = versions.index(row[4] or versions[0])
        minors = [tuple(map(int, version.split(".")[:2])) for version in versions]
        assert context.since <= minors[since]
        assert since == 0 or minors[since - 1] < context.since


@pytest.mark.parametrize(
    ("made", "source"), [("contributing", "CONTRIBUTING.md"), ("changelog", "CHANGELOG.md")]
)
def test_files_of_the_root_are_pages(made, source):
    first, *_ = (ROOT / source).read_text(encoding="utf-8").splitlines()
    assert first.removeprefix("# ") in text_of(f"{made}.html")
