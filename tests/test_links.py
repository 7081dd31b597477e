"""Links and file names in README and CONTRIBUTING."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.oldest_and_newest

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)[^)]*\)")
MENTION = re.compile(r"`((?:\.ci|\.github|benchmarks|docs|packages|tests)/[\w./-]+|\w+\.(?:py|toml|md))`")


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_links_in_the_readme_lead_to_files():
    links = LINK.findall(text_of("README.md"))
    assert "CONTRIBUTING.md" in links
    assert not [link for link in links if not (ROOT / link).is_file()]


def test_contributing_has_no_relative_links_as_it_is_also_a_page_of_the_site():
    assert not LINK.findall(text_of("CONTRIBUTING.md"))


@pytest.mark.parametrize("name", sorted(set(MENTION.findall(text_of("CONTRIBUTING.md")))))
def test_files_named_in_contributing_exist(name):
    assert (ROOT / name).exists() or list(ROOT.glob(f"packages/**/{name}")), name
