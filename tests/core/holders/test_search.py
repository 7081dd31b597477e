"""Reference paths to live arrays, from every type of referrer."""

import asyncio
import dataclasses
import gc
import sys
import threading
import types
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core.errors import SearchError
from jax_array_info_core.holders.scopes import Owner, owner_of
from jax_array_info_core.holders.search import MOST_HOLDERS, find_holders
from tests.core.holders.finding import Node, find_all, find_without_variables, make_step, paths

pytestmark = pytest.mark.own_process


@dataclasses.dataclass
class Params:
    w: Any


def test_a_variable_of_a_running_function_has_a_path():
    def main():
        batch = {"x": jnp.ones(3)}
        return find_all([batch["x"]]).paths[id(batch["x"])]

    name = test_a_variable_of_a_running_function_has_a_path.__name__
    assert main() == (f"{name}.<locals>.main() local batch['x']",)


def test_a_closure_is_named_by_its_function_and_variable():
    step = make_step(jnp.ones(3))
    assert paths(step.__closure__[0].cell_contents) == ["closure of make_step.<locals>.step: params"]


def test_defaults_and_attributes_of_functions_have_paths():
    array = jnp.ones(3)

    def step(x, w=array, *, bias=array):
        return x

    step.cache = array
    name = f"{sys._getframe().f_code.co_name}.<locals>.step"
    assert sorted(paths(array)) == [
        f"default of {name}: bias",
        f"default of {name}: w",
        f"{name}.cache",
    ]


def test_a_class_attribute_has_the_path_of_its_class():
    class Trainer:
        _ema = (0, jnp.ones(3))

    assert paths(Trainer._ema[1]) == [f"{Trainer.__qualname__}._ema[1]"]


def prefetch(array):
    next_batch = {"x": array}
    del array
    yield 0
    yield next_batch


def test_a_variable_of_a_suspended_generator_has_a_path():
    array = jnp.ones(3)
    batches = prefetch(array)
    next(batches)
    assert paths(array) == ["generator prefetch local next_batch['x']"]


def test_a_variable_of_a_suspended_coroutine_has_a_path():
    async def fetch(array):
        await asyncio.sleep(0)
        return array

    async def agen(array):
        yield 1
        yield array

    array = jnp.ones(3)
    one, two = fetch(array), agen(array)
    one.send(None)
    with pytest.raises(StopIteration):
        two.asend(None).send(None)
    name = sys._getframe().f_code.co_name
    assert sorted(paths(array)) == [
        f"coroutine {name}.<locals>.fetch local array",
        f"generator {name}.<locals>.agen local array",
    ]
    one.close()
    with pytest.raises(StopIteration):
        two.aclose().send(None)


def test_running_generators_and_coroutines_have_one_path_each():
    array = jnp.ones(3)

    def batches(array):
        yield find_all([array]).paths[id(array)]

    async def fetch(array):
        return find_all([array]).paths[id(array)]

    async def outer(array):
        return await fetch(array)

    for found, names in (
        (next(batches(array)), ["batches() local array"]),
        (asyncio.run(outer(array)), ["fetch() local array", "outer() local array"]),
    ):
        assert [path.rpartition(".")[2] for path in found if "<locals>" in path] == names


def test_module_variables_are_not_locals_of_a_module_body_in_a_traceback():
    script = {"array": jnp.ones(3)}
    try:
        exec(compile("1 / 0", "script.py", "exec"), script)
    except ZeroDivisionError as error:
        kept = Node()
        kept.error = error
    # The namespace belongs to the test here, as that of a notebook belongs to IPython.
    found = find_all([script["array"]]).paths[id(script["array"])]
    assert found
    assert not [path for path in found if "<module>() local" in path]
    assert kept.error is not None


def test_ipython_counts_as_a_library_and_the_cells_of_a_notebook_as_the_user():
    assert owner_of("IPython.core.interactiveshell") == owner_of("ipykernel.kernelbase") == Owner.LIBRARY
    assert owner_of("IPythonic") == owner_of("__main__") == Owner.USER


def test_a_variable_of_another_thread_has_the_name_of_the_thread():
    array = jnp.ones(3)
    started, go_on = threading.Event(), threading.Event()

    def load(kept):
        started.set()
        go_on.wait(60)

    thread = threading.Thread(target=load, args=(array,), name="loader")
    thread.start()
    started.wait(60)
    found = find_all([array]).paths[id(array)]
    go_on.set()
    thread.join()
    name = sys._getframe().f_code.co_name
    assert f"thread loader: {name}.<locals>.load() local kept" in found


def test_an_exception_keeps_the_variables_of_functions_in_its_traceback():
    def fail():
        lost = jnp.ones(3)
        raise ValueError(lost.shape)

    try:
        fail()
    except ValueError as error:
        kept = error
    array = kept.__traceback__.tb_next.tb_frame.f_locals["lost"]
    name = sys._getframe().f_code.co_name
    assert (
        f"{name}() local kept.__traceback__.tb_next.tb_frame → {name}.<locals>.fail() local lost"
        in find_all([array]).paths[id(array)]
    )


def test_at_most_five_paths_are_listed():
    def find(array, *states):
        return find_all([array]).paths[id(array)]

    name = f"{test_at_most_five_paths_are_listed.__name__}.<locals>.find() local"
    array = jnp.ones(3)
    state = {"a": array, "b": [array], "c": Params(array), "d": {"w": array}}
    found = find(array, state)
    assert len(set(found)) == len(found) == MOST_HOLDERS
    assert found[0] == f"{name} array"
    del array
    found = find(state["a"])
    assert {path.partition(" local ")[2] for path in found} == {
        "array",
        "state['a']",
        "state['b'][0]",
        "state['c'].w",
        "state['d']['w']",
    }


