"""``explain_errors``, as a block and as a decorator: why JAX raised an error, and what to write instead."""

import asyncio
import contextlib
import functools
import gc
import inspect
import io
import sys
import threading
import weakref

import jax
import jax.numpy as jnp
import pytest

import jax_array_info
from jax_array_info import config, explain_errors
from jax_array_info.errors import UnsupportedValueError
from jax_array_info_core.programs.raised import explain
from jax_array_info_core.programs.raised.explanation import (
    MOST_LINES,
    Edit,
    Explanation,
    Operand,
    explanation_lines,
)
from tests.rich_render.leaving import printed_of

pytestmark = pytest.mark.once_per_version

KNOWN = Explanation(
    kind="incompatible operands",
    rule="Both operands need the same sharding.",
    file="/home/train.py",
    line=34,
    function="step",
    expression="w + x",
    operands=(
        Operand(expression="w", type="f32[8@x,8]", made="argument of step"),
        Operand(expression="x", type="f32[8@y,8]", made="made at train.py:30"),
    ),
    edits=(Edit(code='w + reshard(x, P("x", None))', sent_nbytes=64), Edit(code="w + w")),
)
PAGE = """\
incompatible operands at train.py:34 step
    w + x
      w  f32[8@x,8]  argument of step
      x  f32[8@y,8]  made at train.py:30
Both operands need the same sharding.
Write one of these instead:
    w + reshard(x, P("x", None))  # sends 64.0 B per device
    w + w
"""


