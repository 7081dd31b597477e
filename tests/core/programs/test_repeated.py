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
from tests.programs import abstract, cube, line, scanned, step, step_arguments
from tests.right_programs.training import adam

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
    assert (one.op, one.axes, one.path, one.is_used_in_parts) == ("fft", ("slab",), "xs/0", True)
    assert (one.shape, one.before_shape) == ((32, 64, 9), (32, 8, 16))
    assert one.nbytes == 32 * 64 * 9 * 8
    assert one.repeated_nbytes == one.nbytes * 7 // 8
    (finding,) = [each for each in report.findings if each.code == "JAI212"]
    assert finding.nbytes == one.repeated_nbytes
    assert "test_repeated.py" in str(finding)
    assert from_json(to_json(report)).repeated == report.repeated


def test_a_transform_over_two_mesh_axes_is_repeated_by_all_devices():
    mesh = grid()
    (one,) = repeated(
        constrained(mesh, jnp.fft.fft2, "x", "y"), abstract(mesh, P("x", "y"), (64, 64), "complex64")
    )
    assert one.axes == ("x", "y")
    assert one.repeated_nbytes == 64 * 64 * 8 * 7 // 8


def test_a_product_names_the_operand_of_the_most_repeated_bytes_with_its_own_mesh_axes():
    mesh = grid()
    x, y = mesh.axis_names
    hidden = abstract(mesh, P(x), (512, 4096))
    down = abstract(mesh, P(y), (4096, 1024))

    def product(hidden, down):
        whole = jax.lax.with_sharding_constraint(hidden, NamedSharding(mesh, P()))
        return whole @ down

    (one,) = repeated(product, hidden, down)
    assert (one.axes, one.before_axes, one.path) == ((x, y), (y,), "down")
    size = mesh.shape[y]
    assert one.before_shape == (4096 // size, 1024)
    assert one.repeated_nbytes == 4096 * 1024 * 4 * (size - 1) // size
    assert one.words == f"gathered over y from float32[{4096 // size},1024] of down"


def test_a_replicated_argument_of_its_shape_does_not_hide_what_is_repeated():
    mesh = line("slab")
    field, kernel = (abstract(mesh, spec, (32, 32, 32), "complex64") for spec in (P("slab"), P()))
    convolved = constrained(mesh, lambda x, by: jnp.fft.ifftn(jnp.fft.fftn(x) * by), "slab")
    assert [each.op for each in repeated(convolved, field, kernel)] == ["fft", "fft"]


def test_a_running_sum_along_a_sharded_axis_holds_its_operand_whole_and_has_its_line():
    mesh = line("tokens")
    mask = abstract(mesh, P(None, "tokens"), (8, 512))
    (one,) = repeated(constrained(mesh, lambda mask: jnp.cumsum(mask, 1), None, "tokens"), mask)
    assert (one.path, one.shape, one.before_shape) == ("xs/0", (8, 512), (8, 64))
    assert "test_repeated.py" in str(one.origin)


def test_a_transform_in_a_loop_is_repeated():
    mesh = grid()

    def steps(field):
        return jax.lax.fori_loop(0, 4, lambda _, x: jnp.fft.fft2(x), field)

    found = repeated(constrained(mesh, steps, "x", "y"), abstract(mesh, P("x", "y"), (64, 64), "complex64"))
    assert [one.op for one in found] == ["fft"]


def test_both_transforms_of_a_solver_are_repeated():
    mesh = line("slab")

    def solve(field):
        return jnp.fft.ifftn(jnp.fft.fftn(field) * jnp.arange(1.0, 17.0)).real

    found = repeated(constrained(mesh, solve, "slab"), abstract(mesh, P("slab"), (16, 16, 16)))
    assert sum(one.count for one in found) == 2


def test_a_scatter_into_a_whole_array_that_is_then_sharded_is_repeated():
    mesh = line("particles")
    ids = abstract(mesh, P("particles"), (8192,), "int32")
    (one,) = repeated(constrained(mesh, histogram, "particles"), ids)
    assert (one.is_sum, one.shape, one.axes) == (True, (4096, 8), ("particles",))
    assert one.repeated_nbytes == 4096 * 8 * 4 * 7 // 8
    assert "each device scatters into all of it" in one.words


def test_a_scatter_whose_sum_is_scaled_is_repeated():
    mesh = line("particles")
    ids = abstract(mesh, P("particles"), (8192,), "int32")
    (one,) = repeated(constrained(mesh, lambda ids: 2.0 * histogram(ids) + 1.0, "particles"), ids)
    assert one.is_sum


def test_a_gathered_factorization_is_repeated():
    mesh = line("rows")
    matrix = abstract(mesh, P("rows"), (64, 64))
    found = repeated(constrained(mesh, jnp.linalg.inv, "rows"), matrix)
    assert {one.op for one in found} == {"lu", "triangular_solve"}
    assert {one.axes for one in found} == {("rows",)}
    assert any(one.is_used_in_parts for one in found)


def test_products_of_a_gathered_array_are_repeated_with_their_operations():
    mesh = line("rows")
    x = abstract(mesh, P("rows"), (64, 64))

    def power(x):
        whole = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P()))
        return whole @ whole

    found = repeated(constrained(mesh, lambda x: jnp.sin(power(x)).sum()), x)
    assert [one.repeated_flops for one in found] == [2 * 64**3 * 7 // 8]


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
    assert (one.axes, one.before_axes, one.is_used_in_parts) == (("rows",), ("rows",), False)
    assert one.nbytes >= 64 * 64 * 4 > math.prod(one.before_shape) * 4
    assert one.repeated_nbytes == one.nbytes * 7 // 8
    assert "test_repeated.py" in str(one.origin)


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


def test_a_sum_of_scatters_that_is_only_returned_repeats_nothing():
    places = abstract(line("particles"), P("particles"), (8192,), "int32")
    assert repeated(jax.jit(histogram), places) == ()


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


def test_what_is_asked_to_be_replicated_is_not_repeated():
    mesh = line("slab")
    field = abstract(mesh, P("slab"), (16, 16, 16), "complex64")
    whole = NamedSharding(mesh, P())
    assert repeated(jax.jit(jnp.fft.fftn, out_shardings=whole), field) == ()


def test_what_is_asked_to_be_replicated_may_be_computed_with_other_axes():
    mesh = line("rows")
    fields = abstract(mesh, P("rows"), (64, 16), "complex64")
    replicated = NamedSharding(mesh, P())
    assert repeated(jax.jit(lambda x: jnp.fft.fft(x, axis=0), out_shardings=replicated), fields) == ()


def test_a_collective_of_the_user_repeats_nothing():
    mesh = line("data")

    def own(w, x):
        whole = jnp.fft.fft(jax.lax.all_gather(w, "data", tiled=True)).real
        at = jax.lax.axis_index("data") * 8
        return x @ whole, jax.lax.dynamic_slice(whole, (at, 0), (8, 64))

    mapped = per_shard(own, mesh, (P("data"), P("data")), P("data"))
    w = abstract(mesh, P("data"), (64, 64))
    assert repeated(jax.jit(mapped), w, w) == ()


def test_a_scattered_sum_of_the_user_repeats_nothing():
    mesh = line("data")
    ids = abstract(mesh, P("data"), (8192,), "int32")

    def own(ids):
        return jax.lax.psum_scatter(jnp.zeros(4096).at[ids].add(1.0), "data", tiled=True)

    assert repeated(jax.jit(per_shard(own, mesh, P("data"), P("data"))), ids) == ()


def test_a_factorization_has_the_type_of_its_matrix():
    mesh = line("rows")
    found = repeated(constrained(mesh, jnp.linalg.cholesky, "rows"), abstract(mesh, P("rows"), (64, 64)))
    assert {one.shape for one in found} == {(64, 64)}


def test_a_transform_of_a_scattered_array_has_the_remedy_of_transforms():
    mesh = line("slab")
    cells = abstract(mesh, P("slab"), (2**20, 3), "int32")

    def spectrum(cells):
        return jnp.fft.fftn(jnp.zeros((32, 32, 32)).at[tuple(cells.T)].add(1.0))

    found = program_report(constrained(mesh, spectrum, "slab"), cells, min_nbytes=0)
    assert "fft" in {one.op for one in found.repeated}
    (finding,) = [each for each in found.findings if each.code == "JAI212"]
    assert "transform the axes that a device has whole" in finding.remedy


def test_a_gather_along_one_mesh_axis_before_a_part_along_another_is_not_repeated():
    mesh = grid()
    x = abstract(mesh, P("x"), (64, 64))
    assert repeated(constrained(mesh, lambda x: x * 2, "y"), x) == ()


def language_loss(params, ids):
    x = params["embedding"][ids]

    def block(x, w):
        x = x + jax.nn.relu(x @ w["wi"]) @ w["wo"]
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6), None

    x, _ = jax.lax.scan(jax.checkpoint(block), x, {name: params[name] for name in ("wi", "wo")})
    logits = x @ params["head"]
    return -jnp.mean(jax.nn.log_softmax(logits)[..., 0])


