"""The built site, and one browser for all of its pages."""

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SITE = ROOT / "site"
NEEDS_SITE = "the site is not built: nox -s docs builds it and runs these tests"
NEEDS_CHROMIUM = (
    "no Chromium: install the system's package (apt-get install chromium), or name its program in CHROMIUM"
)
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
    assert pages_of_the_site(), NEEDS_SITE


@pytest.fixture(scope="session")
def browser():
    """Chromium, as the system has it."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, NEEDS_CHROMIUM
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has no sandbox in Chromium
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        yield browser
        browser.close()
