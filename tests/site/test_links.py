"""Tests that every link leads to an existing file and anchor."""

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.site.conftest import SITE

ELSEWHERE = re.compile(r"https?://[a-z0-9.-]+\.[a-z]{2,}(:\d+)?(/\S*)?")


class Reader(HTMLParser):
    """Collects the links and anchors of a page."""

    def __init__(self):
        super().__init__()
        self.links, self.places = [], []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and tag != "base":
                self.links.append(value or "")
            elif name == "id" or (name == "name" and tag == "a"):
                self.places.append(value)


@cache
def read(path):
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


def problem(source, link):
    """Return the problem with a link of a page, None if it is valid."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return None if ELSEWHERE.fullmatch(link) else "no address"
    target = (source.parent / unquote(parts.path)).resolve() if parts.path else source
    target = target / "index.html" if target.is_dir() else target
    if not target.is_relative_to(SITE.resolve()) or not target.is_file():
        return "no such file"
    fragment = unquote(parts.fragment)
    if fragment and target.suffix == ".html" and fragment not in read(target).places:
        return "no such place"
    return None


def test_every_link_of_a_page_is_valid(page):
    source = (SITE / page).resolve()
    links = read(source).links
    assert links
    assert {link: found for link in links if (found := problem(source, link))} == {}


def test_a_broken_link_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.site.test_links.SITE", tmp_path)
    page = tmp_path / "a.html"
    page.write_text('<h2 id="here">x</h2>')
    links = [
        "#here",
        "a.html#here",
        "#there",
        "b.html",
        "../a.html",
        "https://example.com/x",
        "https://example",
    ]
    assert [problem(page, link) for link in links] == [
        None,
        None,
        "no such place",
        "no such file",
        "no such file",
        None,
        "no address",
    ]


def test_anchors_of_a_page_are_unique(page):
    places = read(Path(SITE / page).resolve()).places
    assert sorted({place for place in places if places.count(place) > 1 and not place.startswith("__")}) == []
