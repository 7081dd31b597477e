"""Reference paths through functions, context variables and thread-local values."""

import contextvars
import functools
import sys
import threading
import types

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core.holders.search import find_holders
from tests.core.holders.finding import find_all, find_without_variables, make_step, paths
from tests.growing import no_collector

pytestmark = pytest.mark.own_process


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


def keep(w):
    return lambda x, w=w: x


CLOSURE = "closure of make_step.<locals>.step: params"
HOLDERS = {
    "callbacks": (lambda w: [print, keep(w)], "train.callbacks[1] → default of keep.<locals>.<lambda>: w"),
    "jitted": (lambda w: {"step": jax.jit(make_step(w))}, f"train.jitted['step'] → {CLOSURE}"),
    "gradient": (lambda w: (jax.jit(jax.value_and_grad(make_step(w))),), f"train.gradient[0] → {CLOSURE}"),
    "partials": (lambda w: [functools.partial(make_step(w))], f"train.partials[0].func → {CLOSURE}"),
    "step": (make_step, CLOSURE),
    "other": (make_step, f"train.other → {CLOSURE}"),
    "wrapped": (
        lambda w: decorated(make_step(w)),
        f"train.wrapped → closure of make_step.<locals>.step: function → {CLOSURE}",
    ),
}


@pytest.fixture(scope="module")
def found():
    """Return the paths to arrays that functions of a module hold, found in one search."""
    train = sys.modules["train"] = types.ModuleType("train")
    arrays = {name: jnp.ones(3) for name in HOLDERS}
    for name, (make, _) in HOLDERS.items():
        setattr(train, name, make(arrays[name]))
    try:
        paths = find_holders(list(arrays.values()), max_seconds=None).paths
    finally:
        del sys.modules["train"]
    return {
        name: [path for path in paths[id(array)] if "() local " not in path] for name, array in arrays.items()
    }


@pytest.mark.parametrize("name", HOLDERS)
def test_a_function_in_a_container_is_named_by_the_container(name, found):
    assert found[name] == [HOLDERS[name][1]]


def test_an_unreferenced_function_is_named_by_its_own_name():
    def make(w):
        def loop():
            return loop, w

    arrays = [jnp.ones(3)]
    with no_collector():
        make(arrays[0])
        name = f"{sys._getframe().f_code.co_name}.<locals>.make.<locals>.loop"
        assert find_without_variables(arrays) == (f"closure of {name}: w",)


def test_a_path_from_a_context_variable_has_its_name():
    cache = contextvars.ContextVar("cache")
    token = cache.set({"w": jnp.ones(3)})
    array = cache.get()["w"]
    assert paths(array) == ["ContextVar cache['w']"]
    cache.reset(token)
    context = contextvars.copy_context()
    context.run(cache.set, [array])
    assert paths(array) == ["ContextVar cache[0]"]
    default = contextvars.ContextVar("default", default=array)
    assert "default of ContextVar default" in paths(array)
    assert default is not None


class Scratch(threading.local):
    pass


@pytest.mark.parametrize("cls", [threading.local, Scratch])
def test_a_thread_local_value_has_the_name_of_its_attribute(cls):
    local, there, done = cls(), threading.Event(), threading.Event()
    local.cache = {"x": jnp.ones(3)}
    arrays = [local.cache["x"], jnp.ones(4)]

    def work():
        local.other = {"y": arrays[1]}
        there.set()
        done.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    assert there.wait(60)
    found = find_all(arrays).paths
    done.set()
    thread.join()
    name = f"{sys._getframe().f_code.co_name}() local local"
    assert f"{name}.cache['x']" in found[id(arrays[0])]
    assert f"{name}.other['y']" in found[id(arrays[1])]
