"""Reference paths through containers and functions of every type, found without running their code."""

import collections
import dataclasses
import enum
import functools
import sys
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.core.arrays.holders.finding import make_step, paths_of

pytestmark = pytest.mark.own_process


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
    """A subclass without slots, whose instances have a dict."""


class Mapping(dict):
    def __init__(self, copied, layer=None):
        super().__init__(layer=layer)
        self.copy_of = copied


class Variable:
    """A wrapper like ``nnx.Variable``, which forwards attribute access to its value."""

    def __init__(self, value):
        object.__setattr__(self, "_raw", value)

    def __getattribute__(self, name):
        raise AssertionError("__getattribute__ was called")

    __getattr__ = __getattribute__

    def __eq__(self, other):
        raise AssertionError("__eq__ was called")

    def __hash__(self):
        raise AssertionError("__hash__ was called")

    __class__ = property(lambda self: pytest.fail("__class__ was read"))


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
    """A metaclass without a hash, whose ``__eq__`` must not run."""

    def __eq__(cls, other):
        raise AssertionError("__eq__ of the metaclass was called")


class Compared(metaclass=Comparing):
    def __init__(self, w):
        self.w = w


class Shadowed(Slotted):
    __slots__ = ("_w",)

    def __init__(self, w):
        super().__init__(None)
        self._w = w


class Color(enum.Enum):
    RED = 1


class Fielded(list):
    _fields = ("a",)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


def keep(w):
    return lambda x, w=w: x


CLOSURE = "closure of make_step.<locals>.step: params"
CONTAINERS = [
    (lambda w: [print, keep(w)], "[1] → default of keep.<locals>.<lambda>: w"),
    (lambda w: {"step": jax.jit(make_step(w))}, f"['step'] → {CLOSURE}"),
    (lambda w: (jax.jit(jax.value_and_grad(make_step(w))),), f"[0] → {CLOSURE}"),
    (lambda w: [functools.partial(make_step(w))], f"[0].func → {CLOSURE}"),
    (make_step, f" → {CLOSURE}"),
    (
        lambda w: decorated(make_step(w)),
        f" → closure of make_step.<locals>.step: function → {CLOSURE}",
    ),
    (Compared, ".w"),
    (Shadowed, "._w"),
    (lambda w: Fielded([w]), "[0]"),
    (lambda w: {Color.RED: w}, "[Color.RED]"),
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
    (Mapping, ".copy_of"),
    (lambda w: Mapping(None, w), "['layer']"),
]


@pytest.fixture(scope="module")
def found():
    """Return the paths to arrays in containers of every type in a module, found in one search."""
    train = sys.modules["train"] = types.ModuleType("train")
    arrays = [jnp.ones(3) for _ in CONTAINERS]
    for number, (make, _) in enumerate(CONTAINERS):
        setattr(train, f"state{number}", make(arrays[number]))
    try:
        return paths_of(arrays)
    finally:
        del sys.modules["train"]


@pytest.mark.parametrize("number", range(len(CONTAINERS)), ids=[path for _, path in CONTAINERS])
def test_a_path_goes_through_a_container_of_every_type(number, found):
    assert found[number] == f"train.state{number}{CONTAINERS[number][1]}"
