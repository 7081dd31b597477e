"""Reports in notebooks, and the IPython extension; tests with a kernel and a shell are in ``tests/site``."""

import collections
import dataclasses
import re
import sys
import types
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_array_info
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
    tree_report,
)
from jax_array_info.export import document, notebook
from jax_array_info.reports import ArrayReport, Report
from jax_array_info_core.base import notebooks
from tests.goldens import stored
from tests.rich_render.svg.reading import cells

pytestmark = pytest.mark.once_per_version

PLAN = planned_report((16, 8), {"data": 4, "model": 2}, ("data", "model"), name="w")
STATE = stored("tree-report-29")[0]


class DisplayFormatter:
    """The parts of IPython's display formatter that are used."""

    active_types = ("text/plain", "text/html", "image/svg+xml")

    def format(self, value, include=None, exclude=None):
        return {"text/plain": f"as before: {value!r}"}, {"include": include, "exclude": exclude}


class Shell:
    """The parts of an IPython shell that are used."""

    def __init__(self):
        self.display_formatter = DisplayFormatter()

    def shown(self, value, **options):
        """Return the bundle of a cell that ends in a value."""
        return self.display_formatter.format(value, **options)[0]


class ZMQInteractiveShell(Shell):
    """Jupyter's shell; rich checks for this class name."""


@pytest.fixture
def enter(monkeypatch):
    """Return a function that makes a shell the running one, and returns the list of displayed bundles."""
    shown = []

    def enter(shell):
        ipython = types.ModuleType("IPython")
        ipython.display = types.ModuleType("IPython.display")
        ipython.display.display = lambda bundle, raw: shown.append(bundle)
        ipython.get_ipython = lambda: shell
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
        monkeypatch.setattr("builtins.get_ipython", lambda: shell, raising=False)
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


def test_a_terminal_shows_only_text(enter, capsys):
    shell = Shell()
    shell.display_formatter.active_types = ("text/plain",)
    enter(shell)
    assert PLAN._repr_mimebundle_() == {"text/plain": to_text(PLAN)}
    sharding_info(3)
    assert "value: 3" in capsys.readouterr().out


def test_printing_functions_display_pictures_in_a_notebook(enter, capsys):
    shown = enter(ZMQInteractiveShell())
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


def test_print_tree_folds_in_a_notebook_unless_the_rows_are_sorted(enter):
    shown = enter(ZMQInteractiveShell())
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


def test_a_file_gets_text_from_a_notebook_and_a_silent_process_displays_nothing(enter, tmp_path, monkeypatch):
    shown = enter(ZMQInteractiveShell())
    with (
        open(tmp_path / "log", "w", encoding="utf-8") as file,
        pytest.raises(RuntimeError),
        report_on_oom(file),
    ):
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")
    assert "allocated jax arrays" in (tmp_path / "log").read_text("utf-8")
    monkeypatch.setattr(config, "process", 1)
    sharding_info(3)
    assert not shown


def test_a_failed_picture_is_logged_and_the_text_is_shown(enter, monkeypatch, caplog):
    shown = enter(ZMQInteractiveShell())

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


@pytest.fixture
def tree():
    return {"w": jnp.ones((4, 4)), "b": [jnp.zeros(3), 4, None]}


@pytest.fixture
def shell(enter):
    """Return a running shell that has loaded the extension."""
    shell = Shell()
    enter(shell)
    jax_array_info.load_ipython_extension(shell)
    yield shell
    jax_array_info.unload_ipython_extension(shell)


@dataclasses.dataclass
class Model:
    w: object


Pair = collections.namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize(
    "containing",
    [
        lambda array: {"w": array, "b": [array, 4, None]},
        lambda array: [array],
        lambda array: (array, 1),
        Model,
        lambda array: Pair(array, None),
        lambda array: {"a": {"b": array}},
    ],
)
def test_a_cell_that_ends_in_a_tree_of_arrays_shows_its_report(shell, containing):
    tree = containing(jnp.ones(3))
    report = tree_report(tree)
    assert shell.shown(tree) == {"text/plain": to_text(report), "text/html": to_html(report)}


def test_a_cell_that_ends_in_an_array_shows_its_report(shell):
    for array in (jnp.ones(3), jax.random.key(0), jax.ShapeDtypeStruct((3,), jnp.float32)):
        report = array_report(array)
        assert shell.shown(array)["text/plain"] == to_text(report)
        assert shell.shown(array)["text/html"] == to_html(report)
    deleted = jnp.ones(3)
    deleted.delete()
    assert "deleted" in shell.shown(deleted)["text/plain"]


class Unusual:
    """An object that fails whenever it is used."""

    def __getattr__(self, name):
        raise ZeroDivisionError(name)

    def __repr__(self):
        return "unusual"


class Displayed(dict):
    """A dict that displays itself."""

    def _ipython_display_(self):
        """Display it."""


INSIDE = []
INSIDE.append(INSIDE)


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        "text",
        [1, 2.0, "x"],
        {},
        {"loss": 0.5},
        np.ones(3),
        (np.ones(3), np.ones(2)),
        {"mean": np.float32(0.5)},
        planned_mesh_report({"a": 2}),
        [planned_mesh_report({"a": 2}), 3],
        [],
        Unusual(),
        [Unusual()],
        Model,
        Displayed(w=1),
        INSIDE,
        jax.devices()[0],
        sys,
    ],
    ids=lambda value: type(value).__name__,
)
def test_cells_that_end_in_anything_else_are_as_before(shell, value, caplog):
    assert shell.shown(value) == {"text/plain": f"as before: {value!r}"}
    assert not caplog.records


