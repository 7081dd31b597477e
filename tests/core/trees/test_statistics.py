"""Statistics of leaves."""

import gc
import math
import threading
import weakref

import jax
import jax.experimental
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import compile_caches_report, from_json, to_json, tree_report
from jax_array_info_core.compat.arrays import call_apart
from jax_array_info_core.reports import LeafStatistics
from jax_array_info_core.trees import statistics
from jax_array_info_core.trees.statistics import BLOCK, _program, leaf_statistics
from tests.arrays import mesh_of
from tests.contexts import CONTEXTS, expected

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

NOTHING = LeafStatistics(mean=None, std=None, least=None, greatest=None, zeros=0, nans=0, infinities=0)


def by_numpy(array):
    """Return the statistics of an array, computed by NumPy in float64."""
    array = np.asarray(array)
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    finite = np.abs(wide[np.isfinite(wide)]) if array.dtype.kind == "c" else wide[np.isfinite(wide)]
    numbers = [finite.mean(), finite.std(), finite.min(), finite.max()] if finite.size else [None] * 4
    return LeafStatistics(
        **dict(zip(("mean", "std", "least", "greatest"), numbers, strict=True)),
        zeros=int((wide == 0).sum()),
        nans=int(np.isnan(wide).sum()),
        infinities=int((~np.isnan(wide) & ~np.isfinite(wide)).sum()),
    )


def agree(found, known):
    """Assert that two statistics are equal, up to the rounding of float64."""
    assert (found.zeros, found.nans, found.infinities) == (known.zeros, known.nans, known.infinities)
    assert (found.least, found.greatest) == (known.least, known.greatest)
    scale = max(abs(found.least or 0), abs(found.greatest or 0))
    assert found.mean == pytest.approx(known.mean, rel=1e-12, abs=1e-12 * scale)
    assert found.std == pytest.approx(known.std, rel=1e-12, abs=1e-8 * scale)


def statistics_of(value):
    (found,) = leaf_statistics([value])
    return found


def some_numbers():
    """Return an array with zeros, NaN and infinities."""
    numbers = np.random.default_rng(0).normal(3, 2, (8, 16, 4)).astype(np.float32)
    numbers[0, :3, 0] = 0, np.nan, np.inf
    numbers[3, :2, 1] = -np.inf, -0.0
    return numbers


DTYPES = [
    "bool",
    "int4",
    "uint4",
    "int8",
    "uint8",
    "int16",
    "int32",
    "uint32",
    "float8_e4m3fn",
    "float8_e5m2",
]
DTYPES += ["bfloat16", "float16", "float32", "complex64"]


def test_all_dtypes_are_read():
    leaves = [jnp.asarray(np.arange(-3, 8).astype(np.int32) % 7, dtype) for dtype in DTYPES]
    found = leaf_statistics([*leaves, *map(np.asarray, leaves)])
    for leaf, one in zip([*leaves, *leaves], found, strict=True):
        agree(one, by_numpy(leaf))


def test_64_bit_numbers_are_not_rounded_to_32_bits():
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(True):
        leaves = [
            jnp.array([2**62, 2**62, 2**62], jnp.int64),  # the sum overflows
            jnp.array([2**64 - 1, 2**64 - 1], jnp.uint64),
            jnp.array([1e308, 1.5e308, -1e308]),
            jnp.array([1 + 2**-40, 1 - 2**-40]),
            jnp.array([3e-300, 5e-300]),
            jnp.array([1e-200, 3e-200 + 4e-200j]),
        ]
    for leaf, one in zip(leaves, leaf_statistics(leaves), strict=True):
        agree(one, statistics_of(np.asarray(leaf)))
    int64, uint64, large, near, small, _ = leaf_statistics(leaves)
    assert (int64.mean, int64.std) == (2.0**62, 0)
    assert (uint64.least, uint64.greatest) == (2.0**64, 2.0**64)
    assert (large.mean, large.std) == pytest.approx((5e307, 1.0801234497346433e308))
    assert (near.mean, near.std) == (1, 2.0**-40)
    assert (small.mean, small.std) == pytest.approx((4e-300, 1e-300))


