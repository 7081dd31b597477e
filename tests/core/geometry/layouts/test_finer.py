import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.geometry.layouts.spec import finer_axes

pytestmark = pytest.mark.newest


@pytest.mark.parametrize(
    ("shape", "mesh", "axes"),
    [
        ((2048, 26, 64), {"fsdp": 4, "expert": 2}, (("fsdp", "expert"), (), ())),
        ((26, 2048), {"fsdp": 4}, ((), ("fsdp",))),
        ((8, 4096), {"fsdp": 8}, ((), ("fsdp",))),
        ((3, 5), {"fsdp": 4}, ((), ())),
        ((), {"fsdp": 4}, ()),
        ((0, 4), {"fsdp": 1}, ((), ())),
        ((6, 4), {"x": 3, "y": 4}, (("x",), ("y",))),
        ((12, 4), {"x": 3, "y": 4}, (("x", "y"), ())),
    ],
)
def test_the_assignment_has_the_most_shards_on_the_fewest_and_longest_axes(shape, mesh, axes):
    assert finer_axes(shape, tuple(mesh.items())) == axes


def most_shards(shape, sizes):
    """Return the largest number of shards, from every assignment."""
    best = 1
    for choice in itertools.product(range(len(shape) + 1), repeat=len(sizes)):
        counts = [
            math.prod(size for size, axis in zip(sizes, choice, strict=True) if axis == number)
            for number in range(len(shape))
        ]
        if all(dim % count == 0 for dim, count in zip(shape, counts, strict=True)):
            best = max(best, math.prod(counts))
    return best


@given(
    st.lists(st.integers(1, 48), max_size=3).map(tuple),
    st.lists(st.integers(1, 6), max_size=3),
)
def test_no_assignment_of_mesh_axes_has_more_shards(shape, sizes):
    mesh = tuple((f"m{number}", size) for number, size in enumerate(sizes))
    axes = finer_axes(shape, mesh)
    names = [name for entry in axes for name in entry]
    counts = [math.prod(dict(mesh)[name] for name in entry) for entry in axes]
    assert len(set(names)) == len(names)
    assert all(dim % count == 0 for dim, count in zip(shape, counts, strict=True))
    assert math.prod(counts) == most_shards(shape, sizes)


def test_a_mesh_of_many_axes_takes_no_exponential_time():
    mesh = tuple((f"m{number}", 2) for number in range(20))
    axes = finer_axes((2**20,) * 6, mesh)
    assert sum(map(len, axes)) == 20