@pytest.mark.parametrize("sequence", [list, tuple])
def test_a_list_of_reports_is_one_document(shell, sequence):
    reports = [planned_mesh_report({"data": 4}), array_report(3, "three")]
    bundle = shell.shown(sequence(reports))
    assert bundle["text/plain"] == "\n".join(map(to_text, reports))
    assert "three" in bundle["text/html"]
    assert "image/svg+xml" in bundle


def test_an_object_that_displays_itself_does_so(shell):
    tree = Displayed(w=jnp.ones(2))
    assert shell.shown(tree)["text/plain"].startswith("as before")


def test_a_failed_report_is_logged_and_the_cell_is_as_before(shell, tree, monkeypatch, caplog):
    def fail(value):
        raise ZeroDivisionError

    monkeypatch.setattr(notebook, "_reports", fail)
    assert shell.shown(tree) == {"text/plain": f"as before: {tree!r}"}
    assert [record.message for record in caplog.records] == ["could not display the report of a dict"]


def test_a_terminal_shows_text_in_its_width(shell, monkeypatch):
    shell.display_formatter.active_types = ("text/plain",)
    monkeypatch.setenv("COLUMNS", "60")
    wide = {"a" * 30: {"b" * 30: jnp.ones((4, 4))}}
    assert shell.shown(wide) == {"text/plain": to_text(tree_report(wide), width=60)}


def test_the_requested_types_are_shown(shell, tree):
    assert list(shell.shown(tree, include=["text/html"])) == ["text/html"]
    assert list(shell.shown(tree, exclude=["text/html"])) == ["text/plain"]
    _, metadata = shell.display_formatter.format(tree, include=["image/png"])
    assert metadata == {"include": ["image/png"], "exclude": None}, "as before"


def test_unloading_restores_the_display_of_before(shell, tree):
    jax_array_info.load_ipython_extension(shell)  # a second time
    assert "dict" in shell.shown(tree)["text/plain"]
    jax_array_info.unload_ipython_extension(shell)
    assert vars(shell.display_formatter) == {}
    assert shell.shown(tree) == {"text/plain": f"as before: {tree!r}"}
    jax_array_info.unload_ipython_extension(shell)  # a second time
    other = lambda value, include=None, exclude=None: ({"text/plain": "other"}, {})  # noqa: E731
    shell.display_formatter.format = other
    jax_array_info.load_ipython_extension(shell)
    assert shell.shown(3) == {"text/plain": "other"}
    jax_array_info.unload_ipython_extension(shell)
    assert shell.display_formatter.format is other


def test_unloading_ends_the_reports_under_a_later_extension(shell, tree):
    ours = shell.display_formatter.format
    shell.display_formatter.format = lambda value: ours(value)
    jax_array_info.unload_ipython_extension(shell)
    assert shell.shown(tree) == {"text/plain": f"as before: {tree!r}"}


class FailingShell(Shell):
    """A shell whose cells raise errors."""

    def showtraceback(self, exc_tuple=None, **options):
        """Print the last line of a traceback, as IPython prints it to stdout."""
        error = sys.exception() if exc_tuple is None else exc_tuple[1]
        print(f"traceback: {type(error).__name__} {options}")

    def run(self, function, *args):
        """Run a cell."""
        try:
            function()
        except BaseException:
            self.showtraceback(*args, running_compiled_code=True)


def use_deleted():
    array = jnp.zeros(30)
    array.delete()
    array + 1


def test_an_error_of_a_cell_is_explained_before_its_traceback(capsys):
    shell = FailingShell()
    jax_array_info.load_ipython_extension(shell)
    jax_array_info.load_ipython_extension(shell)  # a second time
    for function in (use_deleted, lambda: 1 / 0, lambda: sys.exit(3)):
        shell.run(function)
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"traceback: {name} {{'running_compiled_code': True}}"
        for name in ("RuntimeError", "ZeroDivisionError", "SystemExit")
    ]
    assert err.count("deleted array at") == 1
    assert "The memory of array is gone: it was deleted at line" in err
    try:
        use_deleted()
    except RuntimeError as error:
        found = type(error), error, error.__traceback__
    shell.showtraceback(found)
    assert "deleted array at" in capsys.readouterr().err
    jax_array_info.unload_ipython_extension(shell)
    assert [*vars(shell)] == ["display_formatter"]
    shell.run(use_deleted)
    assert capsys.readouterr().err == ""


def test_a_broken_explanation_leaves_the_traceback(capsys, monkeypatch):
    from jax_array_info_core.programs.raised import explain

    def broken(error):
        raise MemoryError

    monkeypatch.setattr(explain, "explanation_of", broken)
    shell = FailingShell()
    jax_array_info.load_ipython_extension(shell)
    shell.run(use_deleted)
    assert capsys.readouterr() == ("traceback: RuntimeError {'running_compiled_code': True}\n", "")


def test_a_program_without_a_shell_can_call_both():
    jax_array_info.load_ipython_extension(None)
    jax_array_info.unload_ipython_extension(None)


def test_displaying_a_tree_keeps_no_array_alive_and_no_shell(shell):
    import gc
    import weakref

    array = jnp.ones((4, 4))
    alive = weakref.ref(array)
    shell.shown({"w": array})
    del array
    gc.collect()
    assert alive() is None
    other = Shell()
    jax_array_info.load_ipython_extension(other)
    formatter = weakref.ref(other.display_formatter)
    del other
    gc.collect()
    assert formatter() is None
