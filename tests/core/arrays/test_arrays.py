"""Reports of single values: arrays, abstract values, numpy arrays, scalars, and objects such as shardings and shards."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import array_report, from_json, live_array_report, sharding_layout, to_json
from jax_array_info_core.layouts import MeshAxes, Spec
from tests.arrays import FakeDevice, mesh_of, sharded
from tests.contexts import shard_map

COUNT = len(jax.devices())


def line():
    """Return a mesh of all devices."""
    return mesh_of((COUNT,), ("a",))


def struct(shape, sharding=None):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def deleted(array):
    array.delete()
    return array


def ref():
    if not hasattr(jax, "new_ref"):
        pytest.skip(f"jax {jax.__version__} has no public Ref")
    return jax.new_ref(jnp.zeros((4, 4)))


class Foreign:
    shape = (2, np.int64(3))
    dtype = "float32"
    sharding = "a foreign sharding"


VALUES = {
    "0-d": (lambda: jnp.array(42), {"shape": (), "value": "42", "weak_type": True}),
    "strong 0-d": (lambda: jnp.float32(1.5), {"value": "1.5", "weak_type": False}),
    "1-d": (lambda: jnp.zeros((1,)), {"value": None}),
    "deleted scalar": (lambda: deleted(jnp.float32(1) + 1), {"value": None, "is_deleted": True}),
    "deleted": (
        lambda: deleted(sharded((8, 8), mesh_of((1,), ("a",)), "a")),
        {"is_deleted": True, "shape": (8, 8), "nbytes": None},
    ),
    "keys": (
        lambda: jax.random.split(jax.random.key(0), 6),
        {"kind": "array", "dtype": "key<fry>", "shape": (6,), "nbytes": 48},
    ),
    "key": (lambda: jax.random.key(0), {"kind": "array", "value": None}),
    **{
        dtype: (lambda dtype=dtype, count=count: jnp.zeros(count, dtype), {"nbytes": nbytes})
        for dtype, count, nbytes in [
            ("int4", 7, 4),
            ("uint4", 8, 4),
            ("bool", 7, 7),
            ("bfloat16", 3, 6),
            ("float8_e4m3fn", 5, 5),
            ("complex64", 2, 16),
        ]
    },
    **{
        f"empty {shape}": (
            lambda shape=shape: sharded(shape, line()),
            {"shape": shape, "nbytes": 0, "shard_nbytes": 0},
        )
        for shape in [(0,), (0, 4), (4, 0)]
    },
    "ref": (ref, {"kind": "array-like", "shape": (4, 4), "nbytes": 64, "source": "array"}),
    "struct": (
        lambda: struct((4 * COUNT,), NamedSharding(line(), P("a"))),
        {"kind": "abstract", "source": "array", "nbytes": 16 * COUNT, "shard_nbytes": 16},
    ),
    "struct without sharding": (
        lambda: jax.ShapeDtypeStruct((4, 5), jnp.int4),
        {
            "kind": "abstract",
            "source": "unknown",
            "sharding": None,
            "layout": None,
            "nbytes": 10,
            "shard_nbytes": 10,
        },
    ),
    "large struct": (
        lambda: jax.eval_shape(lambda: jnp.zeros((70_000, 10**6), jnp.bfloat16)),
        {"nbytes": 140 * 10**9, "shard_nbytes": 140 * 10**9},
    ),
    "type": (lambda: (getattr(jax, "typeof", None) or jax.core.get_aval)(jnp.zeros(4)), {"kind": "abstract"}),
    "numpy": (lambda: np.zeros((2, 3)), {"kind": "numpy", "nbytes": 48}),
    "None": (lambda: None, {"kind": "none"}),
    **{
        type_name: (
            lambda value=value: value,
            {"kind": "scalar", "type_name": type_name, "value": str(value)},
        )
        for value, type_name in [
            (123, "int"),
            (1.5, "float"),
            (True, "bool"),
            ("x", "str"),
            (np.int8(3), "int8"),
        ]
    },
    "long int": (lambda: 10**6000, {"value": f"{hex(10**6000)[:1000]}..."}),
    "long str": (lambda: "x" * 10**6, {"value": "x" * 1000 + "..."}),
    "object": (object, {"kind": "object"}),
    "class": (lambda: np.ndarray, {"kind": "object"}),
    "array-like": (Foreign, {"kind": "array-like", "shape": (2, 3), "sharding": None, "nbytes": None}),
    "sharding": (
        lambda: NamedSharding(line(), P("a", None)),
        {
            "kind": "object",
            "type_name": "NamedSharding",
            "devices": tuple(sorted(device.id for device in jax.devices())),
        },
    ),
    "single device": (
        lambda: SingleDeviceSharding(jax.devices()[-1]),
        {"device": f"cpu:{jax.devices()[-1].id}"},
    ),
    "abstract sharding": (lambda: NamedSharding(line().abstract_mesh, P("a")), {"devices": ()}),
    "spec": (lambda: P("a", P.UNCONSTRAINED), {"type_name": "PartitionSpec"}),
    "empty mesh": (lambda: Mesh(np.empty((), object), ()), {"kind": "object"}),
    "sharding on it": (lambda: NamedSharding(Mesh(np.empty((), object), ()), P()), {"kind": "object"}),
    "shard of a scalar": (lambda: jnp.float32(1).addressable_shards[0], {"index": (), "replica": 0}),
}


@pytest.mark.parametrize(("make", "expected"), VALUES.values(), ids=VALUES)
def test_the_facts_of_a_value(make, expected):
    report = array_report(make())
    assert {name: getattr(report, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("make", "spec", "sizes"),
    [
        (lambda: deleted(sharded((8, 8), line(), "a")), "P('a',)", {"a": COUNT}),
        (lambda: struct((4 * COUNT,), NamedSharding(line(), P("a"))), "P('a',)", {"a": COUNT}),
        (lambda: NamedSharding(line(), P("a", None)), "P('a', None)", {"a": COUNT}),
        (lambda: NamedSharding(line().abstract_mesh, P(None, ("a",))), "P(None, 'a')", {"a": COUNT}),
        (lambda: P("a", P.UNCONSTRAINED), "P('a', UNCONSTRAINED)", None),
        (P, "P()", None),
        (lambda: line().abstract_mesh, None, {"a": COUNT}),
    ],
)
def test_a_value_with_a_sharding_has_its_spec_and_its_mesh(make, spec, sizes):
    found = array_report(make()).sharding
    assert (found.spec and str(found.spec), found.mesh and found.mesh.shape) == (spec, sizes)


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize(
    ("spec", "shard_nbytes", "replicas"),
    [((), 4096, 8), (("a",), 1024, 2), (("b",), 2048, 4), (("a", "b"), 512, 1)],
)
def test_replicas_count_once_in_nbytes_and_once_on_each_device(spec, shard_nbytes, replicas):
    array = sharded((32, 32), mesh_of((4, 2), ("a", "b")), *spec)
    report = array_report(array, "x")
    assert (report.name, report.kind, report.source) == ("x", "array", "array")
    assert (report.nbytes, report.shard_nbytes) == (4096, shard_nbytes)
    assert report.layout.replicas == replicas
    assert report.layout == sharding_layout(array.shape, array.sharding)
    assert report.devices == tuple(sorted(device.id for device in array.sharding.device_set))
    assert report.sharding.type == "NamedSharding"
    assert report.sharding.spec.axes == tuple((name,) for name in spec)
    assert (report.sharding.mesh.names, report.sharding.mesh.sizes) == (("a", "b"), (4, 2))


def test_specs_and_axis_types_equal_those_of_jax():
    mesh = mesh_of((1, 1), ("a", "b"))
    report = array_report(sharded((4, 4, 4), mesh, ("a",), None, ("b",)))
    assert (report.sharding.spec, report.sharding.mesh.types) == (Spec((("a",), (), ("b",))), ("Auto",) * 2)
    report = array_report(struct((4, 4), NamedSharding(mesh, P(P.UNCONSTRAINED, "b"))))
    assert report.sharding.spec == Spec(((), ("b",)), unconstrained=(0,))
    if hasattr(jax.sharding, "AxisType"):
        mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
        report = array_report(struct((4,), NamedSharding(mesh, P("a"))))
        assert report.sharding.mesh == MeshAxes(("a",), (1,), ("Explicit",))


def test_specs_may_have_unreduced_axes():
    if jax.__version_info__ < (0, 6, 2):
        pytest.skip(f"jax {jax.__version__} has no unreduced axes")
    mesh = jax.make_mesh((COUNT,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    report = array_report(struct((8,), NamedSharding(mesh, P(None, unreduced={"a"}))))
    assert report.sharding.spec == Spec(((),), unreduced=("a",))
    assert str(report.sharding.spec) == "P(None, unreduced={'a'})"
    assert (report.layout.replicas, report.layout.partial_sums) == (1, COUNT)


@pytest.mark.needs_devices(4)
def test_a_permuted_or_partial_mesh_lists_the_devices_of_each_shard():
    devices = jax.devices()[:4][::-1]
    report = array_report(sharded((8,), mesh_of((2, 2), ("a", "b"), devices), "a"))
    assert report.layout.devices_of((0,)) == (devices[0].id, devices[1].id)
    assert report.devices == tuple(sorted(device.id for device in devices))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int4", "bool"])
@pytest.mark.parametrize(
    "is_replicated", [False, pytest.param(True, marks=pytest.mark.needs_devices(4))], ids=["one", "replicas"]
)
def test_reading_a_value_of_any_dtype_creates_no_array(dtype, is_replicated, no_arrays):
    scalar = jnp.ones((), dtype)
    if is_replicated:
        scalar = jax.device_put(scalar, NamedSharding(mesh_of((4,), ("a",)), P()))
    assert array_report(scalar).value in ("1", "1.0", "True")
    gc.collect()
    assert len(jax.live_arrays()) == 1


def test_reading_a_value_inside_shard_map_has_no_side_effect():
    mesh = line()
    scalar = jax.device_put(jnp.array(7.0), NamedSharding(mesh, P()))
    report_kinds = []

    def function(x):
        report_kinds.append(array_report(scalar).kind)
        return x + 1

    assert jax.jit(shard_map(function, mesh, P("a")))(jnp.zeros((COUNT, 2))).sum() == 2 * COUNT
    assert report_kinds == ["array"]


def test_reading_a_value_while_tracing_does_not_change_the_program():
    scalar = jnp.float32(3)
    values = []

    def function(x):
        values.append(array_report(scalar).value)
        return x + 1

    assert len(jax.make_jaxpr(function)(1.0).eqns) == 1
    assert values == ["3.0"]


def test_a_donated_array_is_deleted():
    array = jnp.zeros(8)
    jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    assert array_report(array).is_deleted == array.is_deleted()


@pytest.mark.needs_devices(8)
def test_each_shard_of_a_sub_byte_type_is_packed_separately():
    report = array_report(sharded((8, 3), mesh_of((8,), ("a",)), "a", dtype="int4"))
    assert (report.nbytes, report.shard_nbytes) == (12, 2)


@pytest.mark.needs_devices(4)
def test_a_single_device_is_named_and_compared_with_the_first_device():
    array = jax.device_put(jnp.zeros(3), jax.devices()[2])
    assert array_report(array).device == "cpu:2"
    assert not array_report(array).is_default_device
    with jax.default_device(jax.devices()[2]):
        assert not array_report(array).is_default_device
        assert not array_report(jnp.zeros(3)).is_default_device
    assert array_report(jnp.zeros(3)).is_default_device


def test_a_report_has_the_memory_kind_and_the_default_memory_kind():
    report = array_report(jnp.zeros(3))
    assert report.memory_kind == report.default_memory_kind is not None
    memory_kinds = {memory.kind for memory in jax.devices()[0].addressable_memories()}
    if "pinned_host" not in memory_kinds:
        pytest.skip(f"the CPU of jax {jax.__version__} has no pinned_host memory")
    pinned = SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
    assert array_report(jax.device_put(jnp.zeros(3), pinned)).memory_kind == "pinned_host"


def test_devices_of_a_platform_without_a_backend_are_reported():
    class Tpu(FakeDevice):
        platform = "tpu"

        def __repr__(self):
            return f"TPU_{self.id}"

    mesh = mesh_of((2, 2), ("a", "b"), list(map(Tpu, range(4))))
    report = array_report(struct((8,), NamedSharding(mesh, P("b"))))
    assert (report.layout.platform, report.visible_devices, report.devices) == ("tpu", None, (0, 1, 2, 3))
    alone = array_report(struct((8,), SingleDeviceSharding(Tpu(3))))
    assert (alone.device, alone.is_default_device) == ("TPU_3", False)


@pytest.mark.needs_devices(8)
def test_the_report_of_a_shard_has_its_device_and_index_and_does_not_read_its_data(monkeypatch):
    shard = sharded((8, 6), mesh_of((4, 2), ("a", "b")), "a").addressable_shards[3]
    monkeypatch.setattr(jax.Shard, "data", property(lambda self: pytest.fail("its data were read")))
    report = array_report(shard)
    assert (report.kind, report.type_name) == ("object", "Shard")
    assert (report.device, report.index, report.replica) == ("cpu:3", ((2, 4), (0, 6)), 1)
    assert from_json(to_json(report)) == report


def test_a_report_keeps_no_array_alive():
    array = jnp.zeros((4, 4)) + 1
    gone = weakref.ref(array)
    reports = array_report(array), live_array_report(), array_report({"w": array})
    del array
    gc.collect()
    assert gone() is None
    assert len(reports) == 3


def test_a_report_does_not_wait_for_a_computation():
    @jax.jit
    def slow(x):
        return jax.lax.fori_loop(0, 200, lambda _, y: jnp.tanh(y @ y), x)

    array = jnp.ones((500, 500))
    array_report(slow(array).block_until_ready())
    pending = slow(array)
    assert not pending.is_ready(), "the computation ended before the reports were made"
    reports = array_report(pending), live_array_report()
    assert not pending.is_ready(), "a report waited"
    assert reports[0].nbytes == 10**6
    pending.block_until_ready()


def test_inspecting_an_array_creates_no_array(no_arrays):
    arrays = [
        sharded((COUNT, 4), line(), "a"),
        sharded((4, 4), line()),
        jax.random.key(0),
        jnp.int32(3),
    ]
    gc.collect()
    before = len(jax.live_arrays())
    for array in arrays:
        to_json(array_report(array))
    live_array_report()
    gc.collect()
    assert len(jax.live_arrays()) == before