def test_elements_that_are_not_finite_are_counted_and_left_out():
    found = statistics_of(jnp.array([[1.0, np.nan, 3.0], [np.inf, -np.inf, 0.0]]))
    assert (found.zeros, found.nans, found.infinities) == (1, 1, 2)
    assert (found.mean, found.least, found.greatest) == (4 / 3, 0, 3)
    assert not found.is_finite
    numbers = jnp.array([3 + 4j, complex(np.nan, 1), complex(np.inf, np.nan), complex(1, -np.inf), 0])
    found = statistics_of(numbers)
    assert (found.zeros, found.nans, found.infinities) == (1, 2, 1)
    assert (found.mean, found.std, found.greatest) == (2.5, 2.5, 5)


def test_without_finite_elements_there_is_no_mean():
    assert statistics_of(jnp.full(4, np.nan)) == LeafStatistics(
        mean=None, std=None, least=None, greatest=None, zeros=0, nans=4, infinities=0
    )
    assert (
        leaf_statistics([jnp.zeros((0, 3)), np.zeros((2, 0)), np.zeros(0, ml_dtypes.bfloat16)])
        == [NOTHING] * 3
    )


def test_absolute_values_beyond_float64_are_left_out():
    found = statistics_of(np.array([complex(1.7e308, 1.7e308), 1]))
    assert (found.mean, found.greatest, found.least) == (None, None, 1)
    report = tree_report({"z": np.array([complex(1.7e308, 1.7e308), 1])}, statistics=True)
    assert from_json(to_json(report)) == report


@pytest.mark.parametrize("spec", [P(), P("a"), P(None, ("a", "b")), P("b", None, "a")])
def test_a_sharded_array_has_the_statistics_of_its_elements(spec):
    array = jax.device_put(some_numbers(), NamedSharding(mesh_of((4, 2), ("a", "b")), spec))
    agree(statistics_of(array), by_numpy(some_numbers()))


def other_shardings():
    """Yield arrays with shardings that have no mesh, as far as this version of JAX has them."""
    from jax._src.sharding_impls import GSPMDSharding

    named = NamedSharding(mesh_of((4, 2), ("a", "b")), P("b", "a"))
    yield jax.device_put(some_numbers(), GSPMDSharding(tuple(jax.devices()), named._to_xla_hlo_sharding(3)))
    yield jax.device_put(some_numbers(), jax.devices()[3])
    yield jax.pmap(lambda x: x)(some_numbers())
    if hasattr(jax.sharding, "PositionalSharding"):
        yield jax.device_put(some_numbers(), jax.sharding.PositionalSharding(jax.devices()).reshape(4, 2, 1))


def test_arrays_with_other_shardings():
    for array in other_shardings():
        agree(statistics_of(array), by_numpy(some_numbers()))


def test_arrays_in_host_memory():
    (device, *_) = jax.devices()
    kinds = {memory.kind for memory in device.addressable_memories()}
    for kind in kinds:
        sharding = NamedSharding(mesh_of((4, 2), ("a", "b")), P("a"), memory_kind=kind)
        agree(statistics_of(jax.device_put(some_numbers(), sharding)), by_numpy(some_numbers()))


def test_large_arrays_are_reduced_in_blocks():
    """A float32 sum of ones stops at 2^24."""
    ones = jnp.ones(2**24 + 2**22 + 7, jnp.bfloat16)
    assert statistics_of(ones) == LeafStatistics(
        mean=1.0, std=0.0, least=1.0, greatest=1.0, zeros=0, nans=0, infinities=0
    )
    truth = jnp.zeros(2**24 + 1, bool).at[-1].set(True)
    assert statistics_of(truth).zeros == 2**24
    # The last block overlaps the one before.
    counted = np.arange(3 * BLOCK + 5, dtype=np.int32).reshape(-1, 1)
    for array in (counted, counted.T):
        agree(statistics_of(jnp.asarray(array)), by_numpy(array))
        agree(statistics_of(array), by_numpy(array))


