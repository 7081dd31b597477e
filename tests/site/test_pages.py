"""Tests of every page in a browser: phone and desktop widths, light and dark mode, from file:// URLs."""

import contextlib

import pytest
from playwright import sync_api

from tests.site.conftest import SITE

WIDTHS = (390, 1280)
LOCAL = ("file:", "data:", "blob:", "about:")

# These elements scroll their own content if it is too wide.
OVERFLOWS = """() => {
  const columns = [...document.querySelectorAll(".highlight, .terminal, .picture, .md-typeset__scrollwrap, img")];
  const wide = columns.filter(column => column.checkVisibility())
    .filter(column => column.getBoundingClientRect().right > innerWidth + 1)
    .map(column => column.outerHTML.slice(0, 200));
  const page = document.documentElement.scrollWidth;
  return page > innerWidth ? [`the page is ${page} wide`, ...wide] : wide;
}"""

# Outputs keep to their column, and scroll if their text is wider.
CUT = """() => [...document.querySelectorAll(".terminal, .picture, .highlight code")]
  .filter(box => box.checkVisibility())
  .filter(box => {
    const column = box.parentElement.getBoundingClientRect();
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(box).overflowX);
    return box.getBoundingClientRect().right > column.right + 1 || (box.scrollWidth > box.clientWidth + 1 && !scrolls);
  })
  .map(box => box.outerHTML.slice(0, 200))"""

# Letters of a name in a table or a heading that are on another line than the letter before them.
BROKEN = """() => {
  const broken = [], range = document.createRange();
  for (const code of document.querySelectorAll("td code, h1, h2, h3")) {
    const letters = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    while (letters.nextNode()) {
      const node = letters.currentNode;
      const tops = [...node.data].map((_, i) => {
        range.setStart(node, i);
        range.setEnd(node, i + 1);
        return range.getBoundingClientRect().top;
      });
      if (tops.some((top, i) => i && top > tops[i - 1] + 6 && /[a-z0-9]{2}/i.test(node.data.slice(i - 1, i + 1))))
        broken.push(code.textContent);
    }
  }
  return broken;
}"""

UNSEEN = """() => [...document.querySelectorAll(".terminal, .picture")]
  .filter(element => !element.closest(".tabbed-block, details"))
  .filter(element => {
    const box = element.getBoundingClientRect();
    const text = element.innerText.trim() || element.querySelector("svg");
    return !text || !element.checkVisibility() || box.width < 40 || box.height < 10;
  })
  .map(element => element.outerHTML.slice(0, 200))"""

# Texts whose color is too near to what is behind them, except the signs that a heading shows below a pointer.
CONTRAST = """() => {
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const once = (compute, known = new Map()) => key => {
    if (!known.has(key)) known.set(key, compute(key));
    return known.get(key);
  };
  const rgba = once(color => {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = color;
    pixel.fillRect(0, 0, 1, 1);
    return pixel.getImageData(0, 0, 1, 1).data;
  });
  const over = ([r, g, b, a], behind) => [r, g, b].map((c, i) => (c * a + behind[i] * (255 - a)) / 255);
  const behind = once(box => box
    ? over(rgba(getComputedStyle(box).backgroundColor), behind(box.parentElement)) : [255, 255, 255]);
  const light = color => color.map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const texts = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT), faint = [];
  while (texts.nextNode()) {
    const box = texts.currentNode.parentElement, text = texts.currentNode.data.trim();
    if (!text || !box.checkVisibility() || box.closest("svg, .headerlink")) continue;
    const back = behind(box), front = over(rgba(getComputedStyle(box).color), back);
    const [a, b] = [front, back].map(light).sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < (box.matches(".terminal pre") ? 7 : 4.5)) faint.push(text.slice(0, 200));
  }
  return faint;
}"""


SCHEMES = {"light": "default", "dark": "slate"}


class Visit:
    """A browser tab that records requests, console messages and errors."""

    def __init__(self, browser, scheme):
        self.requests, self.complaints = [], []
        self.tab = browser.new_context(color_scheme=scheme).new_page()
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("console", self._console)

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, page, width):
        self.requests.clear()
        self.complaints.clear()
        self.tab.set_viewport_size({"width": width, "height": 900})
        self.tab.goto((SITE / page).as_uri())

    def found(self, script):
        """Return the result of a script once it is empty, or after 30 seconds."""
        with contextlib.suppress(sync_api.TimeoutError):
            self.tab.wait_for_function(f"() => ({script})().length === 0", timeout=30_000)
        return self.tab.evaluate(script)

    def asked_elsewhere(self):
        return [url for url in self.requests if not url.startswith(LOCAL)]


@pytest.fixture(scope="module")
def visits(browser):
    return {scheme: Visit(browser, scheme) for scheme in SCHEMES}


def test_outputs_fit_the_page_and_nothing_is_loaded_from_elsewhere(page, visits):
    """Colors in both schemes; places in one, since schemes have only colors."""
    for scheme, visit in visits.items():
        visit.open(page, WIDTHS[0])
        assert visit.tab.locator("body").get_attribute("data-md-color-scheme") == SCHEMES[scheme]
        assert visit.tab.evaluate(CONTRAST) == []
    tab = visits["light"].tab
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        assert visits["light"].found(OVERFLOWS) == [], width
        assert visits["light"].found(UNSEEN) == [], width
        assert tab.evaluate(CUT) == [], width
        assert tab.evaluate(BROKEN) == [], width
    for visit in visits.values():
        assert visit.asked_elsewhere() == []
        assert visit.complaints == []


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ("sharding_vis", "reference/api/looking.html#jax_array_info.sharding_vis"),
        ("ArrayReport nbytes", "reference/api/arrays.html#jax_array_info.reports.ArrayReport.nbytes"),
        ("shard_nbytes", "reference/api/arrays.html#jax_array_info.reports.ArrayReport.shard_nbytes"),
        (
            "avoidable_nbytes",
            "reference/api/tree-reports.html#jax_array_info.reports.TreeReport.avoidable_nbytes",
        ),
    ],
)
def test_search_finds_a_public_name_and_links_to_it(words, address, visits):
    page, place = address.split("#")
    visit = visits["light"]
    visit.open("index.html", 1280)
    visit.tab.locator("[data-md-component=search-query]").click()
    visit.tab.keyboard.type(words)
    visit.tab.locator(f".md-search-result__item a[href$='#{place}']").first.click()
    visit.tab.wait_for_url(f"**/{page}*")
    assert visit.tab.locator(f"[id='{place}']").is_visible()
    assert visit.asked_elsewhere() == []
    assert visit.complaints == []


def test_a_phone_shows_the_calls_in_a_shell_of_each_question(visits):
    visit = visits["light"]
    visit.open("index.html", WIDTHS[0])
    shell = visit.tab.locator("#which-call-answers-your-question + * td:nth-child(3):not(:empty)")
    boxes = [cell.bounding_box() for cell in shell.all()]
    assert len(boxes) > 10
    assert all(box["x"] > 0 and box["x"] + box["width"] <= WIDTHS[0] for box in boxes)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_button_covers_a_signature(width, visits):
    visit = visits["light"]
    visit.open("reference/api/programs.html", width)
    assert visit.tab.locator(".doc-signature").first.is_visible()
    assert visit.tab.locator(".doc-signature .md-code__button:visible").count() == 0
