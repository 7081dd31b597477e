"""The IPython extension; a test with a real shell is in ``tests/site``."""

import collections
import dataclasses
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_array_info
from jax_array_info import array_report, planned_mesh_report, to_html, to_text, tree_report
from jax_array_info.export import notebook

pytestmark = pytest.mark.once_per_version


@pytest.fixture
def tree():
    return {"w": jnp.ones((4, 4)), "b": [jnp.zeros(3), 4, None]}


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


@pytest.fixture
def shell(monkeypatch):
    """Return a running shell that has loaded the extension."""
    shell = Shell()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
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
