"""Explaining an error runs no code of the user, changes nothing, and keeps nothing alive."""

import gc
import subprocess
import sys
import traceback
import weakref
from functools import cache

import jax
import pytest

from jax_array_info_core.programs.raised.explain import explanation_of, explanation_of_text
from jax_array_info_core.programs.raised.kinds import KINDS
from tests.core.programs.raised.explicit_programs import FILE, PREAMBLE, Program, programs

pytestmark = [
    pytest.mark.newest,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="the wordings are those from JAX 0.9 on"),
]


def program(source):
    return Program(PREAMBLE + source, "A")


LAYER = """
calls = []
class Layer:
    @property
    def weight(self):
        calls.append("property")
        return put(A, "x")
    def __getattr__(self, name):
        calls.append(name)
        return put(A, "y")
class Params(dict):
    def __getitem__(self, key):
        calls.append(key)
        return put(A, "y")
def make(name):
    calls.append("call")
    return put(A, name)
"""


@pytest.mark.parametrize(
    "left",
    ["layer.weight", "layer.missing", 'params["w"]', 'make("x")', "[put(A, 'x')][calls.append('i') or 0]"],
)
def test_no_code_of_the_user_runs(left):
    run = program(
        f"{LAYER}\ndef bad():\n    layer, params = Layer(), Params()\n    return {left} * put(A, ('x', 'y'))\n"
    )
    error = run.error()
    before = list(run.names["calls"])
    explanation = explanation_of(error)
    assert explanation.expression.startswith(left)
    assert run.names["calls"] == before


def test_the_error_stays_as_it_is():
    error = program("def bad():\n    return put(A, 'x') + put(A, 'y')\n").error()
    before = (error.args, error.__cause__, error.__context__, getattr(error, "__notes__", None))
    text, entry = "".join(traceback.format_exception(error)), error.__traceback__
    assert explanation_of(error).edits
    assert (error.args, error.__cause__, error.__context__, getattr(error, "__notes__", None)) == before
    assert error.__traceback__ is entry
    assert "".join(traceback.format_exception(error)) == text


def test_no_array_lives_longer():
    run = program(
        "def bad():\n    a, b = put(A, 'x'), put(A, 'y')\n    kept.append(ref(a))\n    return a + b\n"
    )
    run.names |= {"kept": (kept := []), "ref": weakref.ref}
    error = run.error()
    explanation = explanation_of(error)
    assert explanation.operands[0].type == "f32[8@x,8]"
    assert kept[0]() is not None
    del error
    gc.collect()
    assert kept[0]() is None


def test_a_call_of_a_package_has_no_edit(tmp_path, monkeypatch):
    """The package may use other operands, such as its parameters: an edit might not work."""
    package = tmp_path / "lib" / "site-packages"
    package.mkdir(parents=True)
    (package / "package_of_calls.py").write_text("def add(x, y):\n    return x + y\n")
    monkeypatch.syspath_prepend(str(package))
    run = program(
        "import package_of_calls as layers\ndef bad():\n    return layers.add(put(A, 'x'), put(A, 'y'))\n"
    )
    error = run.error()
    explanation = explanation_of(error)
    assert explanation is not None, error
    assert explanation.expression == "layers.add(put(A, 'x'), put(A, 'y'))"
    assert explanation.edits == ()


def test_an_error_of_another_kind_has_no_explanation():
    assert explanation_of(ValueError("the batch is bad")) is None
    assert explanation_of_text("the batch is bad") is None


class HostileError(Exception):
    """An error that cannot be printed."""

    def __str__(self):
        raise RuntimeError("no text")


def test_an_error_without_text_has_no_explanation():
    assert explanation_of(HostileError()) is None


def test_an_error_that_was_not_raised_has_its_rule():
    message = "add got incompatible shardings for broadcasting: ('x', None), ('y', None)."
    explanation = explanation_of(ValueError(message))
    assert explanation.kind == "incompatible operands"
    assert explanation.rule == "add needs operands that are sharded alike along each dimension"
    assert explanation.line is None
    assert explanation.edits == ()


