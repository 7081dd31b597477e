"""Searches for referrers disturb nothing and keep nothing alive."""

import gc
import sys
import threading
import weakref

import jax.numpy as jnp
import pytest

from jax_array_info_core.arrays.holders.search import find_holders
from tests.core.arrays.holders.finding import find_all, path_of
from tests.growing import no_collector
from tests.threads import meanwhile

pytestmark = pytest.mark.own_process


def test_assignments_of_exec_to_the_variables_of_a_function_stay():
    def run(find):
        x, w = 1, jnp.ones(3)
        exec("x = 2; find([w]); seen.append(x)", {"seen": seen}, locals())
        return x, w

    seen = []
    run(find_all)
    assert seen == [2]


def test_a_profile_function_in_another_thread_is_not_disturbed():
    inside, go_on, results = threading.Event(), threading.Event(), []

    def trace(frame, event, arg):
        if frame.f_code.co_name == "work":
            inside.set()
            go_on.wait(60)

    def work(number):
        return number + 1

    def run():
        sys.setprofile(trace)
        results.append(work(1))
        sys.setprofile(None)

    thread = threading.Thread(target=run)
    thread.start()
    assert inside.wait(60)
    find_all([jnp.ones(3)])
    go_on.set()
    thread.join()
    assert results == [2]


def test_neither_the_search_nor_the_frames_read_keep_an_array_alive():
    def use():
        array = jnp.ones(3)
        alive = weakref.ref(array)
        find_holders([array], max_seconds=None)
        del array
        return alive() is None

    gc.collect()
    with no_collector():
        assert use()


def test_the_locals_dict_of_a_function_is_not_cleared():
    names = locals()
    names["extra"] = 1
    array = jnp.ones(3)
    find_all([array])
    # On Python versions where locals() returns the frame's own dict, a variable here refers to it.
    assert names.get("extra") == 1


def test_frozen_objects_are_found():
    state = {"w": jnp.ones(3)}
    gc.collect()
    gc.freeze()
    try:
        found = path_of([state["w"]])
    finally:
        gc.unfreeze()
    assert found == f"{sys._getframe().f_code.co_name}() local state['w']"


def test_tuples_that_other_threads_are_filling_are_not_disturbed():
    def fill():
        assert len(tuple([number] for number in range(1000))) == 1000

    array = jnp.ones(3)
    with meanwhile(fill, 2):
        for _ in range(2):
            find_all([array])
