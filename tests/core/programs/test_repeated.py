"""Values that every device computes or holds whole."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, program_report, to_json
from jax_array_info_core.compat.arrays import per_shard
from tests.programs import abstract, line
from tests.right_programs import FAMILIES, repetitions_of

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


def grid(x=2, y=4):
    """Return a mesh of two axes."""
    return Mesh(np.array(jax.devices()[: x * y]).reshape(x, y), ("x", "y"))


def repeated(f, *arguments, **options):
    """Return the values that a program repeats, without floors."""
    return program_report(f, *arguments, min_nbytes=0, **options).repeated


def constrained(mesh, f, *spec):
    """Return a function whose result is constrained."""
    return jax.jit(lambda *xs: jax.lax.with_sharding_constraint(f(*xs), NamedSharding(mesh, P(*spec))))


def histogram(ids):
    return jnp.zeros((4096, 8)).at[ids].add(1.0)


def test_a_transform_of_a_gathered_array_is_repeated():
    mesh = line("slab")
    field = abstract(mesh, P(None, "slab"), (32, 64, 16))
    report = program_report(constrained(mesh, jnp.fft.rfftn, None, "slab"), field)
    (one,) = report.repeated
    assert (one.op, one.axes, one.path) == ("fft", ("slab",), "xs/0")
    assert (one.shape, one.before_shape) == ((32, 64, 9), (32, 8, 16))
    assert one.nbytes == 32 * 64 * 9 * 8
    assert one.repeated_nbytes == one.nbytes * 7 // 8
    (finding,) = [each for each in report.findings if each.code == "JAI212"]
    assert finding.nbytes == one.repeated_nbytes
    assert "test_repeated.py" in str(finding)
    assert from_json(to_json(report)).repeated == report.repeated


def test_a_solve_names_the_operand_of_the_most_repeated_bytes_with_its_own_mesh_axes():
    mesh = grid()
    x, y = mesh.axis_names
    triangle = abstract(mesh, P(y), (256, 256))
    right = abstract(mesh, P(x), (256, 64))

    def solution(triangle, right):
        whole = jax.lax.with_sharding_constraint(right, NamedSharding(mesh, P()))
        return jax.scipy.linalg.solve_triangular(triangle, whole, lower=True)

    (one,) = repeated(solution, triangle, right)
    assert (one.axes, one.before_axes, one.path) == ((x, y), (y,), "triangle")
    size = mesh.shape[y]
    assert one.before_shape == (256 // size, 256)
    assert one.repeated_nbytes == 256 * 256 * 4 * (size - 1) // size
    assert one.words == f"gathered over y from float32[{256 // size},256] of triangle"


COMPLEX = "complex64"


def solve(field):
    return jnp.fft.ifftn(jnp.fft.fftn(field) * jnp.arange(1.0, 17.0)).real


def spectrum(cells):
    return jnp.fft.fftn(jnp.zeros((32, 32, 32)).at[tuple(cells.T)].add(1.0))


def four_times(field):
    return jax.lax.fori_loop(0, 4, lambda _, x: jnp.fft.fft2(x), field)


FOUND = {
    "transform over two mesh axes": (jnp.fft.fft2, grid, ("x", "y"), [((64, 64), COMPLEX)], ["fft"]),
    "transform in a loop": (four_times, grid, ("x", "y"), [((64, 64), COMPLEX)], ["fft"]),
    "both transforms of a solver": (solve, line, ("dp",), [((16, 16, 16), "float32")], ["fft"] * 2),
    "next to a replicated argument of its shape": (
        lambda x, by: jnp.fft.ifftn(jnp.fft.fftn(x) * by),
        line,
        ("dp",),
        [((32, 32, 32), COMPLEX), ((32, 32, 32), COMPLEX)],
        ["fft", "fft"],
    ),
    "factorization": (jnp.linalg.inv, line, ("dp",), [((64, 64), "float32")], ["lu", "triangular_solve"]),
    "gather of one axis before parts of another": (
        lambda x: jax.lax.with_sharding_constraint(x * 2, NamedSharding(grid(), P("y"))),
        grid,
        ("x",),
        [((64, 64), "float32")],
        [],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_needs_a_gathered_array_is_repeated_by_all_devices(name):
    """The first argument is sharded as the result is constrained, and others are replicated."""
    f, mesh_of, spec, types, ops = FOUND[name]
    mesh = mesh_of()
    specs = [P(*spec), P()]
    arguments = [abstract(mesh, one, *type_) for one, type_ in zip(specs, types, strict=False)]
    found = repeated(constrained(mesh, f, *spec) if ops else jax.jit(f), *arguments)
    assert sorted({one.op for one in found}) == sorted(set(ops))
    assert sum(one.count for one in found) >= len(ops)
    assert {one.axes for one in found} == ({spec} if ops else set())
    assert all(one.repeated_nbytes == one.nbytes * 7 // 8 for one in found if one.op != "triangular_solve")


def test_a_running_sum_along_a_sharded_axis_holds_its_operand_whole_and_has_its_line():
    mesh = line("tokens")
    mask = abstract(mesh, P(None, "tokens"), (8, 512))
    (one,) = repeated(constrained(mesh, lambda mask: jnp.cumsum(mask, 1), None, "tokens"), mask)
    assert (one.path, one.shape, one.before_shape) == ("xs/0", (8, 512), (8, 64))
    assert "test_repeated.py" in str(one.origin)


@pytest.mark.parametrize("f", [histogram, lambda ids: 2.0 * histogram(ids) + 1.0], ids=["plain", "scaled"])
def test_a_scatter_into_a_whole_array_that_is_then_sharded_is_repeated(f):
    mesh = line("particles")
    ids = abstract(mesh, P("particles"), (8192,), "int32")
    (one,) = repeated(constrained(mesh, f, "particles"), ids)
    assert (one.is_sum, one.shape, one.axes) == (True, (4096, 8), ("particles",))
    assert one.repeated_nbytes == 4096 * 8 * 4 * 7 // 8
    assert "each device scatters into all of it" in one.words


OPERATIONS = {
    "sort": (lambda x: jnp.sort(x, None), "sort"),
    "median": (jnp.median, "sort"),
    "argsort": (lambda x: jnp.argsort(x.ravel()), "sort"),
    "scatter": (lambda x: jnp.zeros(4096).at[x.ravel().astype(int)].set(x.ravel()).sum(), "scatter"),
    "Cholesky": (jnp.linalg.cholesky, "cholesky"),
    "LU": (jax.scipy.linalg.lu_factor, "lu"),
    "QR": (lambda x: jnp.linalg.qr(x)[1], "geqrf"),
    "eigenvalues": (jnp.linalg.eigvalsh, "eigh"),
    "singular values": (lambda x: jnp.linalg.svd(x, compute_uv=False), "svd"),
    "determinant": (lambda x: jnp.linalg.slogdet(x)[1], "lu"),
    "solution": (lambda x: jax.scipy.linalg.solve_triangular(x, x, lower=True), "triangular_solve"),
    "best": (lambda x: jax.lax.top_k(x.ravel(), 16)[0], "top_k"),
}


@pytest.mark.newest
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_that_needs_a_whole_sharded_array_is_repeated(name):
    f, op = OPERATIONS[name]
    mesh = line("rows")
    found = repeated(jax.jit(f), abstract(mesh, P("rows"), (64, 64)))
    (one,) = [each for each in found if each.op == op]
    assert one.axes == one.before_axes == ("rows",)
    assert one.nbytes >= 64 * 64 * 4 > math.prod(one.before_shape) * 4
    assert one.repeated_nbytes == one.nbytes * 7 // 8
    assert "test_repeated.py" in str(one.origin)
    if name == "Cholesky":
        assert one.shape == (64, 64), "the type of its matrix"


def swept(grid):
    """Return a grid after sweeps of a stencil."""
    around = lambda _, g: sum(jnp.roll(g, by, axis) for by in (1, -1) for axis in (0, 1)) / 4  # noqa: E731
    return jax.lax.fori_loop(0, 100, around, grid)


USES = {
    "sweeps": lambda grid, places: swept(grid),
    "sweeps, summed": lambda grid, places: swept(grid).sum(),
    "elementwise": lambda grid, places: jnp.log1p(grid),
    "reduced": lambda grid, places: grid.max(),
    "read at places": lambda grid, places: grid[tuple(places.T)],
    "two of them": lambda grid, places: grid * jnp.zeros_like(grid).at[tuple(places.T[::-1])].add(2.0),
}


@pytest.mark.parametrize("name", USES)
def test_a_sum_of_scatters_that_all_devices_use_whole_is_repeated(name):
    places = abstract(line("particles"), P("particles"), (8192, 2), "int32")
    found = repeated(
        jax.jit(lambda places: USES[name](jnp.zeros((64, 96)).at[tuple(places.T)].add(1.0), places)), places
    )
    assert {(one.is_sum, one.shape, one.axes) for one in found} == {(True, (64, 96), ("particles",))}
    assert sum(one.count for one in found) == (2 if name == "two of them" else 1)


@pytest.mark.newest
@pytest.mark.parametrize("is_same", [True, False])
def test_what_devices_compute_in_loops_of_other_lengths_is_not_the_same(is_same):
    mesh = line("rows")

    def own(turns, x):
        turns = jnp.max(turns * 0) + 3 if is_same else turns[0]
        _, x = jax.lax.while_loop(lambda at: at[0] < turns, lambda at: (at[0] + 1, at[1] * 2), (0, x))
        return jnp.linalg.eigvalsh(x)[:8]

    mapped = per_shard(own, mesh, (P() if is_same else P("rows"), P()), P("rows"))
    arguments = abstract(mesh, P("rows"), (8,), "int32"), abstract(mesh, P("rows"), (64, 64))
    assert [one.op for one in repeated(jax.jit(mapped), *arguments)] == (["eigh"] if is_same else [])


def gathered_by_the_user(w):
    whole = jnp.fft.fft(jax.lax.all_gather(w, "dp", tiled=True)).real
    return jax.lax.dynamic_slice(whole, (jax.lax.axis_index("dp") * 8, 0), (8, 64)) + w @ whole


def scattered_by_the_user(ids):
    return jax.lax.psum_scatter(jnp.zeros(4096).at[ids].add(1.0), "dp", tiled=True)


def requested(f):
    return jax.jit(f, out_shardings=NamedSharding(line(), P()))


def own(f):
    return jax.jit(per_shard(f, line(), P("dp"), P("dp")))


NOTHING = {
    "a sum of scatters that is only returned": (lambda: jax.jit(histogram), (8192,), "int32"),
    "replicated as requested": (lambda: requested(jnp.fft.fftn), (16, 16, 16), COMPLEX),
    "with other axes": (lambda: requested(lambda x: jnp.fft.fft(x, axis=0)), (64, 16), COMPLEX),
    "a gather of the user": (lambda: own(gathered_by_the_user), (64, 64), "float32"),
    "a scattered sum of the user": (lambda: own(scattered_by_the_user), (8192,), "int32"),
}


@pytest.mark.parametrize("name", NOTHING)
def test_what_is_requested_repeats_nothing(name):
    make, *type_ = NOTHING[name]
    assert repeated(make(), abstract(line(), P("dp"), *type_)) == ()


def test_a_transform_of_a_scattered_array_has_the_remedy_of_transforms():
    mesh = line("slab")
    cells = abstract(mesh, P("slab"), (2**20, 3), "int32")
    found = program_report(constrained(mesh, spectrum, "slab"), cells, min_nbytes=0)
    assert "fft" in {one.op for one in found.repeated}
    (finding,) = [each for each in found.findings if each.code == "JAI212"]
    assert "transform the axes that a device has whole" in finding.remedy


@pytest.mark.newest
@pytest.mark.parametrize("name", FAMILIES.values())
def test_a_program_that_divides_its_work_repeats_nothing(name):
    assert repetitions_of(name) == []


def remedy(f, x):
    (finding,) = [each for each in program_report(f, x, min_nbytes=0).findings if each.code == "JAI212"]
    return finding.remedy


NO_REMEDY = {
    "sort": (jnp.sort, (4096,)),
    **{name: (OPERATIONS[name][0], (64, 64)) for name in ("Cholesky", "LU", "QR", "eigenvalues")},
    "transform of real numbers": (jnp.fft.rfftn, (32, 32, 32)),
    "transform to real numbers": (jnp.fft.irfftn, (32, 32, 32)),
    "transform of one axis": (jnp.fft.fft, (4096,)),
}


@pytest.mark.newest
@pytest.mark.parametrize("name", NO_REMEDY)
def test_work_that_no_known_change_divides_has_no_remedy(name):
    f, shape = NO_REMEDY[name]
    assert (
        remedy(f, abstract(line("rows"), P("rows"), shape, COMPLEX if "irfft" in f.__name__ else "float32"))
        == ""
    )


@pytest.mark.newest
@pytest.mark.parametrize("shape", [(64, 64), (64, 8, 64)])
def test_another_axis_or_matrix_can_be_sharded_instead(shape):
    x = abstract(line("rows"), P("rows"), shape, COMPLEX)
    assert "transform the axes that a device has whole" in remedy(jnp.fft.fftn, x)
    matrices = abstract(line("rows"), P(None, "rows"), (4, 64, 64))
    assert "Shard a dimension" in remedy(jnp.linalg.cholesky, matrices)


def told(x):
    return jax.pure_callback(np.asarray, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@pytest.mark.newest
def test_what_a_constraint_replicates_is_no_finding_although_it_is_used_in_parts():
    mesh = line("rows")
    f = constrained(mesh, constrained(mesh, jnp.sin), None, "rows")
    found = program_report(f, abstract(mesh, P("rows"), (64, 64)), min_nbytes=0)
    assert (found.repeated, found.rematerializations) == ((), ())


@pytest.mark.newest
def test_a_callback_repeats_nothing_in_a_check_that_may_never_fail():
    x = abstract(line("rows"), P("rows"), (64, 64))
    assert repeated(jax.jit(lambda x: jax.lax.cond(jnp.isnan(x).any(), told, lambda x: x, x)), x) == ()


@pytest.mark.newest
def test_operations_of_which_xla_counts_ten_times_more_are_told_by_its_count():
    x = abstract(line("x"), P("x"), (65536,))
    report = program_report(jnp.cumsum, x)
    assert report.xla_flops > 10**7, "a sum over a sharded axis is quadratic"
    assert report.is_mostly_uncounted
    for linear in (lambda x: 2 * x + 1, lambda x: x @ x, lambda x: jnp.outer(x, x)):
        assert not program_report(linear, x).is_mostly_uncounted
