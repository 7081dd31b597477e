"""Who holds an array: each kind of holder by its name, nothing of the user's run, nothing kept alive."""

import asyncio
import collections
import dataclasses
import enum
import functools
import gc
import sys
import threading
import types
import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core.errors import SearchError
from jax_array_info_core.holding.holders import MOST_HOLDERS, find_holders

HERE = __name__


# Within a bound of time, what is found depends on the machine.
find_all = functools.partial(find_holders, max_seconds=None)


def paths(array):
    """Return the paths to an array but those from frames: a test's own variables are not the question."""
    found = find_all([array])
    assert found.is_complete
    return [path for path in found.paths[id(array)] if "() local " not in path]


@dataclasses.dataclass
class Params:
    w: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    w: Any


class Pair(NamedTuple):
    first: Any
    second: Any


class Slotted:
    __slots__ = ("_w", "other")

    def __init__(self, w):
        self._w = w


class Below(Slotted):
    """Slots in the class above, a dict here."""


class Mapping(dict):
    def __init__(self, w):
        super().__init__(layer=w)
        self.copy_of = w


class Variable:
    """As nnx keeps its values: behind a property, with attributes that answer for the value."""

    def __init__(self, value):
        object.__setattr__(self, "_raw", value)

    def __getattribute__(self, name):
        raise AssertionError("nobody shall ask")

    __getattr__ = __getattribute__

    def __eq__(self, other):
        raise AssertionError("nobody shall compare")

    def __hash__(self):
        raise AssertionError("nobody shall hash")

    __class__ = property(lambda self: pytest.fail("nobody shall ask"))


def cached(array):
    @functools.lru_cache
    def load(key):
        return array_of.pop()

    array_of = [array]
    load("train")
    return load


def in_a_set(array):
    class Hashed:
        w = None

    kept = Hashed()
    kept.w = array
    return {kept}


def sized(array):
    class Own(list):
        pass

    own = Own([1])
    own.kept = array
    return own


class Comparing(type):
    """A metaclass that has no hash, and shall not be asked whether it is equal."""

    def __eq__(cls, other):
        raise AssertionError("nobody shall compare")


class Compared(metaclass=Comparing):
    def __init__(self, w):
        self.w = w


class Shadowed(Slotted):
    __slots__ = ("_w",)

    def __init__(self, w):
        super().__init__(None)
        self._w = w


class Colour(enum.Enum):
    RED = 1


class Fielded(list):
    _fields = ("a",)


CONTAINERS = [
    (Compared, ".w"),
    (Shadowed, "._w"),
    (lambda w: Fielded([w]), "[0]"),
    (lambda w: {Colour.RED: w}, "[Colour.RED]"),
    (lambda w: {np.int64(3): w}, "[3]"),
    (lambda w: {10**5000: w}, "[<int>]"),
    (lambda w: {functools.reduce(lambda key, _: (key,), range(3000), 0): w}, "[(((<tuple>,),),)]"),
    (lambda w: {tuple(range(100)): w}, "[(0, 1, 2, 3, 4, 5, …)]"),
    (lambda w: w, ""),
    (lambda w: {"layer0": {"w": w}}, "['layer0']['w']"),
    (lambda w: {3: w}, "[3]"),
    (lambda w: {(0, "a"): w}, "[(0, 'a')]"),
    (lambda w: {b"k": w}, "[b'k']"),
    (lambda w: {"[red]x[/]": w}, "['[red]x[/]']"),
    (lambda w: {"\x1b[31m": w}, "['\\x1b[31m']"),
    (lambda w: {Frozen(1): w}, "[<Frozen>]"),
    (lambda w: collections.OrderedDict(w=w), "['w']"),
    (lambda w: collections.defaultdict(list, w=[w]), "['w'][0]"),
    (lambda w: types.MappingProxyType({"w": w}), "['w']"),
    (lambda w: [0, [w]], "[1][0]"),
    (lambda w: (0, (w,)), "[1][0]"),
    (lambda w: collections.deque([0, w]), "[1]"),
    (lambda w: types.SimpleNamespace(w=w), ".w"),
    (Params, ".w"),
    (Frozen, ".w"),
    (lambda w: Pair(0, w), ".second"),
    (Slotted, "._w"),
    (Below, "._w"),
    (lambda w: Params([{"w": Slotted(w)}]), ".w[0]['w']._w"),
    (Variable, "._raw"),
    (sized, ".kept"),
    (lambda w: functools.partial(print, 1, w), ".args[1]"),
    (lambda w: functools.partial(print, key=w), ".keywords['key']"),
    (lambda w: Params(w).__eq__, ".__self__.w"),
    (lambda w: iter([w]), "<list_iterator>[0]"),
    (cached, "<_lru_cache_wrapper>"),
    (lambda w: types.CellType(w), ""),
    (lambda w: jax.tree_util.Partial(print, w), ".args[0]"),
    (in_a_set, "{…}.w"),
    (Mapping, ".copy_of", "['layer']"),
]


