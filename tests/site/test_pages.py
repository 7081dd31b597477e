"""Every page in a browser, from its file: at the width of a telephone and of a screen, light and dark."""

import pytest

from tests.site.conftest import SITE

WIDTHS = (390, 1280)
LOCAL = ("file:", "data:", "blob:", "about:")

OVERFLOWS = """() => {
  const wide = [...document.querySelectorAll(".highlight, .terminal, .picture, table, pre, img, svg")]
    .filter(element => element.checkVisibility() && !element.closest(".md-typeset__table, .picture > *, svg > *"))
    .filter(element => element.getBoundingClientRect().right > innerWidth + 1)
    .filter(element => !element.closest(".terminal pre, .md-typeset__scrollwrap, .highlight pre, .picture, .md-sidebar"))
    .map(element => element.outerHTML.slice(0, 200));
  return document.documentElement.scrollWidth > innerWidth ? [`the page: ${document.documentElement.scrollWidth}`, ...wide] : wide;
}"""

UNSEEN = """() => [...document.querySelectorAll(".terminal, .picture")]
  .filter(element => !element.closest(".tabbed-block, details"))
  .filter(element => {
    const box = element.getBoundingClientRect();
    const text = element.innerText.trim() || element.querySelector("svg");
    return !text || !element.checkVisibility() || box.width < 40 || box.height < 10;
  })
  .map(element => element.outerHTML.slice(0, 200))"""

CONTRAST = """() => {
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  return [...document.querySelectorAll(".terminal")].map(frame => {
    const [a, b] = [getComputedStyle(frame.querySelector("pre")).color, getComputedStyle(frame).backgroundColor]
      .map(rgb).map(light).sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  });
}"""


class Visit:
    """A tab of the browser that remembers what its page asks for and complains of."""

    def __init__(self, browser, scheme):
        self.requests, self.complaints = [], []
        self.tab = browser.new_context(color_scheme=scheme).new_page()
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("console", self._console)

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, page):
        self.requests.clear()
        self.complaints.clear()
        self.tab.goto((SITE / page).as_uri())


@pytest.fixture(scope="module")
def visits(browser):
    return {scheme: Visit(browser, scheme) for scheme in ("light", "dark")}


def test_a_page_shows_its_outputs_within_its_width_and_asks_for_nothing_elsewhere(page, visits):
    for scheme, visit in visits.items():
        visit.open(page)
        assert (
            visit.tab.locator("body").get_attribute("data-md-color-scheme")
            == {
                "light": "default",
                "dark": "slate",
            }[scheme]
        )
        assert visit.tab.locator("[data-shown]").count() == 0
        assert all(contrast > 7 for contrast in visit.tab.evaluate(CONTRAST))
        for width in WIDTHS:
            visit.tab.set_viewport_size({"width": width, "height": 900})
            assert visit.tab.evaluate(OVERFLOWS) == [], (scheme, width)
            assert visit.tab.evaluate(UNSEEN) == [], (scheme, width)
        assert [url for url in visit.requests if not url.startswith(LOCAL)] == []
        assert visit.complaints == []


def test_the_search_finds_a_function_and_leads_to_it(visits):
    visit = visits["light"]
    visit.tab.set_viewport_size({"width": 1280, "height": 900})
    visit.open("index.html")
    visit.tab.locator("[data-md-component=search-query]").fill("sharding_vis")
    found = visit.tab.locator(".md-search-result__item a[href*='jax_array_info.sharding_vis']").first
    found.click()
    assert visit.tab.url.split("?")[0].endswith("reference/api/looking.html")
    assert visit.tab.locator("[id='jax_array_info.sharding_vis']").is_visible()
    assert [url for url in visit.requests if not url.startswith(LOCAL)] == []
    assert visit.complaints == []
