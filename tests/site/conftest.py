"""The built site, and one browser for all of its pages."""

import os
from pathlib import Path

import pytest

from tests.site.chromium import MISSING, find_chromium

ROOT = Path(__file__).parent.parent.parent
SITE = ROOT / "site"
NEEDS_SITE = "the site is not built: nox -s docs builds it and runs these tests"
WITHOUT_SERVER = ("404.html",)  # only a server shows it, so that its links begin at the root of one


def pages_of_the_site():
    """Return the paths of the pages in the site."""
    paths = (path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    return sorted(set(paths) - set(WITHOUT_SERVER))


def pytest_generate_tests(metafunc):
    """Run what asks for a ``page`` on each of them."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", pages_of_the_site() or [pytest.param(None, id="site not built")])


@pytest.fixture(scope="session", autouse=True)
def _built():
    if not pages_of_the_site():
        pytest.exit(NEEDS_SITE, returncode=1)


@pytest.fixture(scope="session")
def browser():
    """Chromium, as the system has it."""
    from playwright.sync_api import sync_playwright

    program = find_chromium() or pytest.exit(MISSING, returncode=1)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has no sandbox in Chromium
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