@pytest.fixture(scope="module")
def found():
    """Return the paths to arrays that a module has in containers of each kind: one search for all of them."""
    train = sys.modules["train"] = types.ModuleType("train")
    arrays = []
    for number, (make, *_) in enumerate(CONTAINERS):
        arrays.append(jnp.ones(3))
        setattr(train, f"state{number}", make(arrays[-1]))
    try:
        paths = find_holders(arrays, max_seconds=None).paths
    finally:
        del sys.modules["train"]
    return [[path for path in paths[id(array)] if "() local " not in path] for array in arrays]


@pytest.mark.parametrize("number", range(len(CONTAINERS)), ids=[paths[0] for _, *paths in CONTAINERS])
def test_the_path_goes_through_every_container(number, found):
    _, *paths = CONTAINERS[number]
    assert sorted(found[number]) == [f"train.state{number}{path}" for path in paths]


def test_who_holds_a_key_holds_its_words():
    keys = {"dropout": jax.random.key(0)}
    (words,) = (array for array in jax.live_arrays() if array is keys["dropout"]._base_array)
    found = find_all([words]).paths[id(words)]
    assert f"{test_who_holds_a_key_holds_its_words.__name__}() local keys['dropout']" in found


def test_a_variable_of_a_function_that_runs():
    def main():
        batch = {"x": jnp.ones(3)}
        return find_all([batch["x"]]).paths[id(batch["x"])]

    name = test_a_variable_of_a_function_that_runs.__name__
    assert main() == (f"{name}.<locals>.main() local batch['x']",)


def make_step(params):
    def step(x):
        return x @ params

    return step


def test_a_closure_is_named_by_its_function_and_variable():
    step = make_step(jnp.ones(3))
    assert paths(step.__closure__[0].cell_contents) == ["closure of make_step.<locals>.step: params"]


def test_a_jitted_function_s_closure_is_found_too():
    array = jnp.ones(3)
    step = jax.jit(make_step(array))
    step(array)
    assert paths(array) == ["closure of make_step.<locals>.step: params"]
    assert step


def test_a_closure_of_jax_s_own_is_told_by_who_has_the_function():
    # What a vjp keeps for the way back is in functions and objects of JAX.
    array = jnp.arange(7.0)
    sine, back = jax.vjp(jnp.sin, array)
    others = [a for a in jax.live_arrays() if a.shape == (7,) and a is not array and a is not sine]
    found = [find_all([other]).paths[id(other)] for other in others]
    assert any(" local back" in path for paths in found for path in paths)
    assert back


def test_defaults_and_attributes_of_functions():
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


def test_an_attribute_of_a_class():
    class Trainer:
        _ema = (0, jnp.ones(3))

    assert paths(Trainer._ema[1]) == [f"{Trainer.__qualname__}._ema[1]"]


def prefetch(array):
    next_batch = {"x": array}
    del array
    yield 0
    yield next_batch


def test_a_suspended_generator():
    array = jnp.ones(3)
    batches = prefetch(array)
    next(batches)
    assert paths(array) == ["generator prefetch local next_batch['x']"]


def test_a_suspended_coroutine():
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


def test_a_variable_of_another_thread():
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


def test_an_exception_keeps_the_variables_of_functions_that_ended():
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


def test_several_holders_are_listed_but_no_more_than_the_most():
    def find(array, *states):
        return find_all([array]).paths[id(array)]

    name = f"{test_several_holders_are_listed_but_no_more_than_the_most.__name__}.<locals>.find() local"
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


class Node:
    pass


def find_without_variables(array):
    """Find the holders of an array that no function has in a variable meanwhile."""
    return next(iter(find_all([array.pop()]).paths.values()))


def test_a_cycle_ends_and_what_no_name_reaches_goes_by_its_class():
    node = Node()
    node.me, node.w = node, jnp.ones(3)
    arrays, alive = [node.w], weakref.ref(node)
    del node
    assert find_without_variables(arrays) == ("Node.w",)
    gc.collect()
    assert alive() is None


def test_what_is_looped_over_goes_by_its_type():
    # Nobody but the loop has the iterator, the list and the arrays.
    found = [
        find_without_variables([array for array in jax.live_arrays() if array.shape == (11, 13)])
        for _ in map(len, [[jnp.ones((11, 13))]])
    ]
    assert found == [("map[0]<list_iterator>[0][0]",)]