def compiled(like, *arguments):
    """Return the program that reduces an array."""
    program = jax.jit(_program, static_argnums=(1, 2))
    return call_apart(lambda: program.lower(like, *arguments).compile())


def test_the_temporary_memory_is_that_of_a_block():
    program = compiled(jax.ShapeDtypeStruct((2**13, 2**17), jnp.float32), None, None)
    assert program.memory_analysis().temp_size_in_bytes < 64 * 2**20


def test_no_collective_runs():
    mesh, spec = mesh_of((4, 2), ("a", "b")), P("b", "a")
    like = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, spec))
    text = compiled(like, mesh, spec).as_text()
    assert not any(word in text for word in ("all-reduce", "all-gather", "all-to-all", "collective-permute"))


def test_leaves_without_numbers_have_no_statistics():
    deleted, donated = jnp.ones(3), jnp.ones(3)
    deleted.delete()
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    found = [
        deleted,
        donated,
        jax.random.key(0),
        jax.ShapeDtypeStruct((3,), jnp.float32),
        np.array([None, 3]),
        np.array(["text"]),
        np.array([1, 2], "m8[s]"),
        np.zeros(2, [("x", float)]),
        None,
        "leaf",
        object(),
        3,
    ]
    if hasattr(jax, "new_ref"):
        found.append(jax.new_ref(jnp.ones(3)))
    assert leaf_statistics(found) == [None] * len(found)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@settings(max_examples=60)
@given(
    arrays.arrays(
        st.sampled_from(["f4", "f8", "i8", "u8", "c8", "f2", ">f4", "?"]),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
    )
)
def test_numpy_arrays(array):
    found = statistics_of(array)
    with np.errstate(all="ignore"):
        known = by_numpy(array)
    assert (found.zeros, found.nans, found.infinities) == (known.zeros, known.nans, known.infinities)
    assert (found.least, found.greatest) == (known.least, known.greatest)
    if found.mean is not None:
        assert found.least <= found.mean <= found.greatest
        assert 0 <= found.std <= (found.greatest / 2 - found.least / 2) * (1 + 1e-12)
        if math.isfinite(known.mean):
            scale = max(abs(found.least), abs(found.greatest))
            assert found.mean == pytest.approx(known.mean, rel=1e-9, abs=1e-12 * scale)


def test_numpy_arrays_of_any_layout():
    numbers = some_numbers()
    for array in (numbers[::2, ::-1], numbers.T, np.broadcast_to(numbers[0], (3, 16, 4)), np.float32(3)):
        agree(statistics_of(array), by_numpy(array))
    masked = np.ma.masked_array(numbers, mask=True)
    agree(statistics_of(masked), by_numpy(numbers))


class Failed:
    """A result whose computation failed."""

    def __array__(self, *_, **__):
        raise RuntimeError("the computation failed")


def test_a_failed_computation_leaves_the_other_leaves(monkeypatch):
    failed, refused = jnp.zeros((2, 2)), jnp.zeros((3, 3))
    reduce = statistics.reduce_on_devices

    def reduce_or_fail(array):
        if array is refused:
            raise RuntimeError("out of memory")
        return Failed() if array is failed else reduce(array)

    monkeypatch.setattr(statistics, "reduce_on_devices", reduce_or_fail)
    found = leaf_statistics([jnp.ones(3), failed, refused, np.ones(2)])
    assert [one and one.mean for one in found] == [1, None, None, 1]


SETTINGS = {
    "jax_debug_nans": True,
    "jax_debug_infs": True,
    "jax_disable_jit": True,
    "jax_transfer_guard": "disallow_explicit",
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_check_tracer_leaks": True,
}


