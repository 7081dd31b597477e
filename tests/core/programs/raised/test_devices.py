"""Errors about devices, sizes and buffers: each raises, is explained, and each edit of it works."""

import random
import re
import runpy
import textwrap
import traceback

import jax
import numpy as np
import pytest

from jax_array_info_core.programs.raised import devices
from jax_array_info_core.programs.raised.explain import explanation_of

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]

HEAD = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.reshape(jax.devices(), (4, 2)), ("x", "y"))
other = Mesh(np.reshape(jax.devices()[::-1], (4, 2)), ("x", "y"))
A = np.arange(64, dtype=np.float32).reshape(8, 8)
add = jax.jit(lambda p, q: p + q)
add_trees = jax.jit(lambda tree, q: tree["w"] + tree["b"] + q)
both = jax.jit(lambda p, q: (p + 1, q + 1), donate_argnums=(0, 1))
first = jax.jit(lambda p, q: (p + 1, q + 1), donate_argnums=0)
ema = jax.jit(lambda state, x: state["w"] + state["ema"] + x, donate_argnums=0)
a = jax.device_put(A, NamedSharding(mesh, P("x")))
b = jax.device_put(A, jax.devices()[5])
"""
KINDS_OF_DEVICES = {
    "incompatible devices",
    "size not divisible",
    "donated twice",
    "deleted array",
    "leaked value",
    "array of several processes",
    "closure over an array of several processes",
}
"""Kinds of errors with a program here, or in the tests of ``jai-cli run``."""
ERRORS = []


@pytest.fixture(autouse=True)
def forgotten_programs():
    """Forget the variables of the programs: up to JAX 0.8, a leaked value keeps them alive for good."""
    yield
    while ERRORS:
        for frame, _ in traceback.walk_tb(ERRORS.pop().__traceback__):
            if frame.f_globals["__name__"] == "<run_path>":
                frame.f_globals.clear()
                break


def raised(folder, code, head=HEAD):
    """Return the path of a program, the number of lines before its code, and the error that it raises."""
    path = folder / "train.py"
    path.write_text(f"{head}{textwrap.dedent(code)}")
    with pytest.raises(Exception) as caught:
        runpy.run_path(str(path))
    ERRORS.append(caught.value)
    return path, head.count("\n"), caught.value


def explained(folder, code):
    path, before, error = raised(folder, code)
    found = explanation_of(error)
    assert found is not None, error
    assert found.file == str(path)
    return found, found.line - before, path


def result_of(path, found, edit):
    """Return the ``result`` of a program after an edit."""
    lines = path.read_text().splitlines(keepends=True)
    last = found.line - 1 + found.expression.count("\n")
    block = "".join(lines[found.line - 1 : last + 1])
    assert block.count(found.expression) == 1
    lines[found.line - 1 : last + 1] = [block.replace(found.expression, edit.code)]
    path.write_text("".join(lines))
    return jax.tree.map(np.asarray, runpy.run_path(str(path))["result"])


A = np.arange(64, dtype=np.float32).reshape(8, 8)
EVERY, ONE = "on devices 0-7", "on device 5"


@pytest.mark.parametrize(
    ("code", "operands", "want"),
    [
        ("result = add(a, b)", {"a": EVERY, "b": ONE}, A + A),
        ("result = a + b", {"a": EVERY, "b": ONE}, A + A),
        ("result = add(q=a, p=b)", None, A + A),
        ("result = jnp.matmul(b, a)", {"a": EVERY, "b": ONE}, A @ A),
        ("result = jax.jit(lambda a, b: a * b)(b, a)", {"a": EVERY, "b": ONE}, A * A),
        (
            "c = jax.device_put(A, NamedSharding(other, P('x')))\nresult = add(a, c)",
            {"a": EVERY, "c": "on devices 7,6,5,4,3,2,1,0"},
            A + A,
        ),
        (
            "c = jax.device_put(A, jax.devices()[3])\nresult = add(c, b)",
            {"b": ONE, "c": "on device 3"},
            A + A,
        ),
        (
            "result = jax.jit(lambda b: b * 2, out_shardings=NamedSharding(mesh, P('x')))(b)",
            {"b": ONE, "explicit output sharding": EVERY},
            A * 2,
        ),
        (
            "def f(b):\n    return jax.lax.with_sharding_constraint(b, NamedSharding(mesh, P('x')))\n"
            "result = jax.jit(f)(b)",
            {"b": ONE, "sharding_constraint inside jit": EVERY},
            A,
        ),
    ],
)
def test_incompatible_devices_say_which_argument_is_where(tmp_path, code, operands, want):
    found, _, path = explained(tmp_path, code)
    assert found.kind == "incompatible devices"
    if operands is not None:
        assert {one.expression: one.made for one in found.operands} == operands
    (edit,) = found.edits
    np.testing.assert_allclose(result_of(path, found, edit), want)


def test_arrays_of_a_tree_are_named_and_not_moved(tmp_path):
    code = "params = {'w': a, 'b': b}\nresult = add_trees(params, a)"
    found, line, _ = explained(tmp_path, code)
    assert line == 2
    assert {one.expression: (one.type, one.made) for one in found.operands} == {
        "params['b']": ("f32[8,8]", ONE),
        "params['w']": ("f32[8,8]", EVERY),
    }
    assert found.edits == ()


def test_without_a_mesh_in_the_program_no_edit_is_known(tmp_path):
    head = HEAD.replace("b = jax", "del mesh\nb = jax")
    _, _, error = raised(tmp_path, "result = a + b", head)
    assert explanation_of(error).edits == ()


@pytest.mark.parametrize(
    ("code", "rule", "edits"),
    [
        (
            "V = np.zeros((6, 8))\nresult = jax.device_put(V, NamedSharding(mesh, P('x')))",
            "Dimension 0 has 6 elements, which cannot be divided into 4 shards over x."
            " The nearest sizes that can: 4 and 8.",
            ['P("y")', "P(None)"],
        ),
        (
            "V = np.zeros((8, 9))\nresult = jax.device_put(V, NamedSharding(mesh, P(None, ('x', 'y'))))",
            "Dimension 1 has 9 elements, which cannot be divided into 8 shards over x, y."
            " The nearest sizes that can: 8 and 16.",
            ["P(None, None)"],
        ),
        (
            "V = np.zeros((3, 8))\nresult = jax.device_put(V, NamedSharding(mesh, P('x', 'y')))",
            "Dimension 0 has 3 elements, which cannot be divided into 4 shards over x."
            " The nearest sizes that can: 4.",
            ["P(None,"],
        ),
        (
            "V = jnp.zeros((6, 8))\n"
            "result = jax.jit(lambda v: v, in_shardings=NamedSharding(mesh, P('x')))(V)",
            "Dimension 0 has 6 elements, which cannot be divided into 4 shards over x."
            " The nearest sizes that can: 4 and 8.",
            ['P("y")', "P(None)"],
        ),
    ],
)
def test_a_size_that_is_not_divisible_has_the_nearest_ones(tmp_path, code, rule, edits):
    found, line, path = explained(tmp_path, code)
    assert (found.kind, line) == ("size not divisible", 2)
    assert found.rule == rule
    assert len(found.edits) == len(edits)
    program = path.read_text()
    for edit, part in zip(found.edits, edits, strict=True):
        assert part in edit.code
        path.write_text(program)
        assert not np.any(result_of(path, found, edit))


@pytest.mark.parametrize(
    ("code", "names", "want"),
    [
        ("c = jnp.asarray(A)\nresult = both(c, c)", ": c.", (A + 1, A + 1)),
        ("c = d = jnp.asarray(A)\nresult = both(c, d)", ": c and d.", (A + 1, A + 1)),
        ("c = jnp.asarray(A)\nresult = first(c, c)", ": c.", (A + 1, A + 1)),
        (
            "c = jnp.asarray(A)\nthree = jax.jit(lambda p, q, r: (p + 1, q + 1, r + 1), donate_argnums=(0, 1, 2))\n"
            "result = three(c, c, c)",
            ": c.",
            (A + 1,) * 3,
        ),
        (
            "c = jnp.asarray(A)\nstate = {'ema': c, 'w': c}\nresult = ema(state, 1.0)",
            ": state['ema'] and state['w'].",
            A + A + 1,
        ),
    ],
)
def test_an_array_that_is_donated_twice_is_named_and_copied(tmp_path, code, names, want):
    found, _, path = explained(tmp_path, code)
    assert (found.kind, found.rule) == (
        "donated twice",
        f"The call donates an array that it gets twice{names}",
    )
    (edit,) = found.edits
    result = result_of(path, found, edit)
    for got, expected in zip(
        *((result, want) if isinstance(want, tuple) else ([result], [want])), strict=True
    ):
        np.testing.assert_allclose(got, expected)


def test_two_arrays_that_are_there_twice_are_not_named(tmp_path):
    code = "three = jax.jit(lambda p, q, r, s: (p + q, r + 1, s + 1), donate_argnums=(2, 3))\n"
    found, _, _ = explained(tmp_path, f"{code}c, d = jnp.ones(3), jnp.ones(3)\nresult = three(c, c, d, d)")
    assert found.rule == "The call donates an array that it gets twice."
    assert found.edits == ()


STEP = "step = jax.jit(lambda p: p + 1, donate_argnums=0)\n"
STEPPED = "donated to step at line {2}. Use its result, or donate a copy"
ANYHOW = "donated to a call, or deleted. Use the result of the call, or donate a copy"
TELLS_DONATIONS = hasattr(jax.jit(len), "_jit_info")


@pytest.mark.parametrize(
    ("code", "name", "what"),
    [
        ("result = step(a)\nresult = a + 1", "a", STEPPED),
        ("result = step(a)\nprint(np.asarray(a))", "a", STEPPED),
        ("for _ in range(1):\n    b = step(a)\nresult = a + 1", "a", STEPPED.replace("2", "3")),
        ("if A is None:\n    b = step(a)\na.delete()\nresult = a + 1", "a", "deleted at line {4}"),
        ("if A is None:\n    b = step(a)\nc = a\nc.delete()\nresult = a + 1", "a", ANYHOW),
        ("a.delete()\nresult = a.sum()", "a", "deleted at line {2}"),
        ("a = step(a)\nb = a\nb.delete()\nresult = a * 2", "a", ANYHOW),
        (
            "def apart():\n    return step(a)\nc = a\nresult = step(c)\nresult = a * 2",
            "a",
            ANYHOW,
        ),
        (
            "state = {'w': a}\nresult = step(a)\nresult = state['w'] * 2",
            "state['w']",
            ANYHOW,
        ),
    ],
)
def test_a_deleted_array_says_which_call_has_freed_it(tmp_path, code, name, what):
    found, _, _ = explained(tmp_path, STEP + code)
    start = HEAD.count("\n")
    if "donated to step" in what and not TELLS_DONATIONS:
        what = ANYHOW
    what = re.sub(r"\{(\d)\}", lambda found: str(start + int(found[1])), what)
    assert found.rule == f"The memory of {name} is gone: it was {what}."
    assert [(one.expression, one.type) for one in found.operands] == [(name, "f32[8,8]")]
    assert found.edits == ()


def test_a_call_of_an_earlier_turn_of_a_loop_has_freed_its_array(tmp_path):
    code = STEP + "for _ in range(2):\n    c = a * 1\n    result = step(a)\n"
    found, line, _ = explained(tmp_path, code)
    assert line == 3
    assert ANYHOW in found.rule, "the call comes after the line"


@pytest.mark.parametrize(
    "code",
    ["a + b", "jax.device_put(np.zeros((6, 8)), NamedSharding(mesh, P('x')))", "a.delete()\na.sum()"],
)
def test_a_message_of_another_form_raises_nothing(tmp_path, code):
    _, _, error = raised(tmp_path, code)
    text, number = str(error), random.Random(0)
    for _ in range(100):
        start, stop = sorted(number.choices(range(len(text)), k=2))
        changed = number.choice([text[:stop], text[:start] + text[stop:], re.sub(r"\d", "0", text[:stop])])
        explanation = explanation_of(type(error)(changed).with_traceback(error.__traceback__))
        assert explanation is None or explanation.rule


LEAKING = """
kept = []
class Model:
    @jax.jit
    def __call__(x):
        return x
