"""XLA shardings with named mesh axes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core import xla_report
from jax_array_info_core.errors import NotationError
from jax_array_info_core.geometry.layouts.layout import mesh_layout
from jax_array_info_core.geometry.layouts.xla import mesh_of_xla
from jax_array_info_core.layouts import Spec, parse_xla_sharding, spec_of_xla

pytestmark = pytest.mark.newest

MESH = {"x": 4, "y": 2}


@pytest.mark.parametrize(
    ("text", "tiled"),
    [
        # As JAX 0.10 writes the same shardings.
        ("{mesh['x'=4,'y'=2], [{'y'}, {}, {'x'}]}", "{devices=[2,1,4]<=[4,2]T(1,0)}"),
        ("{mesh['x'=4,'y'=2], [{}, {'x', 'y'}, {}]}", "{devices=[1,8,1]<=[8]}"),
        ("{mesh['x'=4,'y'=2], [{'y'}, {}]}", "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"),
        ("{mesh['x'=4,'y'=2], [{'y', ?}, {?}]}", "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"),
        (
            "{mesh['x'=4,'y'=2], [{'y'}], replicated={'x'}}",
            "{devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
        ),
        (
            "{mesh['x'=4,'y'=2], [{'y'}], unreduced={'x'}}",
            "{devices=[2,4]<=[4,2]T(1,0) last_tile_dims={unreduced}}",
        ),
        (
            "{mesh['x'=4,'y'=2], [{'y'}], unreduced=max{'x'}}",
            "{devices=[2,4]<=[4,2]T(1,0) last_tile_dims={unreduced}}",
        ),
        (
            "{mesh['x'=4,'y'=2], [{}], replicated={'y'}, unreduced={'x':(1)2}, manual={'x':(2)2}}",
            "{devices=[1,2,2,2]<=[2,2,2]T(1,0,2) last_tile_dims={manual, unreduced, replicated}}",
        ),
        ("{mesh['x'=4,'y'=2], [{}, {}]}", "{replicated}"),
        ("{mesh['x'=4,'y'=2], replicated}", "{replicated}"),
        ("{mesh[], replicated}", "{replicated}"),
        ("{mesh['x'=4,'y'=2], manual}", "{manual}"),
        ("{mesh['x'=4,'y'=2], [{}], manual={'x', 'y'}}", "{manual}"),
        ("{mesh['x'=4,'y'=2], unreduced}", "{unreduced}"),
        ("{maximal_mesh[device_id=3]}", "{maximal device=3}"),
        ("{single_device[device_id=3]}", "{maximal device=3}"),
        (
            "{mesh['x'=8], [{'x':(2)2}, {'x':(1)2}]}",
            "{devices=[2,2,2]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}",
        ),
        ("{mesh['x'=4,'y'=2], device_ids=([2,4]T(1,0)), [{'y'}, {'x'}]}", "{devices=[2,4]<=[8]}"),
        ("{mesh['x'=8], device_ids=([2,2,2]T(1,0,2)), [{'x'}]}", "{devices=[8]<=[2,2,2]T(1,0,2)}"),
        ("{mesh['x'=2,'y'=3], device_ids=([3,2]T(1,0)), [{'y'}, {'x'}]}", "{devices=[3,2]<=[6]}"),
        ("{mesh['x'=3,'y'=2], device_ids=([3,2]T(1,0)), [{'x'}, {'y'}]}", "{devices=[3,2]0,2,4,1,3,5}"),
        ("{mesh['x'=2,'y'=2], device_ids=(2,0,3,1), [{'y'}, {'x'}]}", "{devices=[2,2]2,3,0,1}"),
        ("{mesh['x'=4,'one'=1,'y'=2], [{'y', 'one'}, {'x'}]}", "{devices=[2,4]<=[4,2]T(1,0)}"),
        ("{mesh['a b'=4,'y's'=2], [{'y's'}, {'a b'}]}", "{devices=[2,4]<=[4,2]T(1,0)}"),
        ("{mesh['x'=4,'xy'=2], [{'xy'}, {'x'}]}", "{devices=[2,4]<=[4,2]T(1,0)}"),
        ("{mesh[x=4,y=2], [{y}, {x}]}", "{devices=[2,4]<=[4,2]T(1,0)}"),
        (
            "{mesh['x'=4,'y'=2], [{'y'}, {'x'}], metadata={{op_name=\"f/{g\" source_line=3}}}",
            "{devices=[2,4]<=[4,2]T(1,0)}",
        ),
        ('{replicated metadata={op_name="jit(f)/a"}}', "{replicated}"),
        ('{devices=[2,4]<=[8] shard_as 3 metadata={op_name="a"}}', "{devices=[2,4]<=[8]}"),
    ],
)
def test_a_named_sharding_is_converted_to_its_tiled_form(text, tiled):
    found = parse_xla_sharding(text)
    assert str(found) == tiled
    assert parse_xla_sharding(tiled) == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{mesh['x'=4], [{'z'}]}", "expected a mesh axis"),
        ("{mesh['x'=4], [{'x'}, {'x'}]}", "mesh axis 'x' is used twice"),
        ("{mesh['x'=4], [{'x':(1)2}, {'x'}]}", "mesh axis 'x' is used twice"),
        ("{mesh['x'=12], [{'x':(1)2}, {'x':(1)3}]}", "parts of mesh axis 'x' overlap"),
        ("{mesh['x'=4], [{'x':(2)3}]}", "this part does not divide mesh axis 'x' of size 4"),
        ("{mesh['x'=4,'x'=2], [{'x'}]}", "mesh axis 'x' is listed twice"),
        ("{mesh['x'=4], device_ids=(0,1,2), [{'x'}]}", "expected a permutation of the devices 0 to 3"),
        ("{mesh['x'=4], device_ids=(0,1,2,2), [{'x'}]}", "expected a permutation of the devices 0 to 3"),
        ("{mesh['x'=4], device_ids=([8]), [{'x'}]}", "8 devices in a mesh of 4"),
        ("{mesh['x'=4], device_ids=([4]T(1)), [{'x'}]}", "expected a permutation of the 1 axes"),
        ("{mesh['x'=4]}", "expected ','"),
        ("{mesh['x'=4], [{'x'}", "expected ',' or ']'"),
        ("{mesh[], [{'x'}]}", "the mesh has no axes"),
        ("{mesh['x'=0], replicated}", "expected a number of at least 1"),
        ("{maximal_mesh[device_id=x]}", "expected a number"),
        ('{replicated metadata={op_name="a"}', "expected '}'"),
    ],
)
def test_an_invalid_named_sharding_is_refused_with_its_problem(text, problem):
    with pytest.raises(NotationError) as raised:
        parse_xla_sharding(text)
    assert raised.value.problem.startswith(problem)
    assert 0 <= raised.value.position <= len(text)


@st.composite
def named(draw):
    """Draw the sizes of a mesh, an order of its devices, and mesh axes for each axis of an array."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    mesh = {f"a{number}": size for number, size in enumerate(sizes)}
    order = draw(st.none() | st.permutations(range(math.prod(sizes))))
    names = draw(st.permutations(list(mesh)))
    used = names[: draw(st.integers(0, len(names)))]
    ends = sorted(draw(st.lists(st.integers(0, len(used)), min_size=2, max_size=2)))
    axes = tuple(tuple(used[start:stop]) for start, stop in zip([0, *ends], [*ends, len(used)], strict=True))
    return mesh, order, axes