def test_settings_of_jax_do_not_apply():
    numbers = some_numbers()
    array = jax.device_put(numbers, NamedSharding(mesh_of((4, 2), ("a", "b")), P("a")))
    known = statistics_of(array)
    for name, value in SETTINGS.items():
        before = getattr(jax.config, name)
        jax.config.update(name, value)
        try:
            assert leaf_statistics([array, numbers])[0] == known, name
        finally:
            jax.config.update(name, before)
    set_mesh = getattr(jax, "set_mesh", None)
    if set_mesh:
        for mesh in (mesh_of((8,), ("z",)), mesh_of((4, 2), ("a", "b"))):
            with set_mesh(mesh):
                assert statistics_of(array) == known


@pytest.mark.parametrize("name", ["jit", "vmap", "grad", "shard map in jit", "shard map alone", "scan"])
def test_a_concrete_array_is_read_inside_a_trace(name):
    assert expected(name)
    mesh = mesh_of((4, 2), ("a", "b"))
    array = jax.device_put(jnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("a", "b")))
    found = []

    def inspect(x):
        found.append(leaf_statistics([x, array]))
        return x

    CONTEXTS[name].run(inspect, array, mesh)
    traced, concrete = found[0]
    assert traced is None
    assert concrete.mean == 31.5


def compilations(function):
    """Return the number of programs that a call compiles, and its result."""
    compiled = []

    def listen(event, seconds, **_):
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    result = function()
    return len(compiled), result


def test_each_shape_dtype_and_sharding_is_compiled_once():
    mesh = mesh_of((4, 2), ("a", "b"))
    host = [np.full((24, 40), number, np.float32) for number in range(3)]
    leaves = [jax.device_put(array, NamedSharding(mesh, P(name))) for array in host for name in "ab"]
    jax.block_until_ready(leaves)
    assert compilations(lambda: leaf_statistics(leaves))[0] == 2
    count, found = compilations(lambda: leaf_statistics(leaves))
    assert count == 0
    assert [one.mean for one in found] == [0, 0, 1, 1, 2, 2]


def test_no_array_is_left_or_kept_alive(no_arrays):
    sharding = NamedSharding(mesh_of((4, 2), ("a", "b")), P("a"))
    leaves = {"x": jax.device_put(some_numbers(), sharding), "y": jnp.ones(3)}
    before = {id(array) for array in jax.live_arrays()}
    functions = {cache.name for cache in compile_caches_report().functions}
    report = tree_report(leaves, statistics=True)
    assert {id(array) for array in jax.live_arrays()} == before
    assert {cache.name for cache in compile_caches_report().functions} == functions
    gone = [weakref.ref(array) for array in leaves.values()]
    leaves.clear()
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    assert len(report.rows) == 2
    assert jax.live_arrays() == []


def test_the_report_has_the_statistics_of_each_row():
    tree = {"w": jnp.array([1.0, 3.0]), "key": jax.random.key(0), "n": np.array([np.nan]), "other": None}
    report = tree_report(tree, statistics=True)
    found = {row.path: row.statistics for row in report.rows}
    assert found["key"] is None
    assert found["w"].mean == 2
    assert found["n"] == by_numpy(np.array([np.nan]))
    assert from_json(to_json(report)) == report
    assert tree_report(report, statistics=True) == report
    planned = tree_report(tree, mesh={"a": 2}, statistics=True)
    assert [row.statistics for row in planned.rows] == [row.statistics for row in report.rows]


def test_the_caller_can_be_interrupted_while_a_device_is_busy():
    """The reductions run in a daemon thread, so that the program can exit although a collective hangs."""
    (thread,) = call_apart(lambda: [threading.current_thread()])
    assert thread.daemon
    assert not thread.is_alive() or thread.join(10) is None
    with pytest.raises(ZeroDivisionError):
        call_apart(lambda: 1 // 0)
