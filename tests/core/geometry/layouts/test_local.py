"""Part of a multi-process array on the devices of one process."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core import ShardingLayout
from jax_array_info_core.geometry.layouts.layout import LocalPart, local_part, mesh_layout


def layout_of(shape, sizes, axes, owners, ids=None):
    """Return a layout on a mesh whose devices, in order, belong to the processes in ``owners``."""
    ids = np.arange(len(owners)) if ids is None else np.array(ids)
    processes = tuple(
        (process, tuple(sorted(ids[np.array(owners) == process].tolist()))) for process in sorted(set(owners))
    )
    mesh = ids.reshape(tuple(sizes.values()))
    return mesh_layout(shape, sizes, axes, mesh, "cpu", processes if len(processes) > 1 else ())


def part(process, devices, shard_count, element_count, index, nbytes, device_nbytes=None):
    """Return the part of a process; without replicas, its devices hold its bytes once."""
    return LocalPart(
        process=process,
        devices=devices,
        shard_count=shard_count,
        element_count=element_count,
        index=index,
        nbytes=nbytes,
        device_nbytes=nbytes if device_nbytes is None else device_nbytes,
    )


def test_adjacent_shards_form_a_box():
    layout = layout_of((8, 16), {"a": 2, "b": 4}, [["a"], ["b"]], [0, 0, 1, 1] * 2, [*range(0, 80, 10)])
    assert local_part(layout, 1, 32) == part(1, (20, 30, 60, 70), 4, 64, ((0, 8), (8, 16)), 256)


def test_types_smaller_than_a_byte_are_packed_in_each_shard():
    layout = layout_of((6,), {"a": 2}, [["a"]], [0, 1])
    assert local_part(layout, 0, 4).nbytes == 2


def test_a_dtype_of_unknown_size_has_no_bytes():
    layout = layout_of((6,), {"a": 2}, [["a"]], [0, 1])
    part = local_part(layout, 0, None)
    assert (part.nbytes, part.device_nbytes, part.element_count) == (None, None, 3)


@pytest.mark.parametrize(
    ("shape", "axes", "index"),
    [((), [], ()), ((0, 8), [[], ["a"]], ((0, 0), (0, 4))), ((0,), [["a"]], ((0, 0),))],
)
def test_scalars_and_empty_arrays_have_a_local_part(shape, axes, index):
    layout = layout_of(shape, {"a": 4}, axes, [0, 0, 1, 1])
    part = local_part(layout, 0, 32)
    assert (part.devices, part.element_count, part.index) == ((0, 1), math.prod(shape), index)


def test_a_process_without_devices_of_the_array_has_an_empty_part():
    nothing = part(2, (), 0, 0, None, 0)
    assert local_part(layout_of((8,), {"a": 4}, [["a"]], [0, 0, 1, 1]), 2, 32) == nothing
    assert local_part(layout_of((8,), {"a": 4}, [["a"]], [1, 1, 1, 1]), 2, 32) == nothing


@st.composite
def layouts(draw):
    counts = draw(st.lists(st.integers(1, 4), max_size=3))
    replicas = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(0, 9)) for _ in counts)
    size = math.prod(counts) * replicas
    ids = draw(st.permutations([3 * number for number in range(size)]))
    owners = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    return layout_of(shape, {"all": size}, [], owners, ids), ids, owners, (*counts, replicas)


@given(layouts())
def test_the_local_part_agrees_with_the_shards_of_each_device(case):
    flat, ids, owners, grid = case
    layout = ShardingLayout(
        shape=flat.shape, device_ids=np.array(ids).reshape(grid), platform="cpu", processes=flat.processes
    )
    if not layout.processes:
        return
    for process in range(3):
        part = local_part(layout, process, 32)
        own = sorted(device for device, owner in zip(ids, owners, strict=True) if owner == process)
        marked = np.zeros(layout.shape, bool)
        sizes = [math.prod(piece.stop - piece.start for piece in layout.index_of(device)) for device in own]
        for device in own:
            marked[layout.index_of(device)] = True
        assert part.devices == tuple(own)
        assert (part.nbytes, part.device_nbytes) == (4 * marked.sum(), 4 * sum(sizes))
        assert part.element_count == marked.sum()
        if own and all(sizes):
            assert part.shard_count == len({str(layout.index_of(device)) for device in own})
            places = np.argwhere(marked)
            bounds = tuple(zip(places.min(0).tolist(), (places.max(0) + 1).tolist(), strict=True))
            is_box = marked[tuple(slice(*pair) for pair in bounds)].all()
            assert part.index == (bounds if is_box else None)
