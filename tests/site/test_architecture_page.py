"""Tests of the page on the architecture: its length, and that it names the rooms that exist."""

import re
from importlib import resources
from pathlib import Path

from tests.site.conftest import ROOT, SITE

PACKAGE = re.compile(r"^(jax_array_info\w*) .*", re.M)


def rooms_of(source):
    """Return the names of the rooms of each package; those of folders end in a slash."""
    [block] = re.findall(r"^```text\n(.*?)^```", source, re.M | re.S)
    _, *parts = PACKAGE.split(block)
    return {
        package: {
            name for line in re.findall(r"^  (\S.*)", text, re.M) for name in line.split("  ")[0].split()
        }
        for package, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_the_rooms_are_the_folders_of_the_packages():
    source = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    for package, rooms in rooms_of(source).items():
        folder = Path(str(resources.files(package)))
        folders = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
        assert {room for room in rooms if room.endswith("/")} == folders
        modules = {path.stem for path in folder.glob("*.py")}
        assert {room for room in rooms if not room.endswith("/")} <= modules


def test_the_files_that_it_names_exist():
    source = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|toml))`", source))
    assert names
    assert {name for name in names if not [*ROOT.glob(name), *ROOT.glob(f"packages/**/{name}")]} == set()


def test_it_fits_two_screens(browser):
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    tab.goto((SITE / "architecture.html").as_uri())
    assert tab.evaluate("document.documentElement.scrollHeight") <= 1800