def text_of(mesh, order, axes):
    sizes = ",".join(f"'{name}'={size}" for name, size in mesh.items())
    ids = "" if order is None else f", device_ids=({','.join(map(str, order))})"
    dims = ", ".join("{" + ", ".join(f"'{name}'" for name in names) + "}" for names in axes)
    return f"{{mesh[{sizes}]{ids}, [{dims}]}}"


@given(named())
def test_a_named_sharding_has_the_devices_of_its_spec(case):
    mesh, order, axes = case
    sharding = parse_xla_sharding(text_of(mesh, order, axes))
    counts = tuple(math.prod(mesh[name] for name in names) for names in axes)
    ids = np.arange(math.prod(mesh.values())) if order is None else np.array(order)
    expected = mesh_layout(counts, mesh, axes, ids.reshape(tuple(mesh.values()))).device_ids
    if sharding.kind == "replicated":
        assert set(counts) == {1}
    else:
        assert np.array_equal(np.sort(sharding.device_ids, -1), np.sort(expected, -1))
    assert parse_xla_sharding(str(sharding)) == sharding


@given(named())
def test_the_spec_of_a_named_sharding_is_found_on_its_mesh(case):
    mesh, _, axes = case
    text = text_of(mesh, None, axes)
    kept = [tuple(name for name in names if mesh[name] > 1) for names in axes]
    while kept and not kept[-1]:
        kept.pop()
    assert mesh_of_xla(text) == mesh
    assert spec_of_xla(parse_xla_sharding(text), mesh) == Spec(tuple(kept))