EXPLANATION_OF = explain.explanation_of


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Explain each ValueError that begins with ``known``."""

    def explanation_of(error):
        return KNOWN if isinstance(error, ValueError) and str(error).startswith("known") else None

    monkeypatch.setattr(explain, "explanation_of", explanation_of)


def fail(words="known"):
    raise ValueError(words)


def test_an_explanation_is_printed_to_stderr_and_kept(capsys):
    with pytest.raises(ValueError, match="known"), explain_errors() as seen:
        fail()
    assert capsys.readouterr() == ("", PAGE)
    assert seen.explanations == [KNOWN]


def test_other_errors_and_blocks_without_errors_print_nothing(capsys):
    for function in (lambda: fail("other"), lambda: 1 / 0, sys.exit, lambda: None):
        with contextlib.suppress(ValueError, ZeroDivisionError, SystemExit), explain_errors() as seen:
            function()
        assert seen.explanations == []
    for error in (KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(error), explain_errors():
            raise error("known")
    assert capsys.readouterr() == ("", "")


def test_the_exception_is_raised_unchanged():
    assert printed_of(explain_errors, ValueError("known")) == PAGE


def test_nested_blocks_print_once_and_each_keeps_the_explanation(capsys):
    for _ in range(2):
        with pytest.raises(ValueError), explain_errors() as outer, explain_errors() as inner:
            fail()
        assert outer.explanations == inner.explanations == [KNOWN]
        assert capsys.readouterr().err == PAGE


def test_a_cause_a_context_and_a_member_of_a_group_are_explained(capsys):
    def chain(function):
        try:
            fail()
        except ValueError as error:
            function(error)

    def group(error):
        raise ExceptionGroup("some", [KeyError(), error])

    def cause(error):
        raise RuntimeError from error

    def context(error):
        raise RuntimeError

    for function in (group, cause, context):
        with pytest.raises((ExceptionGroup, RuntimeError)), explain_errors():
            chain(function)
        assert capsys.readouterr().err == PAGE


def test_an_error_handled_before_the_block_does_not_count(capsys):
    try:
        fail()
    except ValueError:
        with pytest.raises(KeyError), explain_errors():
            raise KeyError from None
        with contextlib.suppress(KeyError), explain_errors():
            raise KeyError  # noqa: B904 - the test is about the context
    assert capsys.readouterr() == ("", "")


def test_a_failure_of_the_explanation_is_silent(capsys, monkeypatch):
    def broken(error):
        raise MemoryError

    monkeypatch.setattr(explain, "explanation_of", broken)
    with pytest.raises(ValueError, match="known"), explain_errors() as seen:
        fail()
    assert seen.explanations == []
    assert capsys.readouterr() == ("", "")


def test_a_closed_or_missing_stderr_and_a_silent_process_print_nothing(capsys, monkeypatch):
    file = io.StringIO()
    file.close()
    with pytest.raises(ValueError, match="known"), explain_errors(file) as seen:
        fail()
    assert seen.explanations == [KNOWN]
    config.process = 1
    try:
        with pytest.raises(ValueError, match="known"), explain_errors():
            fail()
    finally:
        config.process = "all"
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(ValueError, match="known"), explain_errors():
        fail()
    assert capsys.readouterr() == ("", "")


def known_error():
    held = jnp.zeros((30, 40))
    references.append(weakref.ref(held))
    fail()


def other_devices():
    a, b = (jax.device_put(jnp.zeros((30, 40)), device) for device in jax.devices()[:2])
    references.extend([weakref.ref(a), weakref.ref(b)])
    return a + b


def other_shardings():
    axis_types = (jax.sharding.AxisType.Explicit,) * 2
    with jax.set_mesh(jax.make_mesh((4, 2), ("x", "y"), axis_types=axis_types)):
        a, b = (jax.device_put(jnp.zeros((8, 8)), jax.P(name)) for name in ("x", "y"))
        references.extend([weakref.ref(a), weakref.ref(b)])
        return a + b


references = []
explicit = pytest.mark.skipif(not hasattr(jax, "P"), reason="JAX has no Explicit mode")


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("work", [known_error, other_devices, pytest.param(other_shardings, marks=explicit)])
def test_arrays_of_the_traceback_are_freed_once_the_error_is_handled(work, capsys, monkeypatch):
    if work is not known_error:
        monkeypatch.setattr(explain, "explanation_of", EXPLANATION_OF)
    references.clear()
    kept = []
    gc.disable()
    try:
        for block in (contextlib.nullcontext(), explain_errors()):
            with contextlib.suppress(Exception), block as seen:
                work()
            kept.append(seen)
        half = len(references) // 2
        alive = [reference() is not None for reference in references]
        assert alive[:half] == alive[half:]
    finally:
        gc.enable()
    (explanation,) = kept[1].explanations
    assert explanation.operands
    assert capsys.readouterr().err.startswith(explanation.kind)


@jax.jit
def jitted(x):
    return fail()


def later():
    yield 1
    fail()


async def soon():
    await asyncio.sleep(0)
    fail()


class Model:
    @explain_errors()
    def method(self):
        fail()

    @staticmethod
    @explain_errors()
    def static():
        fail()


@pytest.mark.parametrize(
    "call",
    [
        explain_errors()(fail),
        explain_errors()(explain_errors()(fail)),
        lambda: explain_errors()(jitted)(1),
        lambda: [*explain_errors()(later)()],
        lambda: asyncio.run(explain_errors()(soon)()),
        Model().method,
        Model().static,
    ],
    ids=["function", "twice", "jitted", "generator", "coroutine", "method", "static method"],
)
def test_functions_of_each_kind_may_be_decorated(call, capsys):
    with pytest.raises(ValueError, match="known"):
        call()
    assert capsys.readouterr().err == PAGE


def test_a_decorated_generator_gets_what_is_sent_and_thrown_and_returns():
    @explain_errors()
    def echo():
        got = yield 1
        try:
            yield got
        except KeyError:
            return (yield "thrown")
        return None

    assert inspect.isgeneratorfunction(echo)
    running = echo()
    assert next(running) == 1
    assert running.send("sent") == "sent"
    assert running.throw(KeyError) == "thrown"
    with pytest.raises(StopIteration) as ended:
        running.send("end")
    assert ended.value.value == "end"


@pytest.mark.parametrize("thing", [5, int, print, functools.partial(fail)])
def test_other_callables_are_told_to_use_a_block(thing):
    with pytest.raises(TypeError, match=r"cannot decorate .*: write `with explain_errors\(\):` around"):
        explain_errors()(thing)


def test_an_asynchronous_generator_is_told_to_use_a_block():
    async def some():
        yield 1

    with pytest.raises(TypeError, match=r"the generator function .*some, only functions"):
        explain_errors()(some)


def test_a_decorator_without_parentheses_says_how_it_is_written():
    with pytest.raises(UnsupportedValueError, match=r"write @explain_errors\(\) with parentheses"):
        explain_errors(fail)


def test_each_thread_prints_its_own_error_once(capsys):
    def work(number):
        with contextlib.suppress(ValueError), explain_errors(files[number]), explain_errors(files[number]):
            fail()

    files = [io.StringIO() for _ in range(8)]
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [file.getvalue() for file in files] == [PAGE] * 8


@pytest.mark.parametrize("width", [1, 20, 40, 80, 200])
def test_a_page_has_at_most_12_lines_of_the_width(width):
    long = Explanation(
        kind="kind",
        rule="rule " * 200,
        file=f"/{'folder/' * 20}{'train' * 20}.py",
        line=1,
        function="function" * 10,
        expression="x" * 3000,
        operands=tuple(Operand(expression="w" * length, type="f32[8]") for length in range(30)),
        edits=(*[Edit(code=f"reshard({'x' * 40}, P())", sent_nbytes=2**40)] * 9,),
    )
    lines = explanation_lines(long, width=width)
    assert len(lines) <= MOST_LINES
    assert all(len(line.text) <= max(width, 20) for line in lines)
    assert explanation_lines(KNOWN, width=width)[0].text.startswith("incompatible")


def test_the_code_of_an_edit_is_complete_or_absent():
    for length in range(1, 120):
        code = " + ".join(f"term{number}" for number in range(length))
        one = Explanation(kind="kind", rule="rule", expression=code, edits=(Edit(code=code),))
        shown = " ".join(line.text.strip() for line in explanation_lines(one) if line.look == "answer")
        assert shown in (code, "")
        assert shown or length > 50


def test_text_of_the_user_is_escaped():
    one = Explanation(kind="kind", rule="rule", expression="'\x1b[31m'", edits=(Edit(code="'\u202e'\n + x"),))
    texts = [line.text for line in explanation_lines(one)]
    assert texts[1].strip() == r"'\x1b[31m'"
    assert texts[-1].strip() == r"'\u202e' + x"


@pytest.mark.parametrize(
    "verb",
    [
        jax_array_info.print_program,
        pytest.param(
            jax_array_info.print_propagation,
            marks=pytest.mark.skipif(
                jax.__version_info__ < (0, 10, 1), reason="print_propagation needs JAX 0.10.1 or later"
            ),
        ),
    ],
)
def test_the_step_of_a_printed_program_is_explained_and_its_error_raised(verb, capsys):
    def step(x):
        return fail()

    with pytest.raises(ValueError, match="known"):
        verb(step, jnp.zeros(3))
    assert capsys.readouterr() == ("", PAGE)
