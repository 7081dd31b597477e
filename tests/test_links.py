"""Links and file names in README, CONTRIBUTING and the pages of docs/."""

import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)[^)]*\)")
CROSS_REFERENCE = re.compile(r"\]\[[`\s]*jax_array_info[^\]]*\]")
TARGET = re.compile(r"\]\((?!https?://)([^)\s]+)\)")
LINK_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
FENCED = re.compile(r"^ *(`{3,}).*?^ *\1 *$", re.M | re.S)
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("packages/**/*.md")])
MENTION = re.compile(r"`((?:\.ci|\.github|benchmarks|docs|packages|tests)/[\w./-]+|\w+\.(?:py|toml|md))`")


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


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


def anchors_of(path):
    """Return the anchors of a page on a code host: of its headings, and of the names that a reference page lists."""
    text = FENCED.sub("", path.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ +(.*)", text, re.M)
    slugs = [
        re.sub(r"[^\w\- ]", "", LINK_TEXT.sub(r"\1", heading).lower()).replace(" ", "-")
        for heading in headings
    ]
    return {*slugs, *re.findall(r"^::: (\S+)", text, re.M)}


def lost_links(path):
    """Return the relative links of a page that do not lead to a stored file and, in Markdown, to an anchor of it."""
    lost = []
    for link in TARGET.findall(FENCED.sub("", path.read_text(encoding="utf-8"))):
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.is_file() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            lost.append(link)
    return lost


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *PAGES], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_links_lead_to_stored_files_and_their_headings(page):
    assert lost_links(page) == []


def test_a_link_to_a_generated_page_or_a_missing_heading_is_found(tmp_path):
    page = tmp_path / "a.md"
    page.write_text(
        "# A `b_c`\n\n[x](#a-b_c) [x](#a) [x](b.md) [x](a.md#a-b_c) [x](https://a.org/b)\n\n```\n# D\nf[0](g)\n```\n[x](#d)"
    )
    assert lost_links(page) == ["#a", "b.md", "#d"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_pages_link_to_the_reference_by_file_as_a_code_host_does_not_resolve_names(page):
    assert CROSS_REFERENCE.findall(page.read_text(encoding="utf-8")) == []


def test_a_cross_reference_by_name_is_found():
    assert CROSS_REFERENCE.findall("[`x`][jax_array_info.x] [y](a.md#jax_array_info.y) [z][1]") == [
        "][jax_array_info.x]"
    ]
