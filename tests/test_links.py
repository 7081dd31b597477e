"""What README and CONTRIBUTING point to is there."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.oldest_and_newest

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)[^)]*\)")
MENTION = re.compile(r"`((?:\.ci|\.github|benchmarks|docs|packages|tests)/[\w./-]+|\w+\.(?:py|toml|md))`")


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_readme_links_to_files_that_there_are():
    links = LINK.findall(text_of("README.md"))
    assert "CONTRIBUTING.md" in links
    assert not [link for link in links if not (ROOT / link).is_file()]


def test_contributing_is_a_page_of_the_site_too_so_it_has_no_relative_links():
    assert not LINK.findall(text_of("CONTRIBUTING.md"))


@pytest.mark.parametrize("name", sorted(set(MENTION.findall(text_of("CONTRIBUTING.md")))))
def test_contributing_names_files_that_there_are(name):
    assert (ROOT / name).exists() or list(ROOT.glob(f"packages/**/{name}")), name
