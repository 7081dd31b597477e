"""Links and file names in README, CONTRIBUTING and the pages of docs/."""

import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.oldest_and_newest

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)[^)]*\)")
CROSS_REFERENCE = re.compile(r"\]\[[`\s]*jax_array_info[^\]]*\]")
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MENTION = re.compile(r"`((?:\.ci|\.github|benchmarks|docs|packages|tests)/[\w./-]+|\w+\.(?:py|toml|md))`")


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_links_in_the_readme_lead_to_files():
    links = LINK.findall(text_of("README.md"))
    assert "CONTRIBUTING.md" in links
    assert not [link for link in links if not (ROOT / link).is_file()]


def test_the_package_index_shows_no_relative_link_and_with_an_address_absolute_ones():
    settings = tomllib.loads(text_of("pyproject.toml"))["tool"]["hatch"]["metadata"]["hooks"][
        "fancy-pypi-readme"
    ]
    pictures, links = settings["substitutions"]
    readme = re.sub(pictures["pattern"], pictures["replacement"], text_of("README.md"))
    assert "pip install" in readme
    assert not LINK.findall(re.sub(links["pattern"], links["replacement"], readme))
    address = r"[\1](https://example.com/\2)"  # as the comment in pyproject.toml has it
    shown = re.sub(links["pattern"], address, readme)
    assert not LINK.findall(shown)
    assert "(https://example.com/CONTRIBUTING.md)" in shown


def test_contributing_has_no_relative_links_as_it_is_also_a_page_of_the_site():
    assert not LINK.findall(text_of("CONTRIBUTING.md"))


@pytest.mark.parametrize("name", sorted(set(MENTION.findall(text_of("CONTRIBUTING.md")))))
def test_files_named_in_contributing_exist(name):
    assert (ROOT / name).exists() or list(ROOT.glob(f"packages/**/{name}")), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_link_to_the_reference_by_file_as_a_code_host_does_not_resolve_names(page):
    assert CROSS_REFERENCE.findall(page.read_text(encoding="utf-8")) == []


def test_a_cross_reference_by_name_is_found():
    assert CROSS_REFERENCE.findall("[`x`][jax_array_info.x] [y](a.md#jax_array_info.y) [z][1]") == [
        "][jax_array_info.x]"
    ]