def test_an_unnamed_object_in_a_cycle_is_named_by_its_class():
    node = Node()
    node.me, node.w = node, jnp.ones(3)
    arrays, alive = [node.w], weakref.ref(node)
    del node
    assert find_without_variables(arrays) == ("Node.w",)
    gc.collect()
    assert alive() is None


def dict_of_itself(w):
    loop = {"w": w}
    loop["me"] = loop


def list_of_itself(w):
    loop = [w]
    loop.append(loop)


def list_in_a_dict_of_itself(w):
    loop = {"layers": [{"w": w}]}
    loop["layers"].append(loop)


def objects_of_each_other(w):
    node, other = Node(), Node()
    node.other, other.other, node.w = other, node, w


def below_a_cycle(w):
    loop = {"held": Params({"w": [w]})}
    loop["me"] = loop


def recursive_function(w):
    def loop(n):
        return w if n == 0 else loop(n - 1)


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (dict_of_itself, "dict['w']"),
        (list_of_itself, "list[0]"),
        (list_in_a_dict_of_itself, "dict['layers'][0]['w']"),
        (objects_of_each_other, "Node.other.w"),
        (below_a_cycle, "Params.w['w'][0]"),
        (recursive_function, "closure of recursive_function.<locals>.loop: w"),
    ],
)
def test_an_array_that_only_a_cycle_refers_to_is_garbage(make, path):
    gc.disable()
    try:
        arrays = [jnp.ones(3)]
        make(arrays[0])
        reference = weakref.ref(arrays[0])
        found = find_all(arrays)
        (array_id,) = found.paths
        assert (found.garbage, found.is_complete) == ({array_id}, True)
        assert found.paths[array_id] == (path,)
        del arrays
        assert reference() is not None
        gc.collect()
        assert reference() is None
    finally:
        gc.enable()


def test_a_cycle_with_a_name_or_with_a_referrer_in_c_is_not_garbage():
    named = {"w": jnp.ones((11, 17))}
    named["me"] = named
    loop = [jnp.ones((11, 17))]
    loop.append(loop)
    for _ in map(len, [loop]):  # only the running loop refers to the iterator, and so to the list
        del loop
        arrays = [array for array in jax.live_arrays() if array.shape == (11, 17)]
        assert len(arrays) == 2
        assert find_all(arrays).garbage == frozenset()


def test_the_iterable_of_a_loop_is_named_by_its_type():
    # Only the loop refers to the iterator, the list and the arrays.
    found = [
        find_without_variables([array for array in jax.live_arrays() if array.shape == (11, 13)])
        for _ in map(len, [[jnp.ones((11, 13))]])
    ]
    assert found == [("map[0]<list_iterator>[0][0]",)]


def test_variables_of_a_recursive_function_leave_room_for_other_paths():
    state = types.SimpleNamespace(w=jnp.ones(3))

    def recurse(w, depth):
        return recurse(w, depth - 1) if depth else find_all([w]).paths[id(w)]

    name = sys._getframe().f_code.co_name
    assert {f"{name}.<locals>.recurse() local w", f"{name}() local state.w"} <= set(recurse(state.w, 8))


def test_variables_of_exec_and_of_a_class_body_have_paths():
    found = {}
    names = {"find": lambda w: found.update(find_all([w]).paths), "ones": jnp.ones}
    exec("w = ones(3); w2 = w; find(w)", {}, names)
    (paths,) = found.values()
    assert {"exec local w", "exec local w2"} < set(paths)

    class Body:
        w = jnp.ones(3)
        paths = find_all([w]).paths[id(w)]

    assert Body.paths == (f"class {Body.__qualname__} local w",)


def test_an_object_that_is_being_collected_has_a_path():
    class Closing:
        def __del__(self):
            found.append(find_all([self.w]).paths[id(self.w)])

    found = []
    closing = Closing()
    closing.me, closing.w = closing, jnp.ones(3)
    del closing
    gc.collect()
    assert found == [(f"{Closing.__qualname__}.__del__() local self.w",)]


def test_a_generator_expression_that_has_not_started_has_a_path():
    lazy = (array for array in [jnp.ones((13, 2))])
    (array,) = (a for a in jax.live_arrays() if a.shape == (13, 2))
    name = sys._getframe().f_code.co_name
    (path,) = (path for path in paths(array) if path.startswith("generator"))
    assert path.startswith(f"generator {name}.<locals>.<genexpr> local .0<")
    assert lazy


def test_user_names_come_before_library_names():
    array = jnp.ones(3)
    json = sys.modules["json"]
    json.kept = array
    try:
        found = find_all([array]).paths[id(array)]
    finally:
        del json.kept
    assert found[-1] == "json.kept"
    assert len(found) == 2


def test_a_search_past_its_time_limit_is_incomplete():
    array = jnp.ones(3)
    assert not find_holders([array], max_seconds=0).is_complete


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", True])
def test_an_invalid_time_limit_is_rejected(seconds):
    with pytest.raises(
        SearchError, match="max_seconds must be a number of seconds, 0 or more, or None for no limit; got"
    ):
        find_holders([], max_seconds=seconds)


def test_a_search_that_meets_too_long_a_path_is_incomplete():
    array = jnp.ones(3)
    chain = Node()
    chain.w = array
    for _ in range(100):
        above = Node()
        above.next = chain
        chain = above
    del above
    state = types.ModuleType("train")
    state.state, chain = chain, None
    sys.modules["train"] = state
    try:
        found = find_holders([array], max_seconds=None)
    finally:
        del sys.modules["train"]
    assert not found.is_complete
