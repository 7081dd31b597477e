"""Lines, callers and named scopes of the rows of a program."""

import os

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core import config, from_json, program_report, to_json

pytestmark = pytest.mark.once_per_version

LAYERS = 3


def project(x, w):
    return jnp.tanh(x @ w)


def model(x, w):
    for layer in range(LAYERS):
        with jax.named_scope(f"layers_{layer}"):
            x = project(x, w)
    with jax.named_scope("head"):
        return project(x, w)


def loss(w, x):
    return jnp.sum(model(x, w) ** 2)


@pytest.fixture(scope="module")
def report():
    w = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return program_report(jax.grad(loss), w, w)


def rows(report):
    """Return the temporaries of the line of ``project``."""
    line = project.__code__.co_firstlineno + 1
    found = [one for one in report.memory.temporaries if one.origin and one.origin.line == line]
    assert found
    return found


def test_rows_of_unscanned_layers_have_their_named_scopes(report):
    scopes = {scope for one in rows(report) for scope in one.scopes}
    assert scopes <= {"head", *(f"layers_{layer}" for layer in range(LAYERS))}
    assert any(len(one.scopes) > 1 for one in rows(report))


def test_two_call_sites_of_one_function_are_two_rows(report):
    chains = {one.origin.callers for one in rows(report)}
    first = model.__code__.co_firstlineno
    assert {callers[0].line - first for callers in chains} == {3, 5}
    for callers in chains:
        assert [one.function for one in callers[:2]] == ["model", "loss"]
    assert from_json(to_json(report)) == report


def test_lines_have_their_text_and_files_that_cannot_be_read_none(report, tmp_path):
    again = from_json(to_json(report))
    assert {one.origin.code for one in rows(again)} == {"    return jnp.tanh(x @ w)"}
    path = tmp_path / "pipe.py"
    os.mkfifo(path)
    for name in (str(path), "<string>", str(tmp_path / "gone.py")):
        names = {"__name__": "made"}
        exec(compile("def double(x):\n    return (x @ x) @ x", name, "exec"), names)
        found = program_report(names["double"], jax.ShapeDtypeStruct((64, 64), jnp.float32))
        assert {one.origin.code for one in found.memory.temporaries if one.origin} == {""}


def test_a_program_of_a_package_alone_has_its_nearest_line(tmp_path, monkeypatch):
    """Its own lines are shown where no line of the user calls it, and on request where one does."""
    package = tmp_path / "site-packages" / "layers_of_a_package.py"
    package.parent.mkdir()
    package.write_text("import jax.numpy as jnp\ndef tower(x):\n    return jnp.tanh(x @ x) @ x\n")
    monkeypatch.syspath_prepend(package.parent)
    from layers_of_a_package import tower

    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)

    def lines(function):
        temporaries = program_report(function, x).memory.temporaries
        return {(one.origin.file, len(one.origin.skipped)) for one in temporaries if one.origin}

    assert {file for file, _ in lines(tower)} <= {str(package), __file__}
    assert lines(lambda x: tower(x)) == {(__file__, 0)}
    monkeypatch.setattr(config, "show_frames", 1)
    assert lines(lambda x: tower(x)) == {(__file__, 1)}
    monkeypatch.setattr(config, "user_packages", ("layers_of_a_package",))
    assert lines(lambda x: tower(x)) == {(str(package), 0)}
