"""Trees of any content: nothing raises, waits, adds an array or keeps one alive."""

import dataclasses
import functools
import gc
import sys
import typing
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import PathRules, check_report, from_json, to_json, tree_diff_report, tree_report
from tests.arrays import mesh_of, sharded, slow_program
from tests.contexts import HAS_REFS, VERSION

pytestmark = pytest.mark.once_per_version

ARRAY = jax.ShapeDtypeStruct((2, 3), np.float32)


def shown(tree, **options):
    """Return the report of a tree, after checking that it becomes JSON and that the other functions take it."""
    report = tree_report(tree, **options)
    assert from_json(to_json(report)) == report
    assert len({row.path for row in report.rows}) == len(report.rows)
    check_report(tree)
    assert tree_diff_report(report, tree).is_empty
    return report


def paths_of(tree):
    return [row.path for row in shown(tree).rows]


def test_prng_keys():
    keys = jax.random.split(jax.random.key(0), 4)
    report = shown({"one": jax.random.key(0), "four": keys, "raw": jax.random.PRNGKey(0)})
    four, one, raw = report.rows
    assert (four.shape, four.dtype, four.is_key) == ((4,), "key<fry>", True)
    assert (one.shape, one.is_key, raw.dtype, raw.is_key) == ((), True, "uint32", False)
    # JAX 0.4.38 and 0.5 do not give the bytes of keys.
    assert report.unknown_count in (0, 2)


@pytest.mark.needs_devices(8)
def test_sharded_prng_keys():
    keys = jax.device_put(
        jax.random.split(jax.random.key(0), 8), NamedSharding(mesh_of((8,), ("data",)), P("data"))
    )
    (row,) = shown([keys]).rows
    assert (row.spec, row.replicas, row.avoidable_nbytes) == (row.spec, 1, 0)
    assert row.shard_shape == (1,)
    assert row.shard_nbytes in (8, None)


@pytest.mark.skipif(VERSION < HAS_REFS, reason="this version of JAX has no Refs")
def test_refs():
    report = shown({"ref": jax.new_ref(jnp.zeros((4, 2))), "array": jnp.zeros(2)})
    assert [(row.path, row.shape, row.dtype) for row in report.rows] == [
        ("array", (2,), "float32"),
        ("ref", (4, 2), "float32"),
    ]
    assert report.nbytes == 40


def test_deleted_and_donated_arrays():
    deleted, donated = jnp.ones((4, 4)), jnp.ones((4, 4))
    deleted.delete()
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    report = shown({"a": deleted, "b": donated, "c": jnp.ones(3)}, statistics=True)
    assert [row.is_deleted for row in report.rows] == [True, True, False]
    assert [row.nbytes for row in report.rows] == [None, None, 12]
    assert (report.nbytes, report.unknown_count) == (12, 0)


def test_numpy_objects_and_scalars():
    tree = {
        "bool": np.bool_(True),
        "long": np.zeros(3, np.longdouble),
        "masked": np.ma.masked_array([1.0, 2.0], mask=[True, False]),
        "matrix": np.zeros((1, 2)).view(np.matrix),
        "object": np.array([None, object()]),
        "record": np.zeros(2, [("x", "f4"), ("y", "i8")]),
        "scalar": np.float32(3),
        "text": np.array(["ä", "b"]),
        "time": np.array(["2020-01-01"], "M8[D]"),
        "zero": np.zeros((0, 5)),
    }
    report = shown(tree, statistics=True)
    assert {row.path: row.dtype for row in report.rows}["object"] == "object"
    assert {row.kind for row in report.rows} == {"numpy"}
    numbers = ["bool", "long", "masked", "matrix", "scalar", "zero"]
    assert [row.path for row in report.rows if row.statistics] == numbers
    assert (report.nbytes, report.numpy_nbytes) == (0, sum(leaf.nbytes for leaf in tree.values()))
    assert report.elements == sum(np.size(leaf) for leaf in tree.values())