@jax.jit
def leak(x):
    global G
    G = x * 2
    kept.append(jnp.tanh(x))
    model.cache = jnp.sin(x)
    return x
model = Model()
leak(jnp.ones(3))
"""


@pytest.mark.parametrize(
    ("code", "name", "line", "holder"),
    [
        pytest.param("result = G + 1", "G", 10, "G", marks=pytest.mark.newest),  # searches the whole heap
        ("result = jnp.sum(kept[0])", "kept[0]", 11, "in kept[0]:"),
        ("result = jnp.sum(model.cache)", "model.cache", 12, "in model.cache:"),
        pytest.param(
            "def use(y):\n    return y * 2\nresult = use(kept[0])", "y", 11, "kept", marks=pytest.mark.newest
        ),
    ],
)
def test_a_leaked_value_says_where_it_was_made_and_what_holds_it(
    tmp_path, monkeypatch, code, name, line, holder
):
    monkeypatch.setattr(devices, "_SECONDS", 600.0)
    found, _, _ = explained(tmp_path, LEAKING + code)
    line += HEAD.count("\n")
    assert found.kind == "leaked value"
    assert [(one.expression, one.type, one.made) for one in found.operands] == [
        (name, "f32[3]", f"made at train.py:{line}")
    ]
    assert found.rule.startswith("leak has left a value of its tracing for jit in ")
    assert holder in found.rule
    assert found.rule.endswith(": return the value instead.")


def test_a_checked_leak_names_the_variable(tmp_path):
    code = """
    def train():
        keep = []
        @jax.jit
        def leak(x):
            keep.append(x * 2)
            return x
        with jax.checking_leaks():
            leak(jnp.ones(3))
    train()
    """
    found, line, _ = explained(tmp_path, code)
    assert line == 9
    assert found.rule == (
        "leak has left a value of its tracing for jit in keep, which leak closes over: return the value instead."
    )


@pytest.mark.parametrize(
    "error",
    [
        ValueError("other"),
        RuntimeError("INVALID_ARGUMENT: something else"),
        ValueError("Received incompatible devices for jitted computation. Got neither"),
        RuntimeError("Array has been deleted with shape=float32[8,8]."),
    ],
)
def test_errors_of_no_kind_and_without_a_line_of_the_user_have_no_explanation(error):
    assert explanation_of(error) is None
