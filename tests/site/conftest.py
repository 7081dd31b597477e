"""Fixtures for the built site and a browser."""

import os
from pathlib import Path

import pytest

from tests.site.chromium import MISSING, find_chromium

ROOT = Path(__file__).parent.parent.parent
SITE = ROOT / "site"
NEEDS_SITE = "the site is not built: nox -s docs builds it and runs these tests"
WITHOUT_SERVER = ("404.html",)  # only shown by a server, so its links begin at the root


def pages_of_the_site():
    """Return the paths of the pages of the site."""
    paths = (path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    return sorted(set(paths) - set(WITHOUT_SERVER))


def pytest_generate_tests(metafunc):
    """Run tests with a ``page`` fixture once per page."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", pages_of_the_site() or [pytest.param(None, id="site not built")])


@pytest.fixture(scope="session", autouse=True)
def _built():
    if not pages_of_the_site():
        pytest.exit(NEEDS_SITE, returncode=1)


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium."""
    from playwright.sync_api import sync_playwright

    program = find_chromium() or pytest.exit(MISSING, returncode=1)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has no sandbox in Chromium
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
