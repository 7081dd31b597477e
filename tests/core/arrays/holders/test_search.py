"""Reference paths to live arrays, from every type of referrer, and searches that are not finished."""

import asyncio
import contextvars
import dataclasses
import gc
import inspect
import sys
import threading
import types
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core import ArrayTracker, live_array_report
from jax_array_info_core.arrays.holders import search
from jax_array_info_core.arrays.holders.search import Owner, find_holders, owner_of
from jax_array_info_core.errors import SearchError
from tests.core.arrays.holders.finding import Node, find_all, make_step, path_of, paths_of
from tests.growing import no_collector

pytestmark = pytest.mark.own_process


@dataclasses.dataclass
class Params:
    w: Any


def test_a_closure_defaults_and_attributes_of_functions_have_paths():
    def make(w, bias, cache):
        def step(x, w=w, *, bias=bias):
            return x

        step.cache = cache
        return step

    step, plain = make(*(jnp.ones(3) for _ in range(3))), make_step(jnp.ones(3))
    here = sys._getframe().f_code.co_name
    name = f"{here}.<locals>.make.<locals>.step"
    arrays = [step.__defaults__[0], step.__kwdefaults__["bias"], step.cache]
    arrays += [plain.__closure__[0].cell_contents]
    assert paths_of(arrays) == [
        f"default of {name}: w",
        f"default of {name}: bias",
        f"{name}.cache",
        f"{here}() local plain → closure of make_step.<locals>.step: params",
    ]


def test_a_class_attribute_has_the_path_of_its_class():
    class Trainer:
        _ema = (0, jnp.ones(3))

    assert path_of([Trainer._ema[1]]) == f"{Trainer.__qualname__}._ema[1]"


def prefetch(array):
    next_batch = {"x": array}
    del array
    yield 0
    yield next_batch


def test_a_variable_of_a_suspended_generator_has_a_path():
    batches = prefetch(jnp.ones(3))
    next(batches)
    assert (
        path_of([batches.gi_frame.f_locals["next_batch"]["x"]]) == "generator prefetch local next_batch['x']"
    )


def test_a_variable_of_a_suspended_coroutine_has_a_path():
    async def fetch(array):
        await asyncio.sleep(0)
        return array

    async def agen(array):
        yield 1
        yield array

    arrays = [jnp.ones(3), jnp.ones(4)]
    one, two = fetch(arrays[0]), agen(arrays[1])
    one.send(None)
    with pytest.raises(StopIteration):
        two.asend(None).send(None)
    name = sys._getframe().f_code.co_name
    assert paths_of(arrays) == [
        f"coroutine {name}.<locals>.fetch local array",
        f"generator {name}.<locals>.agen local array",
    ]
    one.close()
    with pytest.raises(StopIteration):
        two.aclose().send(None)


def test_running_generators_and_coroutines_have_one_path_each():
    def batches(array):
        yield find_all([array])

    async def fetch(array):
        return find_all([array])

    async def outer(array):
        return await fetch(array)

    for holders, name in (
        (next(batches(jnp.ones(3))), "batches() local array"),
        (asyncio.run(outer(jnp.ones(3))), "fetch() local array"),
    ):
        assert [path.rpartition(".")[2] for path in holders.paths.values()] == [name]


def test_module_variables_are_not_locals_of_a_module_body_in_a_traceback():
    script = {"array": jnp.ones(3)}
    try:
        exec(compile("1 / 0", "script.py", "exec"), script)
    except ZeroDivisionError as error:
        kept = Node()
        kept.error = error
    # The namespace belongs to the test here, as that of a notebook belongs to IPython.
    found = find_all([script["array"]])
    assert "<module>() local" not in found.paths[id(script["array"])]
    assert kept.error is not None


def test_ipython_counts_as_a_library_and_the_cells_of_a_notebook_as_the_user():
    assert owner_of("IPython.core.interactiveshell") == owner_of("ipykernel.kernelbase") == Owner.LIBRARY
    assert owner_of("IPythonic") == owner_of("__main__") == Owner.USER


def test_a_variable_of_another_thread_has_the_name_of_the_thread():
    arrays = [jnp.ones(3)]
    started, go_on = threading.Event(), threading.Event()

    def load(kept):
        started.set()
        go_on.wait(60)

    thread = threading.Thread(target=load, args=(arrays[0],), name="loader")
    thread.start()
    started.wait(60)
    found = path_of(arrays)
    go_on.set()
    thread.join()
    assert found == f"thread loader: {sys._getframe().f_code.co_name}.<locals>.load() local kept"


def test_an_exception_keeps_the_variables_of_functions_in_its_traceback():
    def fail():
        lost = jnp.ones(3)
        raise ValueError(lost.shape)

    try:
        fail()
    except ValueError as error:
        kept = error
    arrays = [kept.__traceback__.tb_next.tb_frame.f_locals["lost"]]
    name = sys._getframe().f_code.co_name
    assert (
        path_of(arrays)
        == f"{name}() local kept.__traceback__.tb_next.tb_frame → {name}.<locals>.fail() local lost"
    )


def test_the_shortest_path_is_named():
    def find(array, *states):
        (path,) = find_all([array]).paths.values()
        return path

    name = test_the_shortest_path_is_named.__name__
    array = jnp.ones(3)
    state = {"nested": {"w": array}, "a": array, "b": [array], "c": Params(array)}
    assert find(array, state) == f"{name}.<locals>.find() local array"
    arrays = [array]
    del array
    found = find_all([arrays.pop()])
    assert [*found.paths.values()] == [f"{name}() local state['a']"]


def to_itself(w):
    node = Node()
    node.me, node.w = node, w


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


def frame_of_an_exception(w):
    try:
        raise ValueError
    except ValueError as error:
        kept = error  # noqa: F841