def test_none_numbers_and_functions_are_other_leaves():
    tree = [None, 3, 2.5, 1j, True, "x", b"x", len, object(), P("a"), jax.devices()[0], int, ..., ARRAY]
    report = shown(tree)
    assert [row.path for row in report.rows] == ["13"]
    assert report.others == 12  # None is not a leaf
    assert report.other_paths == ("1", "2", "3")
    assert (shown(None).rows, shown(None).others) == ((), 0)
    for leaf in (one for one in tree[1:-1] if one != "x"):  # a str alone is the path of a file
        assert (shown(leaf).rows, shown(leaf).others) == ((), 1)


def test_traced_leaves():
    found = []

    @jax.jit
    def function(x, tree):
        found.append(shown({"x": x, "tree": tree, "concrete": np.zeros(3)}))
        return x

    function(jnp.zeros(4), [jnp.ones((2, 2)), jax.random.key(0)])
    jax.vmap(lambda x: function(x, [x, x]))(jnp.ones((3, 2)))
    jax.grad(lambda x: function(x, (x,)).sum())(jnp.ones(2))
    for report in found:
        assert [row.path for row in report.rows][:2] == ["concrete", "tree/0"]
        assert {row.kind for row in report.rows} == {"numpy", "tracer"}
    assert found[0].unknown_count == 3


def test_a_container_that_contains_itself():
    tree = {"w": ARRAY}
    tree["self"] = tree
    nested = [tree]
    tree["list"] = nested
    assert paths_of(tree) == ["w"]
    assert shown(tree).others == 2


def test_very_deep_trees():
    tree = ARRAY
    for _ in range(20_000):
        tree = [tree]
    limit = sys.getrecursionlimit()
    assert shown(tree).rows == ()
    assert sys.getrecursionlimit() == limit


def test_keys_that_cannot_be_sorted():
    class Key:
        def __lt__(self, other):
            raise RuntimeError("compared")

        def __repr__(self):
            return "Key"

    tree = {1: ARRAY, "1": ARRAY, None: ARRAY, (2, 3): ARRAY, Key(): ARRAY, Key(): ARRAY}
    assert len(set(paths_of(tree))) == 6
    assert paths_of({2: ARRAY, "b": ARRAY}) == ["2", "b"]


class Shout(str):
    """A str whose methods raise."""

    def _fail(self, *_):
        raise RuntimeError("called")

    __str__ = __repr__ = __format__ = __iter__ = __len__ = __add__ = __contains__ = __getitem__ = _fail
    isprintable = isidentifier = replace = split = join = _fail


def test_keys_that_are_subclasses_of_str():
    assert paths_of({Shout("a/b"): ARRAY, "c": {Shout("d"): ARRAY}}) == ["'a/b'", "c/d"]
    assert paths_of([{Shout("x\x1b[31m"): ARRAY}]) == ["0/'x\\x1b[31m'"]


def raising(*names):
    """Return a class whose attributes raise."""

    def fail(*_):
        raise RuntimeError("called")

    return type("Raises", (), {name: property(fail) if name[0] != "_" else fail for name in names})