def test_many_variables_of_the_same_name_leave_room_for_others():
    state = types.SimpleNamespace(w=jnp.ones(3))

    def recurse(w, depth):
        return recurse(w, depth - 1) if depth else find_all([w]).paths[id(w)]

    name = sys._getframe().f_code.co_name
    assert {f"{name}.<locals>.recurse() local w", f"{name}() local state.w"} <= set(recurse(state.w, 8))


def test_code_that_was_given_to_exec_keeps_its_variables():
    found = {}
    names = {"find": lambda w: found.update(find_all([w]).paths), "ones": jnp.ones}
    exec("w = ones(3); w2 = w; find(w)", {}, names)
    (paths,) = found.values()
    assert {"exec local w", "exec local w2"} < set(paths)

    class Body:
        w = jnp.ones(3)
        paths = find_all([w]).paths[id(w)]

    assert Body.paths == (f"class {Body.__qualname__} local w",)


def test_what_exec_does_to_the_variables_of_a_function_stays():
    def run(find):
        x, w = 1, jnp.ones(3)
        exec("x = 2; find([w]); seen.append(x)", {"seen": seen}, locals())
        return x, w

    seen = []
    run(find_all)
    assert seen == [2]


def test_a_function_that_traces_another_thread_is_not_disturbed():
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


def test_an_object_that_the_collector_frees_is_still_told():
    class Closing:
        def __del__(self):
            found.append(find_all([self.w]).paths[id(self.w)])

    found = []
    closing = Closing()
    closing.me, closing.w = closing, jnp.ones(3)
    del closing
    gc.collect()
    assert found == [(f"{Closing.__qualname__}.__del__() local self.w",)]


def test_a_comprehension_that_has_not_begun():
    lazy = (array for array in [jnp.ones((13, 2))])
    (array,) = (a for a in jax.live_arrays() if a.shape == (13, 2))
    name = sys._getframe().f_code.co_name
    (path,) = (path for path in paths(array) if path.startswith("generator"))
    assert path.startswith(f"generator {name}.<locals>.<genexpr> local .0<")
    assert lazy


def test_nobody_in_python_holds_it():
    assert find_without_variables([jnp.ones(3)]) == ()


def test_the_user_s_names_come_before_the_library_s():
    array = jnp.ones(3)
    json = sys.modules["json"]
    json.kept = array
    try:
        found = find_all([array]).paths[id(array)]
    finally:
        del json.kept
    assert found[-1] == "json.kept"
    assert len(found) == 2


def test_what_jax_holds_is_no_holder():
    array = jnp.ones(3)
    jax.kept = array
    try:
        assert paths(array) == []
    finally:
        del jax.kept


def test_time_that_is_up_is_said():
    array = jnp.ones(3)
    assert not find_holders([array], max_seconds=0).is_complete


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", True])
def test_bounds_that_make_no_sense_are_refused(seconds):
    with pytest.raises(SearchError, match="max_seconds is a number of seconds, or None"):
        find_holders([], max_seconds=seconds)


def test_a_path_that_is_too_long_is_said_and_its_end_told():
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


def test_nothing_is_kept_alive_not_even_by_the_frames_that_were_read():
    def use():
        array = jnp.ones(3)
        alive = weakref.ref(array)
        find_holders([array], max_seconds=None)
        del array
        return alive() is None

    gc.collect()
    gc.disable()
    try:
        assert use()
    finally:
        gc.enable()


def test_variables_stay_what_they_are():
    names = locals()
    names["extra"] = 1
    array = jnp.ones(3)
    find_all([array])
    # Where this Python keeps a dict for locals(), somebody has it: it is left alone.
    assert names.get("extra") == 1


def test_what_gc_has_put_aside_is_found():
    state = {"w": jnp.ones(3)}
    gc.collect()
    gc.freeze()
    try:
        found = find_all([state["w"]]).paths[id(state["w"])]
    finally:
        gc.unfreeze()
    assert f"{sys._getframe().f_code.co_name}() local state['w']" in found


def test_a_tuple_that_another_thread_fills_is_left_alone():
    stop = threading.Event()
    errors = []

    def fill():
        try:
            while not stop.is_set():
                assert len(tuple([number] for number in range(1000))) == 1000
        except SystemError as error:
            errors.append(error)

    threads = [threading.Thread(target=fill) for _ in range(2)]
    for thread in threads:
        thread.start()
    array = jnp.ones(3)
    for _ in range(5):
        find_all([array])
    stop.set()
    for thread in threads:
        thread.join()
    assert errors == []
