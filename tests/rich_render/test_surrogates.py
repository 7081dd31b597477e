"""Texts with lone surrogates in what is printed, drawn and written: they are shown escaped."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from jax_array_info import save_picture, to_html, to_svg, to_text
from jax_array_info.export.notebook import reports_bundle
from tests.core.reports.test_surrogates import TEXTS, reports_with

pytestmark = pytest.mark.oldest_and_newest


@given(TEXTS)
def test_text_and_pictures_are_utf8_and_show_what_json_has(text):
    for report in reports_with(text):
        for show in (to_text, to_html, to_svg):
            show(report).encode()
        for shown in reports_bundle([report]).values():
            shown.encode()


@settings(max_examples=20)
@given(TEXTS)
def test_files_with_pictures_are_complete(text):
    with tempfile.TemporaryDirectory() as folder:
        for number, report in enumerate(reports_with(text)):
            for suffix in (".svg", ".html", ".txt"):
                save_picture(report, Path(folder, f"{number}{suffix}"))
                assert Path(folder, f"{number}{suffix}").read_text(encoding="utf-8")
