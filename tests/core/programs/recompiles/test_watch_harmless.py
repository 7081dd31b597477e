"""A watch keeps nothing alive, raises nothing and leaves no listener."""

import gc
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import watch_compiles
from jax_array_info_core.compat import compiled_calls, private
from jax_array_info_core.programs.recompiles import watch as watch_module

pytestmark = pytest.mark.once_per_version


def listeners():
    return private("monitoring").get_event_duration_listeners()


def test_no_array_is_added_or_kept_alive():
    step = jax.jit(lambda params, x: params["w"] * x)
    params = {"w": jnp.ones((3, 5))}
    x = jnp.ones(5)
    jnp.ones((3, 4)).block_until_ready()
    gc.collect()
    alive = len(jax.live_arrays())
    with watch_compiles() as watch:
        result = step(params, x)
        assert len(jax.live_arrays()) == alive + 1
        references = [weakref.ref(array) for array in (params["w"], x, result)]
        del params, x, result
        if sys.version_info >= (3, 13):
            assert [reference() for reference in references] == [None] * 3
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    assert watch.count == 1
    assert "float32" not in repr([one.reason for one in watch.compilations])


def test_no_function_and_no_static_argument_is_kept_alive():
    class Config:
        def __init__(self):
            self.array = jnp.ones(3)

    def step(x, config):
        return x + 1

    config = Config()
    watch = watch_compiles(step)
    with watch:
        jax.jit(step, static_argnums=1)(np.ones(3), config)
    references = weakref.ref(step), weakref.ref(config), weakref.ref(config.array)
    del step, config
    jax.clear_caches()
    gc.collect()
    assert [reference() for reference in references] == [None] * 3
    assert watch.count == 1


def test_the_last_watch_takes_its_listener_out_of_jax():
    before = listeners()
    with watch_compiles():
        with watch_compiles():
            assert listeners()[:-1] == before
        assert listeners()[:-1] == before
    assert listeners() == before


def test_a_listener_that_cannot_be_taken_out_stays_and_does_nothing():
    def later(event, duration, **_):
        pass

    monitoring = private("monitoring")
    step = jax.jit(lambda x: x * 23)
    try:
        with watch_compiles() as watch:
            monitoring.register_event_duration_secs_listener(later)
        assert compiled_calls._on_event in listeners()
        step(np.ones(2, np.float32))
        assert watch.count == 0
        with watch_compiles() as watch:
            step(np.ones(3, np.float32))
        assert watch.count == 1
    finally:
        for listener in (later, compiled_calls._on_event):
            unregister = getattr(monitoring, "unregister_event_duration_listener", None)
            (unregister or monitoring._unregister_event_duration_listener_by_callback)(listener)


@pytest.mark.parametrize("name", ["signature_of", "wrapped_functions", "code_origin", "described"])
def test_an_error_of_ours_never_ends_the_call(name, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("ours")

    step = jax.jit(lambda x: x * 29)
    watch = watch_compiles(step)
    monkeypatch.setattr(watch_module, name, fail)
    with watch:
        assert step(np.float32(2)) == 58
    assert [one.reason for one in watch.compilations] in ([], ["the call could not be read"])
    assert (watch.count == 1) == (name == "signature_of")


def test_values_whose_methods_raise_are_recorded():
    class Hostile:
        armed = False

        def __hash__(self):
            if Hostile.armed:
                raise RuntimeError
            return 1

        def __repr__(self):
            raise RuntimeError

        def __eq__(self, other):
            return self is other

    step = jax.jit(lambda x, n: x, static_argnums=1)
    with watch_compiles(step) as watch:
        step(np.ones(3), Hostile())
        step(np.ones(3), Hostile())
    assert watch.count == 2
    assert watch.compilations[1].reason.startswith("static argument n: ") or (
        watch.compilations[1].reason.startswith("nothing visible differs")
    )


def test_the_caches_of_a_watched_function_are_as_without_a_watch():
    step = jax.jit(lambda x: x * 31)
    with watch_compiles(step):
        for size in (1, 2, 2):
            step(np.ones(size, np.float32))
    assert step._cache_size() == 2


def test_a_report_of_many_compilations_is_bounded_in_time():
    step = jax.jit(lambda x: x)
    with watch_compiles(step) as watch:
        step({str(number): np.float32(number) for number in range(300)})
        step({str(number): np.int16(number) for number in range(300)})
    assert watch.compilations[1].reason == "x/0, x/1 and 298 more: dtype float32 became int16"
