"""Collectives of programs that this version of JAX compiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.compat.arrays import per_shard
from jax_array_info_core.compat.programs import program_record
from jax_array_info_core.programs.program_report import module_of
from tests.core.programs.collectives_of_text import DP, FSDP, of_module
from tests.programs import cube

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


@pytest.fixture(scope="module")
def mesh():
    return cube()


def array(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def compiled(function, *args, mesh=FSDP, **options):
    """Return the collectives of a function."""
    lowered = jax.jit(function, **options).lower(*args)
    return of_module(module_of(program_record(lowered.compile()), lowered), mesh)


def test_a_tensor_parallel_layer_reduces_over_its_axis(mesh):
    def layer(w, x):
        return jax.nn.gelu(x @ w["in"]) @ w["out"]

    w = {"in": array(mesh, (256, 1024), None, "tensor"), "out": array(mesh, (1024, 256), "tensor")}
    (row,) = compiled(layer, w, array(mesh, (32, 64, 256), ("data", "fsdp")))
    assert (row.kind, row.axes, row.group_size, row.shape) == ("all-reduce", ("tensor",), 2, (8, 64, 256))
    assert row.total_nbytes == 524_288
    assert row.phase is row.path is None
    line = layer.__code__.co_firstlineno + 1
    assert (row.origin.file, row.origin.line, row.origin.function) == (__file__, line, "layer")


def test_collectives_in_shard_map_have_their_kinds_axes_and_lines(mesh):
    def reduce_scatter(a):
        return lax.psum_scatter(a, "tensor", scatter_dimension=0, tiled=True)

    def experts(a):
        return lax.all_to_all(a, ("data", "tensor"), split_axis=1, concat_axis=0, tiled=True)

    def gather(a):
        return lax.all_gather(a, "fsdp", tiled=True)

    def ring(a):
        return lax.ppermute(a, "fsdp", [(0, 1), (1, 0)])

    for function, spec, kind, axes, sent in [
        (reduce_scatter, P("data"), "reduce-scatter", ("tensor",), 8_192),
        (experts, P(("data", "tensor")), "all-to-all", ("data", "tensor"), 6_144),
        (gather, P("fsdp"), "all-gather", ("fsdp",), 16_384),
        (ring, P("data", "fsdp"), "collective-permute", ("fsdp",), 8_192),
    ]:
        mapped = per_shard(function, mesh, spec, P(("data", "fsdp", "tensor")))
        (row,) = compiled(mapped, array(mesh, (64, 128), *spec))
        assert (row.kind, row.axes, row.total_nbytes) == (kind, axes, sent)
        assert (row.origin.line, row.origin.is_near) == (function.__code__.co_firstlineno + 1, False)


def test_a_gradient_tells_its_passes(mesh):
    """Those of the gathers are told even where they have only the name of an argument."""

    def loss(params, x):
        return jnp.mean((jax.nn.gelu(x @ params["wi"]) @ params["wo"]) ** 2)

    def scanned(params, x):
        return jnp.mean(lax.scan(lambda c, w: (jnp.tanh(c @ w["wi"]) @ w["wo"], None), x, params)[0] ** 2)

    shapes = {"wi": (1024, 4096), "wo": (4096, 1024)}
    specs = {"wi": ("fsdp", "tensor"), "wo": ("tensor", "fsdp")}
    x = array(mesh, (32, 256, 1024), ("data", "fsdp"))
    layer = {name: array(mesh, shapes[name], *specs[name]) for name in shapes}
    stack = {name: array(mesh, (4, *shapes[name]), None, *specs[name]) for name in shapes}
    for function, params, times in [(loss, layer, 1), (scanned, stack, 4)]:
        found = compiled(jax.grad(function), params, x)
        gathers = [one for one in found if one.kind == "all-gather"]
        assert {(one.path, one.axes, one.times) for one in gathers} == {
            ("params/wi", ("fsdp",), times),
            ("params/wo", ("fsdp",), times),
        }
        phases = {one.phase for one in gathers}
        # Outside of a loop, the names of operations have no transformations up to JAX 0.6.
        assert phases == {"forward", "backward"} or (times == 1 and phases == {None})
        assert {one.origin.line for one in gathers} == {function.__code__.co_firstlineno + 1}


def test_a_grouped_convolution_gathers_its_batch():
    dp = Mesh(np.array(jax.devices()[:8]), ("dp",))

    def grouped(x, w):
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=4)
        return lax.with_sharding_constraint(y, NamedSharding(dp, P("dp")))

    (row,) = compiled(grouped, array(dp, (16, 8, 8, 8), "dp"), array(dp, (8, 2, 3, 3)), mesh=DP)
    assert (row.kind, row.axes, row.dtype, row.shape) == ("all-gather", ("dp",), "float32", (16, 8, 8, 8))
    assert (row.path, row.total_nbytes) == ("x", 28_672)


def test_a_gather_for_a_constraint_is_marked_as_near_its_line(mesh):
    """XLA gives the gather the line of an operation next to the constraint, which may be the same line."""
    weights, x = array(mesh, (256, 128), "fsdp"), array(mesh, (32, 256), "data")

    def constrained(w, x):
        w = lax.with_sharding_constraint(w, NamedSharding(mesh, P()))
        return x @ w

    def free(w, x):
        return x @ w

    def of_one_line(w, x):
        return x @ lax.with_sharding_constraint(w, NamedSharding(mesh, P()))

    for function, is_near in ((constrained, True), (free, False), (of_one_line, False)):
        (row,) = program_report(function, weights, x).collectives
        assert (row.kind, row.path) == ("all-gather", "w")
        # Before Shardy, it has the line of the constraint itself.
        is_there = row.origin.line == function.__code__.co_firstlineno + 1
        assert row.origin.is_near == (is_near and not is_there)
        assert str(row.origin).startswith("near ") == row.origin.is_near


def test_a_gather_for_an_operation_far_from_the_one_that_computes_the_array_is_near(mesh):
    def cumulated(w, x):
        y = jnp.tanh(x @ w)
        return jnp.cos(jnp.cumsum(y, axis=0))

    rows = program_report(cumulated, array(mesh, (256, 128)), array(mesh, (32, 256), "data")).collectives
    cumsum = cumulated.__code__.co_firstlineno + 2  # before Shardy, the gather has this line
    assert rows
    assert all(row.origin.is_near == (row.origin.line != cumsum) for row in rows)
