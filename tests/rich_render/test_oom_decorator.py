"""``report_on_oom`` as a decorator: functions, coroutine functions and jitted functions."""

import asyncio
import copy
import functools
import inspect
import runpy
import warnings

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import compile_caches_report, report_on_oom
from jax_array_info.errors import UnsupportedValueError
from tests.rich_render.test_report_on_oom import OUT_OF_MEMORY, train

pytestmark = pytest.mark.once_per_version


def test_a_decorator_without_parentheses_says_how_it_is_written():
    with pytest.raises(UnsupportedValueError, match=r"expected a file .* write @report_on_oom\(\)"):
        report_on_oom(train)


def hungry():
    yield train()


async def hungry_later():
    await asyncio.sleep(0)
    return train()


async def hungry_one_by_one():
    yield train()


class Callable:
    def __call__(self):
        return train()


@pytest.mark.parametrize(
    ("thing", "named"),
    [
        (classmethod(print), "<class 'classmethod'>"),
        (5, "<class 'int'>"),
        (int, "<class 'type'>"),
        (print, "<class 'builtin_function_or_method'>"),
        (Callable(), f"<class '{__name__}.Callable'>"),
        (Callable().__call__, "<class 'method'>"),
        (functools.partial(train), "<class 'functools.partial'>"),
        (hungry, "the generator function hungry"),
        (hungry_one_by_one, "the generator function hungry_one_by_one"),
    ],
)
def test_other_callables_are_told_to_use_a_block(thing, named):
    with pytest.raises(TypeError) as caught:
        report_on_oom()(thing)
    assert str(caught.value) == (
        f"cannot decorate {named}, only functions, coroutine functions and jitted functions: write "
        "`with report_on_oom():` around the lines that allocate"
    )


def test_coroutine_functions_may_be_decorated(capsys):
    later = report_on_oom()(hungry_later)
    assert inspect.iscoroutinefunction(later)
    with pytest.raises(OUT_OF_MEMORY):
        asyncio.run(later())
    assert capsys.readouterr().err.count("live arrays at") == 1


@jax.jit
def fill(x):
    """Allocate more memory than there is."""
    return jnp.zeros((2**25, 2**25)) + x


class Trainer:
    def __init__(self):
        self.size = 2**50

    @report_on_oom()
    @functools.partial(jax.jit, static_argnums=0)
    def fill(self, x):
        return jnp.zeros((self.size,), jnp.int8) + x

    @staticmethod
    @report_on_oom()
    def fill_static(x):
        return fill(x)

    @report_on_oom()
    def fill_later(self, x):
        return fill(x)


@pytest.mark.parametrize(
    "function",
    [
        report_on_oom()(fill),
        report_on_oom()(report_on_oom()(fill)),
        Trainer().fill,
        Trainer().fill_static,
        Trainer().fill_later,
    ],
    ids=["jitted", "twice", "jitted method", "static method", "method"],
)
def test_functions_of_each_kind_may_be_decorated(function, capsys):
    with pytest.raises(OUT_OF_MEMORY):
        function(1)
    assert capsys.readouterr().err.count("live arrays at") == 1


def test_a_decorated_jitted_function_keeps_its_attributes():
    @jax.jit
    def double(x):
        """Double it."""
        return 2 * x

    decorated = report_on_oom()(double)
    assert decorated(3) == 6
    assert "mul" in decorated.lower(3.0).as_text()
    assert str(decorated.trace(3.0).jaxpr) == str(double.trace(3.0).jaxpr)
    decorated(jnp.zeros(3))
    assert double._cache_size() == 2
    decorated.clear_cache()
    assert double._cache_size() == 0
    decorated(3)
    compile_caches_report(clear=decorated)
    assert double._cache_size() == 0
    assert inspect.signature(decorated) == inspect.signature(double)
    assert (decorated.__name__, decorated.__doc__, decorated.__wrapped__) == ("double", "Double it.", double)
    assert repr(decorated) == repr(double)
    with pytest.raises(AttributeError, match="no_such"):
        decorated.no_such  # noqa: B018
    assert copy.copy(decorated)(3) == 6
    assert jax.vmap(decorated)(jnp.arange(2.0)).tolist() == [0, 2]


def look_inside(x):
    with report_on_oom():
        return x * 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: jax.jit(look_inside)(3),
        lambda: jax.jit(report_on_oom()(lambda x: x * 2))(3),
        lambda: jax.vmap(jax.jit(look_inside))(jnp.ones(3)),
        lambda: jax.jit(jax.grad(look_inside))(3.0),
    ],
    ids=["block", "decorator", "under vmap", "grad inside"],
)
def test_inside_a_traced_function_it_warns_to_put_it_outside(call):
    with pytest.warns(UserWarning, match="put it outside, as @report_on_oom.. above @jax.jit") as warned:
        call()
    assert {warning.filename for warning in warned} == {__file__}


def test_it_warns_once_per_line_of_each_file(tmp_path):
    code = (
        "import jax\n"
        "from jax_array_info import report_on_oom\n"
        "for length in range(1, 3): jax.jit(report_on_oom()(lambda x: x))(jax.numpy.ones(length))\n"
    )
    programs = [tmp_path / name for name in ("one.py", "other.py")]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        for program in programs:
            program.write_text(code)
            runpy.run_path(str(program))
    assert [warning.filename for warning in warned] == list(map(str, programs))


def test_in_eager_transformations_it_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        look_inside(3)
        jax.vmap(look_inside)(jnp.ones(3))
        jax.grad(look_inside)(3.0)


def test_a_function_compiles_when_warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jax.jit(look_inside)(3) == 6