SHAPES = {"embedding": (512, 64), "wi": (3, 64, 256), "wo": (3, 256, 64), "head": (64, 512)}
NONE = dict.fromkeys(SHAPES, P())
FSDP = {"embedding": P("x"), "wi": P(None, "x"), "wo": P(None, "x"), "head": P("x")}
TENSOR = {
    "embedding": P("y"),
    "wi": P(None, None, "y"),
    "wo": P(None, "y"),
    "head": P(None, "y"),
}
SCHEMES = {
    "data parallelism": ((8, 1), NONE, NONE, P("x")),
    "FSDP": ((8, 1), FSDP, FSDP, P("x")),
    "ZeRO-1": ((8, 1), NONE, FSDP, P("x")),
    "tensor parallelism": ((2, 4), TENSOR, TENSOR, P("x")),
    "tensor parallelism, ZeRO-1 over the other axis": ((2, 4), TENSOR, FSDP, P("x")),
    "data parallelism over two axes": ((2, 4), NONE, NONE, P(("x", "y"))),
    "sequences in parts": ((2, 4), NONE, NONE, P("x", "y")),
}


@pytest.mark.oldest_and_newest
@pytest.mark.parametrize("is_requested", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_step_of_an_ordinary_scheme_repeats_nothing(scheme, is_requested):
    sizes, specs, moments, batch = SCHEMES[scheme]
    mesh = grid(*sizes)
    params, first = (
        {name: abstract(mesh, of[name], shape) for name, shape in SHAPES.items()} for of in (specs, moments)
    )
    ids = abstract(mesh, batch, (16, 32), "int32")
    out = jax.tree.map(lambda one: one.sharding, (params, first, first)) if is_requested else None
    train = jax.jit(lambda *state: adam(*state, of=language_loss), out_shardings=out)
    assert repeated(train, params, first, first, ids) == ()


def test_several_steps_in_a_loop_repeat_nothing():
    mesh = grid(8, 1)
    params, first = (
        {name: abstract(mesh, of[name], shape) for name, shape in SHAPES.items()} for of in (NONE, FSDP)
    )
    ids = abstract(mesh, P(None, "x"), (4, 16, 32), "int32")
    out = jax.tree.map(lambda one: one.sharding, (params, first, first))

    def train(*state):
        *state, ids = state
        turn = lambda state, ids: (adam(*state, ids, of=language_loss), None)  # noqa: E731
        return jax.lax.scan(turn, tuple(state), ids)[0]

    assert repeated(jax.jit(train, out_shardings=out), params, first, first, ids) == ()


@pytest.mark.parametrize("checkpoint", [True, False])
def test_the_scanned_step_of_other_tests_repeats_nothing(checkpoint):
    mesh = cube()
    f, arguments = scanned(mesh, checkpoint=checkpoint)
    assert repeated(f, *arguments) == ()
    assert repeated(step, *step_arguments(mesh)) == ()