def test_the_text_of_a_log_gives_the_types_and_the_rule():
    explanation = explanation_of_text(
        "jax._src.core.ShardingTypeError: dot_general operation with inputs: f32[8@x,8], bf16[8,16@(x,y)] "
        "produces an illegally sharded result: f32[8@x,16@(x,y)]"
    )
    assert explanation.rule.startswith("dot_general would have the type f32[8@x,16@(x,y)]")
    assert [one.type for one in explanation.operands] == ["f32[8@x,8]", "bf16[8,16@(x,y)]"]
    assert explanation.edits == ()


def test_only_the_beginning_of_a_message_is_read():
    message = "Contracting dimensions are sharded and it is ambiguous how the output should be sharded"
    explanation = explanation_of_text(message + " " * 10_000 + "f32[8@x,8]")
    assert explanation.operands == ()


@pytest.mark.parametrize(
    "part",
    [
        "f32[8@",
        "P('x', ",
        "P(",
        "(('x', ",
        "Mesh('x': 4, ",
        "f32[8@x,8]{U:",
        "8@(x,",
        " (",
        ".with type a wrapped leaked was a at ",
        "tracing the function a at for b.(c) ",
    ],
)
def test_hostile_messages_are_read(part):
    """Each pattern reads a message of 10,000 characters: a slow one would take minutes."""
    for start in ("", *(kind.pattern.partition("\\")[0].partition("(")[0] for kind in KINDS)):
        explanation_of_text(start + part * 5_000)


@pytest.mark.own_process
def test_text_is_read_without_jax():
    code = (
        "import sys; from jax_array_info_core.programs.raised.explain import explanation_of_text as explain; "
        "assert explain('add got incompatible shardings for broadcasting: (None,)').rule; "
        "assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


RAISER = """
class Raiser:
    def __init__(self, message):
        self.message = message
    def __call__(self, *args, **options):
        raise ValueError(self.message)
    __add__ = __matmul__ = __getitem__ = __neg__ = reshape = __call__
"""
EXPRESSIONS = [
    "r()",
    "r(a, c=b)",
    "r + a",
    "r @ b",
    "r[a, 1:3]",
    "-r",
    "r.reshape(4, 2)",
    "r(*[a, b])",
    "r([a, b])",
]
EXPRESSIONS += [
    "jax.vmap(r)(a, b)",
    "scan(lambda c, x: (c, x), a, b)",
    "cond(a, r, lambda x: x, b)",
    "r('ij,jk', a, b)",
]


@cache
def messages():
    """Return the messages of some of the programs."""
    return [str(Program(PREAMBLE + program["source"], "").error()) for program in programs(FILE)[::4]]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_no_message_makes_an_error_of_ours(expression):
    """Each message, whole and cut off, at an expression that another one raises."""
    names = {}
    exec(compile(RAISER, "/lib/site-packages/jax/raiser.py", "exec"), names)
    run = program(
        f"def bad(r):\n    scan = cond = r\n    a, b = put(A, 'x'), put(A, 'y')\n    return {expression}\n"
    )
    for message in messages():
        for text in (message, message[: len(message) // 2], message[: 2 * len(message) // 3]):
            try:
                with jax.set_mesh(run.names["mesh"]):
                    run.names["bad"](names["Raiser"](text))
            except ValueError as error:
                explanation = explanation_of(error)
                assert explanation is None or explanation.expression in run.source


@pytest.mark.parametrize("wrapped", ["{}", "jax.grad(lambda r: ({})(r).sum())"])
def test_bytes_inside_vmap_are_unknown(wrapped):
    """The type of an operand lacks the dimension that is mapped."""
    dot = wrapped.format("lambda r: jnp.dot(r, r)")
    error = program(f"def bad():\n    return jax.vmap({dot})(put(A, None, 'x'))\n").error()
    assert [edit.sent_nbytes for edit in explanation_of(error).edits] == [None]
