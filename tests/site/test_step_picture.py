"""Tests of the picture of the README."""

import pytest

from docs_hooks.step_picture import PICTURE, step_picture

CONTRASTS = """() => {
  const root = document.documentElement;
  const light = color => {
    const [r, g, b, a = 1] = color.match(/[0-9.]+/g).map(Number);
    return a < 1 ? NaN : [r, g, b].map(c => c / 255)
      .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
      .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  };
  const back = light(getComputedStyle(root).backgroundColor);
  return [...root.querySelectorAll("text")].map(text => {
    const [a, b] = [light(getComputedStyle(text).fill), back].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  });
}"""


def test_the_stored_picture_of_the_readme_is_the_one_that_is_drawn_now():
    stored, drawn = PICTURE.read_text("utf-8"), step_picture()
    assert stored == drawn, "nox -s docs -- --write draws docs/assets/step.svg again"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_has_its_own_background_and_is_legible_on_it(scheme, browser):
    tab = browser.new_context(color_scheme=scheme).new_page()
    tab.goto(PICTURE.as_uri())
    contrasts = tab.evaluate(CONTRASTS)
    assert contrasts
    assert all(contrast >= 4.5 for contrast in contrasts)