class Exhausted:
    """An object that raises for every attribute, even for ``__class__``."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


@dataclasses.dataclass
class Computed:
    """A dataclass with a field that raises."""

    w: object

    def __getattribute__(self, name):
        if name == "w":
            raise RuntimeError(name)
        return super().__getattribute__(name)


HOSTILE = [
    Exhausted,
    raising("shape", "dtype", "sharding"),
    raising("__eq__", "__hash__"),
    raising("__len__", "__iter__", "__bool__"),
    raising("__repr__", "__str__", "__class__"),
    lambda: Computed(ARRAY),
    lambda: type(
        "Like", (), {"shape": (2,), "dtype": np.dtype("f4"), "sharding": property(lambda self: 1 / 0)}
    )(),
    lambda: type("Odd", (), {"shape": ("a", -1), "dtype": "f4"})(),
    lambda: functools.partial(print, ARRAY),
    lambda: type("List", (list,), {"__iter__": None, "__len__": None})([ARRAY]),
    lambda: type("Dict", (dict,), {"items": None, "__getitem__": None, "__iter__": None})(w=ARRAY),
    lambda: type("Box", (), {"raw_value": property(lambda self: 1 / 0)})(),
]


@pytest.mark.parametrize("make", HOSTILE)
def test_objects_whose_attributes_raise(make):
    report = shown({"hostile": make(), "w": ARRAY})
    assert "w" in [row.path for row in report.rows]
    shown(make())
    shown([make(), (make(),)])
    report = tree_report({"hostile": make(), "w": ARRAY}, mesh={"a": 2}, specs=PathRules({"*w": P("a")}))
    assert {row.path: row.shard_shape for row in report.rows}["w"] == (1, 3)


def test_a_registered_class_whose_flatten_function_raises():
    class Broken:
        pass

    def flatten(_):
        raise RuntimeError("flattened")

    jax.tree_util.register_pytree_node(Broken, flatten, lambda *_: Broken())
    report = shown({"broken": Broken(), "w": ARRAY})
    assert [row.path for row in report.rows] == ["w"]
    assert report.others == 1


class Pair(typing.NamedTuple):
    """A NamedTuple."""

    first: object
    second: object


def test_containers_of_every_kind():
    @dataclasses.dataclass
    class Plain:
        w: object
        rest: tuple = ()

    @functools.partial(jax.tree_util.register_dataclass, data_fields=["w"], meta_fields=["name"])
    @dataclasses.dataclass
    class Registered:
        w: object
        name: str = "x"

    tree = {
        "empty": {},
        "named": Pair(ARRAY, [ARRAY]),
        "plain": Plain(ARRAY, (ARRAY,)),
        "registered": Registered(ARRAY),
        "slash/key": {"": ARRAY},
        "symbols": {3: ARRAY, 2.5: ARRAY, True: ARRAY},
    }
    assert paths_of(tree) == [
        "named/first",
        "named/second/0",
        "plain/w",
        "plain/rest/0",
        "registered/w",
        "'slash/key'/''",
        "symbols/True",
        "symbols/2.5",
        "symbols/3",
    ]


def test_names_are_copied_as_plain_text():
    assert type(tree_report([ARRAY], Shout("x\x1b")).name) is str


def test_no_array_is_added_or_kept_alive(no_arrays):
    count = len(jax.devices())
    mesh = mesh_of((count,), ("data",))
    tree = {
        "w": sharded((count, 2), mesh, "data"),
        "tied": None,
        "list": [jnp.zeros(3), jax.random.key(0), np.zeros(4)],
        "scalar": jnp.ones(()),
    }
    tree["tied"] = tree["w"]
    before = {id(array) for array in jax.live_arrays()}
    reports = [
        tree_report(tree),
        tree_report(tree, mesh={"x": 2}, specs=P()),
        tree_report(tree, specs=PathRules({"w": P(), "*": None})),
        check_report(tree),
        tree_diff_report(tree, tree),
    ]
    assert {id(array) for array in jax.live_arrays()} == before
    gone = [weakref.ref(tree["w"]), weakref.ref(tree["scalar"]), *map(weakref.ref, tree["list"])]
    tree.clear()
    gc.collect()
    assert [reference() for reference in gone] == [None] * len(gone)
    assert jax.live_arrays() == []
    assert len(reports) == 5


@pytest.mark.needs_devices(8)  # on a single CPU device, a program with a callback runs synchronously
def test_no_report_waits_for_a_computation(no_arrays):
    with slow_program() as start:
        result = start()
        tree = {"params": {"w": result}, "opt": [result, jnp.zeros(3)]}
        report = tree_report(tree)
        planned = tree_report(tree, mesh={"x": 2}, specs=P())
        checked = check_report(tree, expect=P())
        tree_diff_report(tree, report)
        assert not result.is_ready()
    assert report.rows[-1].shape == (8, 4)
    assert planned.rows[-1].shard_shape == (8, 4)
    assert checked.findings
    del tree, result
