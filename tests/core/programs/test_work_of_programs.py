"""The share of work of real programs, and what its gate and its assertion say about them."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    CheckError,
    assert_no_regression,
    assert_work_divided,
    from_json,
    program_report,
    to_json,
)
from jax_array_info_core.compat.arrays import per_shard
from tests.programs import abstract, line, needs_lines

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


def product(x, w):
    return x @ w


def arguments(mesh):
    return abstract(mesh, P("x"), (1024, 512)), abstract(mesh, P(), (512, 512))


def program(name, mesh):
    """Return a program and its arguments, by name."""
    whole = NamedSharding(mesh, P())
    x, w = arguments(mesh)
    cube, kernels = abstract(mesh, P("x"), (16, 8, 16, 16)), abstract(mesh, P(), (16, 8, 3, 3))
    programs = {
        "product": (product, x, w),
        "constraint": (lambda x, w: lax.with_sharding_constraint(x, whole) @ w, x, w),
        "uneven rows": (product, abstract(mesh, P(), (12, 512)), w),
        "loop of unknown length": (
            lambda x, w: lax.while_loop(lambda y: jnp.sum(y) < 1, lambda y: jnp.tanh(y @ w), x),
            x,
            w,
        ),
        "conditional": (lambda x, w: lax.cond(x[0, 0] > 0, product, lambda x, w: (x @ w) @ w, x, w), x, w),
        "gradient of a scan": (
            jax.grad(lambda w, x: jnp.sum(lax.scan(lambda y, _: (jnp.tanh(y @ w), None), x, None, 4)[0])),
            w,
            x,
        ),
        "shard_map": (per_shard(product, mesh, (P("x"), P()), P("x")), x, w),
        "convolution": (
            lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME"),
            cube,
            kernels,
        ),
        "transform": (jnp.fft.fft, abstract(mesh, P("x"), (64, 8, 256), "complex64")),
        "factorization": (jnp.linalg.cholesky, abstract(mesh, P("x"), (16, 64, 64))),
        "sort": (lambda x: jnp.sort(x, -1), x),
    }
    return programs[name]


DIVIDED_FROM = {"transform": (0, 12), "factorization": (0, 5)}
"""Version of JAX from which XLA for CPUs divides the batch of an operation. Before, each device does all."""
EVEN = [
    *("product", "loop of unknown length", "conditional", "gradient of a scan", "convolution", "sort"),
    *DIVIDED_FROM,
]


@pytest.mark.parametrize("name", EVEN)
def test_even_work_passes(name):
    if jax.__version_info__ < DIVIDED_FROM.get(name, ()):
        pytest.skip(
            f"before JAX {'.'.join(map(str, DIVIDED_FROM[name]))}, XLA for CPUs repeats it on each device"
        )
    f, *rest = program(name, line("x"))
    report = program_report(jax.jit(f), *rest)
    assert report.work.share == pytest.approx(1, abs=0.005)
    assert_work_divided(report)
    assert_no_regression(report, report, fail_on="work")


@needs_lines
def test_repeated_work_breaks_the_gate():
    mesh = line("x")
    even, whole = (program_report(*program(name, mesh)) for name in ("product", "constraint"))
    assert whole.work.share == pytest.approx(8)
    with pytest.raises(CheckError, match=r"8.00 times over x, repeats 469,762,048 FLOPs, test_work_of_progr"):
        assert_work_divided(whole)
    with pytest.raises(CheckError, match=r"share of work 1.000 times to 8.000 times, allowed \+5 %"):
        assert_no_regression(even, whole, fail_on="work")
    assert_no_regression(whole, even, fail_on="work")
    assert from_json(to_json(whole)).work == whole.work
    with pytest.raises(CheckError, match=r"1.000 times to 8.000 times"):
        assert_no_regression(from_json(to_json(even)), from_json(to_json(whole)), fail_on="work")


def test_a_shard_map_is_even_or_unknown():
    """Before Shardy, its body is lowered as work of one device."""
    share = program_report(*program("shard_map", line("x"))).work.share
    assert share is None or share == pytest.approx(1)


def test_work_that_is_not_known_breaks_the_gate_with_its_reason():
    mesh = line("x")
    f, *rest = program("constraint", mesh)
    compiled = program_report(jax.jit(f).lower(*rest).compile())
    alone = program_report(product, *(jax.ShapeDtypeStruct(one.shape, one.dtype) for one in rest))
    for report, reason in ((compiled, "Compiled"), (alone, "there is one device")):
        assert report.work.share is None
        with pytest.raises(CheckError, match=reason):
            assert_work_divided(report)
        with pytest.raises(CheckError, match=reason):
            assert_no_regression(report, report, fail_on="work")


@pytest.mark.skipif(jax.__version_info__ < (0, 8), reason="the mesh of Explicit axes is set by jax.set_mesh")
def test_explicit_axes_are_counted():
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    whole = NamedSharding(mesh, P())
    with jax.set_mesh(mesh):
        even = program_report(product, *arguments(mesh))
        repeated = program_report(lambda x, w: jax.sharding.reshard(x, whole) @ w, *arguments(mesh))
    assert (even.work.share, repeated.work.share) == (1, 8)