def jitted_method(w):
    node = Node()
    node.w = w
    node.step = jax.jit(types.MethodType(lambda node, x: x + node.w, node))


CYCLES = (
    to_itself,
    list_of_itself,
    list_in_a_dict_of_itself,
    objects_of_each_other,
    below_a_cycle,
    recursive_function,
    frame_of_an_exception,
    jitted_method,
)


def test_arrays_that_only_a_cycle_refers_to_are_garbage_without_a_path():
    with no_collector():
        arrays = [jnp.ones(3) for _ in CYCLES]
        for number, make in enumerate(CYCLES):
            make(arrays[number])
        references = [*map(weakref.ref, arrays)]
        found = find_all(arrays)
        assert found == ({}, True, {*map(id, arrays)})
        arrays.clear()
        assert None not in [reference() for reference in references]
        gc.collect()
        assert {reference() for reference in references} == {None}


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
        path_of([array for array in jax.live_arrays() if array.shape == (11, 13)])
        for _ in map(len, [[jnp.ones((11, 13))]])
    ]
    assert found == ["map[0]<list_iterator>[0][0]"]


def test_a_path_through_a_recursive_function_names_it_once():
    state = types.SimpleNamespace(w=jnp.ones(3))

    def recurse(w, depth):
        return recurse(w, depth - 1) if depth else find_all([w])

    found = recurse(state.w, 8)
    assert found.paths == {id(state.w): f"{sys._getframe().f_code.co_name}.<locals>.recurse() local w"}


def test_variables_of_exec_and_of_a_class_body_have_paths():
    # Up to Python 3.11, no variables around exec are read, so this search is not complete there.
    found = {}
    names = {"find_all": find_all, "found": found, "ones": jnp.ones}
    exec("w = ones(3); w2 = w; found.update(find_all([w]).paths)", {}, names)
    assert [*found.values()] == ["exec local w"]

    class Body:
        w = jnp.ones(3)
        path = find_all([w]).paths[id(w)]

    assert Body.path == f"class {Body.__qualname__} local w"


def test_an_object_that_is_being_collected_has_a_path():
    class Closing:
        def __del__(self):
            found.append(find_all([self.w]).paths[id(self.w)])

    found = []
    closing = Closing()
    closing.me, closing.w = closing, jnp.ones(3)
    del closing
    gc.collect()
    assert found == [f"{Closing.__qualname__}.__del__() local self.w"]


def test_a_generator_expression_that_has_not_started_has_a_path():
    lazy = (array for array in [jnp.ones((13, 2))])
    path = path_of([array for array in jax.live_arrays() if array.shape == (13, 2)])
    name = sys._getframe().f_code.co_name
    assert path.startswith(f"generator {name}.<locals>.<genexpr> local .0<")
    assert lazy


def test_user_names_come_before_library_names():
    json = sys.modules["json"]
    json.kept = state = jnp.ones(3)
    try:
        found = find_all([state])
        arrays = [state]
        del state
        library = path_of(arrays)
    finally:
        del json.kept
    name = sys._getframe().f_code.co_name
    assert [*found.paths.values(), library] == [f"{name}() local state", "json.kept"]


def test_a_path_from_a_context_variable_has_its_name():
    cache = contextvars.ContextVar("cache")
    token = cache.set({"w": jnp.ones(3)})
    context = contextvars.copy_context()
    context.run(cache.set, [jnp.ones(3)])
    default = contextvars.ContextVar("default", default=jnp.ones(3))  # noqa: B039
    assert paths_of([cache.get()["w"], *context[cache], default.get()]) == [
        "ContextVar cache['w']",
        "ContextVar cache[0]",
        "default of ContextVar default",
    ]
    cache.reset(token)


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
    found = paths_of(arrays)
    done.set()
    thread.join()
    name = f"{sys._getframe().f_code.co_name}() local local"
    assert found == [f"{name}.cache['x']", f"{name}.other['y']"]


class Layer(Node):
    pass


class Model(Node):
    pass


class Trainer(Node):
    pass


@pytest.mark.parametrize(
    ("missed", "path"),
    [
        # The search found the named object, but not the module that names it.
        (lambda train: [vars(train)], "train.trainer.model.layers['dense'].w"),
        # The search found no name: the path begins at the farthest object found.
        (lambda train: [vars(train), train.trainer, vars(train.trainer)], "Model.layers['dense'].w"),
    ],
)
def test_an_unfinished_search_returns_the_best_path_so_far(missed, path, monkeypatch):
    train = sys.modules["train"] = types.ModuleType("train")
    train.trainer, layer = Trainer(), Layer()
    train.trainer.model = Model()
    train.trainer.model.layers = {"dense": layer}
    layer.w = jnp.ones(3)
    arrays, missing = [layer.w], set(map(id, missed(train)))
    all_referrers = search._all_referrers
    del layer

    def some_referrers(*args, **options):
        found, _ = all_referrers(*args, **options)
        return {key: thing for key, thing in found.items() if key not in missing}, False

    monkeypatch.setattr(search, "_all_referrers", some_referrers)
    try:
        found = find_holders(arrays, max_seconds=None)
    finally:
        del sys.modules["train"]
    assert [*found.paths.values()] == [path]
    assert not found.is_complete


def test_a_running_search_reports_progress():
    seconds = []
    assert find_holders([jnp.ones(3)], max_seconds=None, on_progress=seconds.append).is_complete
    assert seconds == sorted(seconds)
    assert len(seconds) > 1
    assert seconds[0] >= 0


@pytest.mark.parametrize("function", [find_holders, live_array_report, ArrayTracker.report])
def test_the_default_time_limit_is_five_seconds(function):
    assert inspect.signature(function).parameters["max_seconds"].default == 5.0


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
