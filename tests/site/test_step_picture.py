"""Test of the picture of the README."""

from docs_hooks.step_picture import PICTURE, step_picture


def test_the_stored_picture_of_the_readme_is_the_one_that_is_drawn_now():
    stored, drawn = PICTURE.read_text("utf-8"), step_picture()
    assert stored == drawn, "nox -s docs -- --write draws docs/assets/step.svg again"
