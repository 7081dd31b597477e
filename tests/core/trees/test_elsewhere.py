"""Leaves that are not in device memory: NumPy arrays, and objects with a shape and a dtype."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    array_report,
    assert_tree,
    check_report,
    from_json,
    reshard_report,
    sharded_structs,
    to_json,
    tree_diff_report,
    tree_report,
)
from jax_array_info_core.reports import ElsewhereBytes
from tests.core.trees.test_report import shape_of

pytestmark = pytest.mark.once_per_version
FOREIGN = "not in device memory"


class Dataset:
    """A dataset of h5py, whose attributes are computed."""

    shape = property(lambda self: (1024, 4))
    dtype = property(lambda self: np.dtype("float32"))
    nbytes = property(lambda self: 1 / 0)

    def __array__(self, *args, **options):
        raise AssertionError("the elements were read")

    __iter__ = __len__ = __getitem__ = __array__


@dataclasses.dataclass
class Chunked:
    """An array of zarr: a dataclass whose shape and dtype are not among its fields."""

    metadata: object = dataclasses.field(default_factory=lambda: {"fill_value": np.float32(0), "shape": (9,)})
    shape = property(lambda self: (1024, 4))
    dtype = property(lambda self: np.dtype("float32"))


@dataclasses.dataclass
class Stored:
    """A dataclass with its shape and dtype as fields."""

    shape: tuple = (1024, 4)
    dtype: object = np.float32
    chunks: tuple = (256, 4)


class Listed(list):
    """An array that is a list of its rows."""

    shape, dtype = (1024, 4), np.dtype("float32")


class Mapped(dict):
    """Variables by name, as of xarray."""

    shape, dtype = (1024, 4), np.dtype("float32")


class ForeignDtype:
    """A dtype of torch, which NumPy does not understand."""

    itemsize = 4

    def __str__(self):
        return "torch.float32"


class Tensor:
    """A tensor of torch."""

    shape, dtype, device = type("Size", (tuple,), {})((1024, 4)), ForeignDtype(), "cuda:0"


class Store:
    """A store of TensorStore, whose dtype knows that of NumPy."""

    shape = (1024, 4)
    dtype = type("Dtype", (), {"numpy_dtype": np.dtype("float32")})()


class Lazy:
    """An array whose dtype tells no size, which states its bytes."""

    shape, dtype, nbytes = (1024, 4), "tensorstore", 16384


OBJECTS = (Dataset, Chunked, Stored, Listed, Mapped, Tensor, Store, Lazy)


@pytest.mark.parametrize("cls", OBJECTS)
def test_an_object_with_a_shape_and_a_dtype_is_one_leaf_outside_device_memory(cls):
    value = cls()
    report = array_report(value)
    assert (report.kind, report.shape, report.nbytes, report.elsewhere) == (
        "array-like",
        (1024, 4),
        16384,
        FOREIGN,
    )
    [row] = tree_report(value).rows
    assert (row.path, row.nbytes, row.elsewhere, row.is_on_devices) == ("", 16384, FOREIGN, False)
    tree = tree_report({"w": jnp.ones(3), "data": [value, value, cls()]})
    assert [row.path for row in tree.rows] == ["data/0", "data/1", "data/2", "w"]
    assert (tree.nbytes, tree.fullest_device_nbytes, tree.unknown_count, tree.excess) == (12, 12, 0, ())
    assert tree.elsewhere == (ElsewhereBytes(place=FOREIGN, leaf_count=3, nbytes=32768),)
    assert [row.same_as for row in tree.rows] == [None, "data/0", None, None]
    assert from_json(to_json(tree)) == tree


@pytest.mark.parametrize("cls", OBJECTS)
def test_no_check_of_devices_is_about_an_object_outside_device_memory(cls):
    tree = {"w": jnp.ones(3), "data": cls()}
    report = check_report(tree, hbm_nbytes=100)
    assert (report.passed, report.required_nbytes, report.uncounted_count) == (True, 12, 0)
    assert (report.leaf_count, report.placed_count, report.unsharded_count) == (2, 1, 0)
    assert report.elsewhere == (ElsewhereBytes(place=FOREIGN, leaf_count=1, nbytes=16384),)
    assert_tree(tree, hbm_nbytes=100)
    assert tree_diff_report(tree, tree).changed == ()
    assert reshard_report(tree["data"], tree["data"]).device_nbytes == 0


@pytest.mark.parametrize("cls", OBJECTS)
def test_every_leaf_is_planned_for_a_mesh(cls):
    tree = {"host": np.zeros((1024, 4), np.float32), "data": cls(), "w": shape_of(1024, 4)}
    report = tree_report(tree, mesh={"x": 8}, specs=P("x"))
    assert {row.kind for row in report.rows} == {"planned"}
    assert (report.elsewhere, report.numpy_nbytes) == ((), 0)
    if cls is not Lazy:  # whose dtype has no known size, so that its shards have none
        assert report.fullest_device_nbytes == 3 * 2048


def test_a_planned_dataset_is_a_struct_with_its_sharding():
    structs = sharded_structs({"data": Dataset()}, mesh={"x": 8}, specs=P("x"))
    assert (structs["data"].shape, structs["data"].sharding.spec) == ((1024, 4), P("x"))


def test_numpy_arrays_and_scalars_are_on_the_host():
    tree = {"a": np.zeros(4, np.float32), "b": np.float32(1), "c": np.ma.zeros(4, np.float32), "d": 1.0}
    report = tree_report(tree)
    assert report.elsewhere == (ElsewhereBytes(place="on the host", leaf_count=3, nbytes=36),)
    assert (report.numpy_nbytes, report.nbytes, report.other_paths) == (36, 0, ("d",))
    assert array_report(tree["a"]).elsewhere == "on the host"


def test_jax_arrays_and_abstract_values_count_as_bytes_on_devices():
    lowered = jax.jit(lambda x: x).lower(jnp.ones(4))
    (info,), _ = lowered.args_info
    tree = {
        "array": jnp.ones(4),
        "key": jax.random.key(0),
        "struct": shape_of(4),
        "aval": jax.core.ShapedArray((4,), np.float32),
        "info": info,
    }
    report = tree_report(tree)
    assert (report.elsewhere, {row.elsewhere for row in report.rows}) == ((), {None})
    assert report.nbytes == sum(row.nbytes for row in report.rows) == 4 * 16 + 8
    assert {row.path: row.kind for row in report.rows if row.kind != "array"} == dict.fromkeys(
        ("struct", "aval", "info"), "abstract"
    )


def test_an_object_with_a_jax_sharding_is_on_its_devices():
    """As a Ref is, and the metadata of a restored array."""
    array = jnp.ones(4)

    class Placed:
        shape, dtype, sharding = array.shape, array.dtype, array.sharding

    report = tree_report({"a": Placed()})
    assert (report.elsewhere, report.nbytes) == ((), 16)


def test_a_pytree_with_a_shape_and_a_dtype_stays_a_container():
    @jax.tree_util.register_pytree_node_class
    class Quantized:
        shape, dtype = (1024, 4), np.dtype("float32")

        def __init__(self, values):
            self.values = values

        def tree_flatten(self):
            return (self.values,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    [row] = tree_report({"q": Quantized(jnp.zeros((1024, 4), jnp.int8))}).rows
    assert (row.dtype, row.nbytes, row.elsewhere) == ("int8", 4096, None)


@pytest.mark.parametrize("holds", [lambda array: array, lambda array: [{"kernel": array}]])
def test_a_layer_that_states_its_shape_keeps_its_arrays_in_the_tree(holds):
    """JAX does not flatten it, and its arrays take device memory."""

    @dataclasses.dataclass
    class Layer:
        params: object
        shape: tuple = (1000, 1000)
        dtype: object = np.float32

    report = tree_report(Layer(holds(jnp.zeros((2, 2)))))
    assert ([row.shape for row in report.rows], report.nbytes) == ([(2, 2)], 16)
    itself = Layer([])
    itself.params.append(itself)
    assert [row.shape for row in tree_report([itself]).rows] == [(1000, 1000)]


@pytest.mark.parametrize(
    ("fields", "nbytes"),
    [
        ({"dtype": "mine"}, None),
        ({"dtype": "mine", "nbytes": 7}, 7),
        ({"dtype": "mine", "nbytes": -7}, None),
        ({"dtype": "mine", "nbytes": True}, None),
        ({"dtype": "mine", "nbytes": 7.0}, None),
        ({"dtype": "mine", "nbytes": float("nan")}, None),
        ({"dtype": "mine", "nbytes": 2**63}, None),
        ({"dtype": "mine", "nbytes": property(lambda self: 1 / 0)}, None),
        ({"dtype": type("Negative", (), {"itemsize": -4})()}, None),
        ({"shape": (float("nan"), 4)}, None),  # of dask, where chunks have unknown lengths
        ({"nbytes": 7}, 24),  # the dtype tells
        ({"dtype": ForeignDtype(), "nbytes": 18}, 18),  # as of a categorical, whose elements are codes
    ],
)
def test_bytes_are_those_that_are_known(fields, nbytes):
    value = type("Mine", (), {"shape": (2, 3), "dtype": np.dtype("float32"), **fields})()
    report = tree_report([value])
    assert (array_report(value).nbytes, report.rows[0].nbytes) == (nbytes, nbytes)
    [place] = report.elsewhere
    assert (place.nbytes, place.unknown_count, report.unknown_count) == (nbytes or 0, nbytes is None, 0)
    assert str(place).endswith("?") == (nbytes is None)


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": property(lambda self: 1 / 0)},
        {"dtype": property(lambda self: 1 / 0)},
        {"shape": [2, 3]},
        {"shape": None},
        {"shape": (-1, 3)},
        {"dtype": None},
    ],
)
def test_an_object_without_a_valid_shape_and_dtype_is_not_an_array(fields):
    value = type("Odd", (), {"shape": (2, 3), "dtype": np.dtype("float32"), **fields})()
    report = tree_report({"w": jnp.ones(3), "odd": value})
    assert ([row.path for row in report.rows], report.other_paths) == (["w"], ("odd",))
    assert array_report(value).kind == "object"
