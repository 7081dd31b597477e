"""Display of reports in notebooks; tests with a kernel are in ``tests/site``."""

import re
import sys
import types
from typing import get_args

import jax.numpy as jnp
import pytest

from jax_array_info import (
    array_report,
    config,
    live_array_report,
    planned_mesh_report,
    planned_report,
    print_array_stats,
    print_mesh,
    print_tree,
    report_on_oom,
    sharding_info,
    sharding_vis,
    spec_layout,
    to_html,
    to_svg,
    to_text,
)
from jax_array_info.export import document
from jax_array_info.reports import ArrayReport, Report
from jax_array_info_core import notebooks
from tests.goldens import stored
from tests.rich_render.svg.reading import cells

pytestmark = pytest.mark.once_per_version

PLAN = planned_report((16, 8), {"data": 4, "model": 2}, ("data", "model"), name="w")
STATE = stored("tree-report-22")[0]


class Shell:
    """The parts of an IPython shell that are used."""

    class display_formatter:  # noqa: N801 - an attribute of the kernel
        active_types = ("text/plain", "text/html", "image/svg+xml")


class ZMQInteractiveShell(Shell):
    """Jupyter's shell; rich checks for this class name."""


class TerminalInteractiveShell(Shell):
    """IPython in a terminal."""

    class display_formatter:  # noqa: N801
        active_types = ("text/plain",)


@pytest.fixture
def shell(monkeypatch):
    """A function that simulates an IPython shell and returns the list of displayed bundles."""
    shown = []

    def enter(shell_class):
        ipython = types.ModuleType("IPython")
        ipython.display = types.ModuleType("IPython.display")
        ipython.display.display = lambda bundle, raw: shown.append(bundle)
        ipython.get_ipython = lambda: shell_class()
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
        monkeypatch.setattr("builtins.get_ipython", lambda: shell_class(), raising=False)
        return shown

    return enter


def test_every_report_has_a_bundle():
    for report_class in get_args(Report):
        assert callable(report_class._repr_mimebundle_)
    report = live_array_report()
    assert report._repr_mimebundle_() == {"text/plain": to_text(report), "text/html": to_html(report)}
    for drawn in (PLAN, PLAN.layout, planned_mesh_report({"a": 4})):
        assert drawn._repr_mimebundle_(include=None, exclude=None) == {
            "text/plain": to_text(drawn),
            "text/html": to_html(drawn),
            "image/svg+xml": to_svg(drawn),
        }
    assert "image/svg+xml" not in array_report(3)._repr_mimebundle_()


def test_without_a_renderer_the_text_is_the_repr(monkeypatch):
    monkeypatch.setattr(notebooks, "_show", notebooks._as_repr)
    assert PLAN._repr_mimebundle_() == {"text/plain": repr(PLAN)}


def test_a_terminal_shows_only_text(shell, capsys):
    shell(TerminalInteractiveShell)
    assert PLAN._repr_mimebundle_() == {"text/plain": to_text(PLAN)}
    sharding_info(3)
    assert "value: 3" in capsys.readouterr().out


def test_printing_functions_display_pictures_in_a_notebook(shell, capsys):
    shown = shell(ZMQInteractiveShell)
    array = jnp.zeros((4, 4))
    report = array_report(array, "w")
    sharding_info(array, "w")
    assert shown.pop() == report._repr_mimebundle_()
    print_mesh({"a": 4})
    assert shown.pop()["image/svg+xml"] == to_svg(planned_mesh_report({"a": 4}))
    layout = spec_layout((8, 8), {"a": 2}, ("a",))
    sharding_vis(layout, scale=2, color_map=lambda position: (position, 0, 0))
    assert [cell.fill for cell in cells(shown.pop()["image/svg+xml"])] == ["#000000", "#ff0000"]
    sharding_vis(layout, use_color=True)
    bundle = shown.pop()
    assert len(cells(bundle["image/svg+xml"])) == 2
    rows = [re.sub(r"^ +\d+:\d+\n| \d+:\d+$", "", line) for line in bundle["text/plain"].splitlines()]
    assert rows[1:] == to_text(layout).splitlines(), "boxes, because the text has no colors"
    print_array_stats(by="dtype", max_rows=0)
    table = shown.pop()
    assert sorted(table) == ["text/html", "text/plain"]
    assert "allocated jax arrays by dtype" in table["text/plain"]
    assert "allocated jax arrays by dtype" in table["text/html"]
    assert not shown
    assert capsys.readouterr() == ("", "")


def test_print_tree_folds_in_a_notebook_unless_the_rows_are_sorted(shell):
    shown = shell(ZMQInteractiveShell)
    print_tree(STATE)
    [bundle] = shown
    assert bundle["text/html"] == STATE._repr_mimebundle_()["text/html"]
    assert sorted(bundle) == ["text/html", "text/plain"]
    assert "state: dict" in bundle["text/plain"]
    assert bundle["text/html"] == to_html(STATE)
    print_tree(STATE, depth=1)
    assert shown[1]["text/html"].count("<details") == 0
    print_tree(STATE, sort="waste")
    assert "<pre" in shown[2]["text/html"]
    assert "avoidable" not in shown[2]["text/html"], "no leaf has avoidable bytes"


def test_a_file_gets_text_from_a_notebook(shell, tmp_path):
    shown = shell(ZMQInteractiveShell)
    with (
        open(tmp_path / "log", "w", encoding="utf-8") as file,
        pytest.raises(RuntimeError),
        report_on_oom(file),
    ):
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")
    assert "allocated jax arrays" in (tmp_path / "log").read_text("utf-8")
    assert not shown


def test_a_process_that_does_not_print_displays_nothing(shell):
    shown = shell(ZMQInteractiveShell)
    config.process = 1
    try:
        sharding_info(3)
    finally:
        config.process = "all"
    assert not shown


def test_a_failed_picture_is_logged_and_the_text_is_shown(shell, monkeypatch, caplog):
    shown = shell(ZMQInteractiveShell)

    def fail(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(document, "parts_of", fail)
    monkeypatch.setattr(document, "columns_of", fail)
    sharding_info(jnp.zeros(3))
    assert "shape: (3,)" in shown.pop()["text/plain"]
    assert PLAN._repr_mimebundle_() == {"text/plain": to_text(PLAN)}
    assert [record.message for record in caplog.records] == [
        "could not draw the picture; only the text is shown"
    ] * 2
    broken = ArrayReport(name=3, kind="array", type_name=None)  # type: ignore[arg-type]
    assert broken._repr_mimebundle_() == {"text/plain": repr(broken)}
    assert caplog.records[-1].message == "could not display ArrayReport"


def test_drawing_code_is_imported_on_first_use():
    import subprocess

    code = """
import sys
import jax_array_info
jax_array_info.to_text(jax_array_info.planned_mesh_report({"a": 4}))
drawing = ("jax_array_info.svg", "jax_array_info.pictures.svg", "xml.etree", "IPython")
assert not [name for name in sys.modules if name.startswith(drawing)]
jax_array_info.to_svg(jax_array_info.planned_mesh_report({"a": 4}))
assert not {"jax", "IPython", "resvg_py"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
