"""Layouts of every sharding class, compared with JAX."""

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import ShardingLayout, sharding_layout
from jax_array_info_core.errors import LayoutError
from jax_array_info_core.geometry.layouts.layout import mesh_layout, slices_layout
from jax_array_info_core.geometry.layouts.spec import effective_axes, effective_spec
from jax_array_info_core.layouts import Spec
from tests.arrays import FakeDevice, abstract_mesh, mesh_of


def public_sharding(name):
    """Return a class of ``jax.sharding``, or skip the test if this version of JAX has removed it."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        found = getattr(jax.sharding, name, None)
    if found is None:
        pytest.skip(f"jax {jax.__version__} has no {name}")
    return found


def named(spec):
    return NamedSharding(mesh_of((4, 2), ("a", "b"), jax.devices()[::-1][:8]), spec)


def gspmd(spec):
    sharding = named(spec)
    devices = tuple(sharding.mesh.devices.flat)
    return public_sharding("GSPMDSharding")(devices, sharding._to_xla_hlo_sharding(2))


def positional(replicated):
    devices = np.array(jax.devices()[::-1][:8])
    sharding = public_sharding("PositionalSharding")(devices).reshape(4, 2)
    return sharding.replicate(1) if replicated else sharding


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize(
    ("make", "argument", "counts", "replicas"),
    [
        (named, P(P.UNCONSTRAINED, "a"), (1, 4), 2),
        *[
            (make, *case)
            for make in (named, gspmd)
            for case in [
                (P(), (1, 1), 8),
                (P("a"), (4, 1), 2),
                (P("b", "a"), (2, 4), 1),
                (P(None, ("b", "a")), (1, 8), 1),
            ]
        ],
        (positional, False, (4, 2), 1),
        (positional, True, (4, 1), 2),
    ],
)
def test_the_layout_of_each_class_of_shardings_agrees_with_jax(make, argument, counts, replicas):
    """The laws have other specs and meshes."""
    sharding, shape = make(argument), (8, 8)
    layout = sharding_layout(shape, sharding)
    assert (layout.shard_counts, layout.replicas) == (counts, replicas)
    assert layout.shard_shape == sharding.shard_shape(shape)
    for device, index in sharding.devices_indices_map(shape).items():
        assert layout.index_of(device.id) == tuple(slice(*piece.indices(8)[:2]) for piece in index)


def test_the_layout_of_a_pmap_sharding_has_one_shard_per_device():
    devices = jax.devices()
    sharding = public_sharding("PmapSharding").default((len(devices), 3), 0, devices=devices)
    layout = sharding_layout((len(devices), 3), sharding)
    assert layout.shard_counts == (len(devices), 1)
    assert layout.index_of(devices[-1].id) == (slice(len(devices) - 1, len(devices)), slice(0, 3))


def test_a_single_device_holds_the_whole_array():
    device = jax.devices()[-1]
    layout = sharding_layout((3, 5), SingleDeviceSharding(device))
    assert layout == ShardingLayout(shape=(3, 5), device_ids=np.array([[[device.id]]]), platform="cpu")
    assert layout.index_of(device.id) == (slice(0, 3), slice(0, 5))


@pytest.mark.needs_devices(8)
def test_an_hlo_sharding_has_the_layout_of_its_named_sharding():
    for spec, counts in [(P("b", "a"), (2, 4)), (P(None, "b"), (1, 2))]:
        sharding = NamedSharding(mesh_of((4, 2), ("a", "b")), spec)
        layout = sharding_layout((16, 8), sharding._to_xla_hlo_sharding(2))
        assert layout.shard_counts == counts
        assert layout.index_of(5) == sharding_layout((16, 8), sharding).index_of(5)
    with pytest.raises(LayoutError, match=r"\{replicated\} does not list the device of each shard"):
        sharding_layout((16, 8), named(P())._to_xla_hlo_sharding(2))


@pytest.mark.needs_devices(8)
def test_manual_xla_shardings_have_no_layout():
    from jax._src.lib import xla_client

    def sharding(*last, dims=(1,)):
        proto = xla_client.OpSharding()
        proto.type = xla_client.OpSharding.Type.OTHER if last else xla_client.OpSharding.Type.MANUAL
        if last:
            proto.tile_assignment_dimensions = list(dims)
            proto.tile_assignment_devices = list(range(8))
            proto.last_tile_dims = list(last)
        return public_sharding("GSPMDSharding")(
            tuple(jax.devices()), xla_client.HloSharding.from_proto(proto)
        )

    with pytest.raises(LayoutError, match="does not fit"):
        sharding_layout((8, 8), sharding())
    subgroups = sharding(xla_client.OpSharding.Type.MANUAL, dims=(2, 1, 4))
    with pytest.raises(LayoutError):
        sharding_layout((8, 8), subgroups)


def test_an_empty_mesh_has_no_layout():
    from jax.sharding import Mesh

    with pytest.raises(LayoutError, match="the mesh is empty: a sharding needs at least one device"):
        sharding_layout((8,), NamedSharding(Mesh(np.empty((), object), ()), P()))


def test_the_layout_of_any_other_sharding_comes_from_its_indices_map():
    class Odd(SingleDeviceSharding):
        num_devices = 2
        _device_assignment = None

        def devices_indices_map(self, shape):
            class Device:
                platform, process_index = "cpu", 0

                def __init__(self, number):
                    self.id = number

            return {Device(7): (slice(0, 2), slice(None)), Device(5): (slice(2, 4), slice(None))}

        def _to_xla_hlo_sharding(self, ndim):
            raise NotImplementedError

    layout = sharding_layout((4, 3), Odd(jax.devices()[0]))
    assert layout.device_ids.tolist() == [[[7]], [[5]]]


def test_an_abstract_mesh_has_a_layout_without_devices():
    layout = sharding_layout((8, 8), NamedSharding(abstract_mesh(data=4, model=2), P("model", "data")))
    assert layout.platform is None
    assert layout.devices_of((1, 0)) == (1,)
    assert layout.index_of(7) == (slice(4, 8), slice(6, 8))


def test_the_last_shards_of_an_indivisible_axis_are_smaller_or_empty():
    layout = mesh_layout((5,), {"a": 4}, [["a"]])
    assert layout.shard_shape == (2,)
    assert [layout.index_of(device)[0] for device in range(4)] == [
        slice(0, 2),
        slice(2, 4),
        slice(4, 5),
        slice(5, 5),
    ]


def test_layouts_compare_by_value_and_are_frozen():
    ids = np.array([[0, 1]])
    layout = ShardingLayout(shape=(4,), device_ids=ids, platform="cpu")
    assert layout == ShardingLayout(shape=(4,), device_ids=ids.copy(), platform="cpu")
    assert hash(layout) == hash(ShardingLayout(shape=(4,), device_ids=ids.copy(), platform="cpu"))
    assert layout != ShardingLayout(shape=(4,), device_ids=np.array([[1, 0]]), platform="cpu")
    assert layout != ShardingLayout(shape=(4,), device_ids=ids.T, platform="cpu")
    assert layout != "layout"
    with pytest.raises(ValueError, match="read-only"):
        layout.device_ids[0, 0] = 5
    ids[0, 0] = 0  # the caller's array is still writable


@pytest.mark.parametrize(
    ("lookup", "problem"),
    [
        (
            lambda layout: layout.index_of(9),
            "device 9 holds no shards of this array, which is on devices 0-3",
        ),
        (lambda layout: layout.devices_of((2,)), r"no shard \(2,\): the shards form a grid of \(2,\)"),
        (lambda layout: layout.devices_of((-1,)), "no shard"),
        (lambda layout: layout.devices_of((0, 0)), "no shard"),
    ],
)
def test_errors_about_missing_shards_name_those_that_exist(lookup, problem):
    with pytest.raises(LayoutError, match=problem):
        lookup(ShardingLayout(shape=(4,), device_ids=np.arange(4).reshape(2, 2)))


def test_device_ids_that_do_not_fit_the_shape_are_rejected():
    with pytest.raises(LayoutError, match="does not fit an array of shape"):
        ShardingLayout(shape=(4, 4), device_ids=np.arange(4))
    with pytest.raises(LayoutError, match="the spec has 2 entries, but the array has 1 axis"):
        mesh_layout((4,), {"a": 2}, [[], ["a"]])


def test_slices_that_do_not_form_a_grid_are_rejected():
    with pytest.raises(LayoutError, match="do not form a regular grid"):
        slices_layout((4,), {0: (slice(0, 1),), 1: (slice(1, 4),)})
    with pytest.raises(LayoutError, match="do not form a regular grid"):
        slices_layout((4,), {0: (slice(0, 2),), 1: (slice(2, 4),), 2: (slice(2, 4),)})


def test_fraction_is_that_of_the_largest_shard():
    assert mesh_layout((16, 8), {"a": 4, "b": 2}, [["a"], ["b"]]).fraction == 1 / 8
    assert mesh_layout((5,), {"a": 4}, [["a"]]).fraction == 2 / 5
    assert mesh_layout((0, 8), {"a": 4}, [["a"]]).fraction == 1


def test_holders_of_a_device_are_the_replicas_of_its_shard():
    assert mesh_layout((16,), {"a": 4, "b": 2}, [["a"]]).holders_of(5) == (4, 5)


def test_a_layout_lists_the_devices_of_each_process():
    devices = [FakeDevice(number, number // 2) for number in (5, 0, 3, 2)]
    mesh = mesh_of((4,), ("a",), devices)
    layout = sharding_layout((8,), NamedSharding(mesh, P("a")))
    assert layout.processes == ((0, (0,)), (1, (2, 3)), (2, (5,)))
    assert layout != mesh_layout((8,), {"a": 4}, [["a"]], layout.device_ids.ravel(), "cpu")


@pytest.mark.newest
def test_names_that_are_not_mesh_axes_and_surplus_entries_are_kept():
    """An invalid spec does not equal a valid one."""
    assert effective_axes(Spec((("w",), ("x",))), {"x": 8}, 1) == (("w",), ("x",))


@pytest.mark.newest
def test_no_spec_has_an_unconstrained_entry_beyond_its_axes():
    assert effective_spec(Spec(((), ()), unconstrained=(1,)), {}).axes == ((), ())
    with pytest.raises(LayoutError, match=r"a spec of 1 entries that leaves axis 4\.6e\+18 to XLA"):
        Spec(((),), unconstrained=(2**62,))
