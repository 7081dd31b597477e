"""Reports of single values: arrays, abstract values, numpy arrays, scalars and other objects."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import array_report, live_array_report, sharding_layout, to_json
from jax_array_info_core.layouts import MeshAxes, Spec
from tests.arrays import mesh_of, sharded


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


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (Spec(()), "P()"),
        (Spec((("gpus",),)), "P('gpus',)"),
        (Spec(((), ("gpus",))), "P(None, 'gpus')"),
        (Spec(((), ("a", "b"))), "P(None, ('a', 'b'))"),
        (Spec((("a", "b"),)), "P(('a', 'b'),)"),
        (Spec(((), ("a",)), unconstrained=(0,)), "P(UNCONSTRAINED, 'a')"),
        (Spec((("a",),), unreduced=("b",)), "P('a', unreduced={'b'})"),
    ],
)
def test_a_spec_prints_like_a_tuple(spec, text):
    assert str(spec) == text


def test_specs_equal_those_of_jax():
    mesh = mesh_of((1, 1), ("a", "b"))
    report = array_report(sharded((4, 4, 4), mesh, ("a",), None, ("b",)))
    assert report.sharding.spec == Spec((("a",), (), ("b",)))
    struct = jax.ShapeDtypeStruct((4, 4), jnp.float32, sharding=NamedSharding(mesh, P(P.UNCONSTRAINED, "b")))
    assert array_report(struct).sharding.spec == Spec(((), ("b",)), unconstrained=(0,))


def test_a_mesh_has_axis_types_where_jax_has_them():
    types = array_report(sharded((4,), mesh_of((1,), ("a",)), "a")).sharding.mesh.types
    assert types == ("Auto",)
    if hasattr(jax.sharding, "AxisType"):
        mesh = jax.make_mesh((1,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
        struct = jax.ShapeDtypeStruct((4,), jnp.float32, sharding=NamedSharding(mesh, P("a")))
        assert array_report(struct).sharding.mesh == MeshAxes(("a",), (1,), ("Explicit",))


@pytest.mark.needs_devices(4)
def test_a_permuted_or_partial_mesh_lists_the_devices_of_each_shard():
    devices = jax.devices()[:4][::-1]
    report = array_report(sharded((8,), mesh_of((2, 2), ("a", "b"), devices), "a"))
    assert report.layout.devices_of((0,)) == (devices[0].id, devices[1].id)
    assert report.devices == tuple(sorted(device.id for device in devices))


def test_a_0d_array_has_a_value():
    report = array_report(jnp.array(42))
    assert (report.shape, report.value, report.weak_type) == ((), "42", True)
    assert array_report(jnp.float32(1.5)).value == "1.5"
    assert array_report(jnp.zeros((1,))).value is None


@pytest.mark.needs_devices(4)
def test_reading_the_value_of_a_replicated_scalar_creates_no_array(no_arrays):
    scalar = jax.device_put(jnp.float32(3), NamedSharding(mesh_of((4,), ("a",)), P()))
    gc.collect()
    before = len(jax.live_arrays())
    assert array_report(scalar).value == "3.0"
    gc.collect()
    assert len(jax.live_arrays()) == before


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "int4", "bool"])
def test_reading_a_value_of_any_dtype_creates_no_array(dtype, no_arrays):
    scalar = jnp.ones((), dtype)
    assert array_report(scalar).value in ("1", "1.0", "True")
    gc.collect()
    assert len(jax.live_arrays()) == 1


def test_reading_a_value_inside_shard_map_has_no_side_effect():
    count = len(jax.devices())
    mesh = mesh_of((count,), ("a",))
    scalar = jax.device_put(jnp.array(7.0), NamedSharding(mesh, P()))
    shard_map = getattr(jax, "shard_map", None)
    if shard_map is None:
        from jax.experimental.shard_map import shard_map
    report_kinds = []

    def function(x):
        report_kinds.append(array_report(scalar).kind)
        return x + 1

    mapped = jax.jit(shard_map(function, mesh=mesh, in_specs=P("a"), out_specs=P("a")))
    assert mapped(jnp.zeros((count, 2))).sum() == 2 * count
    assert report_kinds == ["array"]


def test_reading_a_value_while_tracing_does_not_change_the_program():
    scalar = jnp.float32(3)
    values = []

    def function(x):
        values.append(array_report(scalar).value)
        return x + 1

    assert len(jax.make_jaxpr(function)(1.0).eqns) == 1
    assert values == ["3.0"]


def test_a_deleted_array_keeps_its_shape_and_sharding():
    array = sharded((8, 8), mesh_of((1,), ("a",)), "a")
    array.delete()
    report = array_report(array)
    assert (report.is_deleted, report.shape, report.nbytes) == (True, (8, 8), None)
    assert report.sharding.spec == Spec((("a",),))


def test_a_donated_array_is_deleted():
    array = jnp.zeros(8)
    jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    assert array_report(array).is_deleted == array.is_deleted()


def test_a_deleted_scalar_has_no_value():
    scalar = jnp.float32(1) + 1
    scalar.delete()
    assert array_report(scalar).value is None


def test_the_size_of_prng_keys_is_that_of_their_key_data():
    keys = jax.random.split(jax.random.key(0), 6)
    report = array_report(keys)
    assert (report.kind, report.dtype, report.shape, report.nbytes) == ("array", "key<fry>", (6,), 48)
    assert array_report(jax.random.key(0)).value is None


@pytest.mark.parametrize(
    ("dtype", "count", "nbytes"),
    [
        ("int4", 7, 4),
        ("uint4", 8, 4),
        ("bool", 7, 7),
        ("bfloat16", 3, 6),
        ("float8_e4m3fn", 5, 5),
        ("complex64", 2, 16),
    ],
)
def test_sub_byte_types_are_packed(dtype, count, nbytes):
    assert array_report(jnp.zeros(count, dtype)).nbytes == nbytes


@pytest.mark.needs_devices(8)
def test_each_shard_of_a_sub_byte_type_is_packed_separately():
    report = array_report(sharded((8, 3), mesh_of((8,), ("a",)), "a", dtype="int4"))
    assert (report.nbytes, report.shard_nbytes) == (12, 2)


def test_empty_arrays_have_no_bytes():
    for shape in [(0,), (0, 4), (4, 0)]:
        report = array_report(sharded(shape, mesh_of((len(jax.devices()),), ("a",))))
        assert (report.shape, report.nbytes, report.shard_nbytes) == (shape, 0, 0)


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


def test_the_report_of_a_ref_describes_its_array():
    if not hasattr(jax, "new_ref"):
        pytest.skip(f"jax {jax.__version__} has no public Ref")
    report = array_report(jax.new_ref(jnp.zeros((4, 4))))
    assert (report.kind, report.shape, report.nbytes, report.source) == ("array-like", (4, 4), 64, "array")


def test_the_size_of_an_abstract_value_is_that_of_such_an_array():
    count = len(jax.devices())
    sharding = NamedSharding(mesh_of((count,), ("a",)), P("a"))
    report = array_report(jax.ShapeDtypeStruct((4 * count,), jnp.float32, sharding=sharding))
    assert (report.kind, report.source) == ("abstract", "array")
    assert (report.nbytes, report.shard_nbytes) == (16 * count, 16)
    assert report.sharding.spec == Spec((("a",),))
    plain = array_report(jax.ShapeDtypeStruct((4, 5), jnp.int4))
    assert (plain.source, plain.sharding, plain.layout) == ("unknown", None, None)
    assert (plain.kind, plain.nbytes, plain.shard_nbytes) == ("abstract", 10, 10)
    large = array_report(jax.eval_shape(lambda: jnp.zeros((70_000, 10**6), jnp.bfloat16)))
    assert large.nbytes == large.shard_nbytes == 140 * 10**9
    typeof = getattr(jax, "typeof", None) or jax.core.get_aval
    assert array_report(typeof(jnp.zeros(4))).kind == "abstract"


def test_numpy_arrays_scalars_none_and_other_objects_are_reported():
    assert array_report(np.zeros((2, 3))).nbytes == 48
    assert array_report(np.zeros((2, 3))).kind == "numpy"
    assert array_report(None).kind == "none"
    for value, type_name in [
        (123, "int"),
        (1.5, "float"),
        (True, "bool"),
        ("x", "str"),
        (np.int8(3), "int8"),
    ]:
        report = array_report(value)
        assert (report.kind, report.type_name, report.value) == ("scalar", type_name, str(value))
    assert array_report(object()).kind == "object"


def test_an_object_with_a_shape_and_a_dtype_is_array_like():
    class Foreign:
        shape = (2, np.int64(3))
        dtype = "float32"
        sharding = "a foreign sharding"

    report = array_report(Foreign())
    assert (report.kind, report.shape, report.sharding, report.nbytes) == ("array-like", (2, 3), None, None)
    assert array_report(np.ndarray).kind == "object"
    assert array_report(10**6000).value.startswith("0x")
    assert array_report("x" * 10**6).value.endswith("x...")


def test_specs_may_have_unreduced_axes():
    if jax.__version_info__ < (0, 6, 2):
        pytest.skip(f"jax {jax.__version__} has no unreduced axes")
    mesh = jax.make_mesh((len(jax.devices()),), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    sharding = NamedSharding(mesh, P(None, unreduced={"a"}))
    report = array_report(jax.ShapeDtypeStruct((8,), jnp.float32, sharding=sharding))
    assert report.sharding.spec == Spec(((),), unreduced=("a",))
    assert (report.layout.replicas, report.layout.partial_sums) == (1, len(jax.devices()))


def test_devices_of_a_platform_without_a_backend_are_reported():
    class Client:
        platform = "tpu"

        @staticmethod
        def process_index():
            return 0

    class Device:
        platform, device_kind, process_index, client = "tpu", "TPU v5", 0, Client

        def __init__(self, number):
            self.id = number

        def __repr__(self):
            return f"TPU_{self.id}"

    mesh = mesh_of((2, 2), ("a", "b"), [Device(number) for number in range(4)])
    report = array_report(jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("b"))))
    assert (report.layout.platform, report.visible_devices, report.devices) == ("tpu", None, (0, 1, 2, 3))
    alone = array_report(jax.ShapeDtypeStruct((8,), jnp.float32, sharding=SingleDeviceSharding(Device(3))))
    assert (alone.device, alone.is_default_device) == ("TPU_3", False)


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
    slow.lower(array).compile()
    array_report(slow(array).block_until_ready())
    pending = slow(array)
    assert not pending.is_ready(), "the computation ended before the reports were made"
    reports = array_report(pending), live_array_report()
    assert not pending.is_ready(), "a report waited"
    assert reports[0].nbytes == 10**6
    pending.block_until_ready()


def test_inspecting_an_array_creates_no_array(no_arrays):
    count = len(jax.devices())
    arrays = [
        sharded((count, 4), mesh_of((count,), ("a",)), "a"),
        sharded((4, 4), mesh_of((count,), ("a",))),
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