@given(named(), st.permutations([2, 2, 3]))
def test_an_arrangement_of_devices_equals_the_list_of_them(case, dims):
    _, _, axes = case
    names = [name for entry in axes for name in entry][:2] or ["a0"]
    mesh = dict(zip(names, (4, 3), strict=False))
    mesh[names[0]] = 12 if len(names) == 1 else 4
    used = tuple(tuple(name for name in entry if name in mesh) for entry in axes)
    ids = np.arange(12).reshape(dims).transpose(2, 0, 1).ravel().tolist()
    arranged = text_of(mesh, None, used).replace(
        "], [", f"], device_ids=([{','.join(map(str, dims))}]T(2,0,1)), [", 1
    )
    assert np.array_equal(
        parse_xla_sharding(arranged).device_ids, parse_xla_sharding(text_of(mesh, ids, used)).device_ids
    )


@pytest.mark.parametrize(
    "text", ["{replicated}", "{mesh['x'=2], device_ids=(1,0), [{'x'}]}", "{mesh[], replicated}"]
)
def test_a_sharding_without_a_mesh_in_order_has_no_mesh(text):
    assert mesh_of_xla(text) is None


def test_a_named_sharding_is_explained_on_its_own_mesh():
    report = xla_report("{mesh['x'=4,'y'=2], [{'y'}, {}, {'x'}]}", shape=(16, 16, 16))
    assert (str(report.spec), report.mesh.shape) == ("P('y', None, 'x')", MESH)
    assert report.patterns[0] == "axis 0: 2 shards, shard k on devices 0,2,4,6 + k"
    # The names of another mesh with the same sizes.
    report = xla_report("{mesh['x'=4,'y'=2], [{'y'}, {}, {'x'}]}", {"data": 4, "model": 2})
    assert str(report.spec) == "P('model', None, 'data')"


def test_partial_sums_of_the_whole_array_are_unreduced():
    assert spec_of_xla(parse_xla_sharding("{unreduced}"), {"x": 4, "one": 1}) == Spec((), unreduced=("x",))
    assert xla_report("{unreduced}", MESH).layout is None


def test_devices_beyond_the_limit_are_refused_only_where_they_would_be_listed():
    many = "{mesh['x'=1048576,'y'=3], [{'y'}]}"
    assert str(parse_xla_sharding(many)) == "{devices=[3,1048576]<=[1048576,3]T(1,0) last_tile_dim_replicate}"
    text = "{mesh['x'=1048576,'y'=3], device_ids=([3,1048576]T(1,0)), [{'y'}]}"
    assert parse_xla_sharding(text).iota == (3145728,)
    with pytest.raises(NotationError, match="more than 1048576 devices"):
        parse_xla_sharding("{mesh['x'=1048576,'y'=3], device_ids=([1048576,3]T(1,0)), [{'y'}]}")
