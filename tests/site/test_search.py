"""The site's search: questions in the words of forums, and the pages that answer them."""

import dataclasses
import json

import pytest

from jax_array_info import reports
from tests.site.conftest import SITE

GUIDES = (
    ("will it fit", "guides/is-it-sharded-as-meant.html"),
    ("replicated parameter", "guides/is-it-sharded-as-meant.html"),
    ("replicated parameter", "problems/wrongly-sharded.html"),
    ("which line leaks", "problems/leaking.html"),
    ("shard_map", "guides/inside-shard-map.html"),
    ("pprof", "recipes/pprof.html"),
    ("all-gather", "guides/what-did-xla-make-of-my-step.html"),
    ("why did it recompile", "problems/recompiling.html"),
    ("donation", "guides/what-did-xla-make-of-my-step.html"),
    ("rematerialization", "guides/what-did-xla-make-of-my-step.html"),
    ("ahead of time", "recipes/compile-for-a-pod.html"),
    ("multi-host", "guides/several-processes.html"),
    ("memory over time", "guides/memory-over-time.html"),
    ("visualize_array_sharding alternative", "coming-from/visualize-array-sharding.html"),
)
PROBLEMS = (
    ("wrongly sharded", "problems/wrongly-sharded.html"),
    ("out of memory", "problems/out-of-memory.html"),
    ("slow step", "problems/slow-step.html"),
    ("recompiling", "problems/recompiling.html"),
    ("memory leak", "problems/leaking.html"),
    ("program hangs", "problems/hanging-on-several-hosts.html"),
    ("my step is slow", "problems/slow-step.html"),
    ("leaking", "problems/leaking.html"),
    ("hanging on several hosts", "problems/hanging-on-several-hosts.html"),
)
HITS = ".md-search-result__item > a:first-child"  # a page; its sections follow it


@pytest.mark.parametrize(("words", "guide"), GUIDES)
def test_the_first_two_hits_contain_the_guide(words, guide, browser):
    found = hits(words, browser)[:2]
    assert any(hit.endswith(guide) for hit in found), found


@pytest.mark.parametrize(("words", "problem"), PROBLEMS)
def test_the_first_hit_for_a_problem_is_its_page(words, problem, browser):
    assert hits(words, browser)[0].endswith(problem)


def test_the_search_finds_every_field_of_a_report_at_its_row():
    index = json.loads((SITE / "search/search_index.json").read_text(encoding="utf-8"))
    titles = {entry["location"].partition("#")[2]: entry["title"] for entry in index["docs"]}
    classes = {name: getattr(reports, name) for name in reports.__all__}
    fields = [
        (owner, field.name)
        for owner, made in classes.items()
        if dataclasses.is_dataclass(made)
        for field in dataclasses.fields(made)
    ]
    assert len(fields) > 500
    for owner, name in fields:
        assert titles[f"jax_array_info.reports.{owner}.{name}"] == f"{owner}.<code>{name}</code>"


def hits(words, browser):
    """Return the addresses of the pages that the search finds, the best first."""
    tab = browser.new_page()
    tab.goto((SITE / "index.html").as_uri())
    query = tab.locator("[data-md-component=search-query]")
    # All words at once: typed one by one, the hits of the first letters come first.
    query.fill(words)
    query.press("End")
    tab.locator(HITS).first.wait_for()
    found = [hit.get_attribute("href").partition("?")[0].partition("#")[0] for hit in tab.locator(HITS).all()]
    tab.close()
    return found
