"""Reference paths through functions, context variables and thread-local values."""

import contextvars
import functools
import sys
import threading
import types

import jax
import jax.numpy as jnp
import pytest

from tests.core.holders.finding import make_step, path_of

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
def train():
    """Return a module whose variables are functions that hold arrays, and the arrays by variable."""
    train = sys.modules["train"] = types.ModuleType("train")
    arrays = {name: jnp.ones(3) for name in HOLDERS}
    for name, (make, _) in HOLDERS.items():
        setattr(train, name, make(arrays[name]))
    yield arrays
    del sys.modules["train"]


@pytest.mark.parametrize("name", HOLDERS)
def test_a_function_in_a_container_is_named_by_the_container(name, train):
    assert path_of([train.pop(name)]) == HOLDERS[name][1]


def test_a_path_from_a_context_variable_has_its_name():
    cache = contextvars.ContextVar("cache")
    token = cache.set({"w": jnp.ones(3)})
    assert path_of([cache.get()["w"]]) == "ContextVar cache['w']"
    cache.reset(token)
    context = contextvars.copy_context()
    context.run(cache.set, [jnp.ones(3)])
    assert path_of([*context[cache]]) == "ContextVar cache[0]"
    arrays = [jnp.ones(3)]
    default = contextvars.ContextVar("default", default=arrays[0])
    assert default.get() is arrays[0]
    assert path_of(arrays) == "default of ContextVar default"


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
    there, mine = path_of(arrays), path_of(arrays)
    done.set()
    thread.join()
    name = f"{sys._getframe().f_code.co_name}() local local"
    assert (mine, there) == (f"{name}.cache['x']", f"{name}.other['y']")
