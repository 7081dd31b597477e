"""The share of work by line, pass and mesh axis, in programs of one kind of mistake each."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.arrays.origins.origins import UserLines
from jax_array_info_core.compat.arrays import per_shard
from jax_array_info_core.facts.reports.work import repeated_work
from jax_array_info_core.programs.work import Causes, work_of
from jax_array_info_core.reports import Origin, WorkLine, WorkShare
from jax_array_info_core.xla.hlo.module import read_module
from tests.hlo_assembler import assembled
from tests.programs import abstract, line, needs_lines

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]

OF_GSPMD = "GSPMD keeps no axes of a shard_map"


def grid():
    """Return a mesh of two axes of other sizes."""
    return Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "tensor"))


def kept(mesh, x, *spec):
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def share_of(f, *arguments):
    return program_report(f, *arguments, explain=False).work


def place(f, text):
    """Return the line of a function that contains a text."""
    lines, first = inspect.getsourcelines(f)
    return first + next(number for number, code in enumerate(lines) if text in code)


@needs_lines
def test_a_line_has_its_share_its_mesh_axis_and_the_operations_that_are_repeated():
    mesh = grid()

    def f(x, w):
        whole = kept(mesh, x, None, "tensor")
        lost = whole @ w
        return x @ w, jnp.tanh(lost) + 1

    work = share_of(f, abstract(mesh, P("data"), (1024, 256)), abstract(mesh, P(None, "tensor"), (256, 512)))
    lost = next(row for row in work.lines if row.origin.line == place(f, "whole @ w"))
    even = next(row for row in work.lines if row.origin.line == place(f, "return x @ w"))
    once = 2 * 1024 * 256 * 512
    assert (lost.share, lost.mesh_axes, lost.flops) == (4, ("data",), once // 2)
    assert lost.repeated_flops == work.repeated_flops == once // 2 - once // 8
    assert (even.share, even.repeated_flops, even.mesh_axes) == (1, 0, ())
    assert work.share == pytest.approx(2.5)
    assert (work.flops, work.whole_flops) == (once // 2 + once // 8, 2 * once)


@needs_lines
def test_the_passes_that_repeat_work_are_named_where_both_programs_have_them():
    mesh = grid()

    def loss(w, x):
        logits = kept(mesh, x @ w, "data")
        return jnp.sum(logits**2)

    arguments = abstract(mesh, P(None, "tensor"), (256, 1024)), abstract(mesh, P("data"), (512, 256))
    gradient = lambda w, x: kept(mesh, jax.grad(loss)(w, x), None, "tensor")  # noqa: E731
    (row,) = share_of(gradient, *arguments).lines
    assert row.repeated_flops > 0
    if row.phases:
        assert (row.phases, row.share, row.mesh_axes) == (("forward",), 2, ("tensor",))


@needs_lines
def test_work_in_a_scan_counts_as_often_as_it_turns():
    mesh = line("i")

    def f(x, w):
        y = x @ w
        return lax.scan(lambda c, _: (jnp.tanh(c @ w), None), w, None, length=20)[0], y

    work = share_of(f, abstract(mesh, P("i"), (1024, 128)), abstract(mesh, P(), (128, 128)))
    scanned = next(row for row in work.lines if row.share == 8)
    assert scanned.flops == 20 * 2 * 128**3
    assert not work.is_of_one_turn


def test_loops_of_unknown_length_count_one_turn():
    mesh = line("i")

    def f(x, w):
        return lax.while_loop(lambda c: jnp.max(c) > 1e-3, lambda c: jnp.tanh(c @ w) / 2, x)

    arguments = abstract(mesh, P(), (2048, 512)), abstract(mesh, P(), (512, 512))
    report = program_report(f, *arguments, explain=False)
    assert (report.work.share, report.work.is_of_one_turn) == (8, True)
    (finding,) = [each for each in report.findings if each.code == "JAI213"]
    assert "with one turn of loops of unknown length" in finding.problem


@needs_lines
def test_a_decomposition_and_a_product_of_one_line_are_told_apart():
    mesh = line("i")

    def f(x):
        return jnp.linalg.cholesky(x @ x.T + 300 * jnp.eye(512))

    work = share_of(f, abstract(mesh, P("i"), (512, 1024)))
    (row,) = [row for row in work.lines if row.repeated_flops]
    assert (row.op, row.share, row.mesh_axes) == ("cholesky", 8, ("i",))
    assert row.repeated_flops == 512**3 // 3 - 512**3 // 3 // 8


@needs_lines
def test_a_value_that_is_held_whole_is_not_beside_the_work_of_its_line():
    mesh = line("i")
    report = program_report(jnp.linalg.cholesky, abstract(mesh, P("i"), (512, 512)), explain=False)
    assert [row.op for row in report.repeated] == ["cholesky"]
    assert [each.code for each in report.findings if each.code in ("JAI212", "JAI213")] == ["JAI213"]


RING = [(source, (source + 1) % 8) for source in range(8)]


def ring(x, w):
    def turn(_, state):
        total, w = state
        return total + x @ w, lax.ppermute(w, "i", RING)

    return lax.fori_loop(0, 8, turn, (jnp.zeros((x.shape[0], w.shape[1])), w))[0]


def sum_and_product(x, w):
    total = lax.psum(x @ w, "i")
    return total @ total.T


IN_SHARD_MAPS = {
    "ring": (ring, (P("i"), P(None, "i")), P("i"), 1),
    "split": (lambda x, w: x @ w, (P("i"), P()), P("i"), 1),
    "gathered": (lambda x, w: lax.all_gather(x, "i", tiled=True) @ w, (P("i"), P()), P(), 8),
    "whole": (lambda x, w: x @ w, (P(), P()), P(), 8),
    "summed": (lambda x, w: lax.psum(x @ w, "i") @ w.T, (P(None, "i"), P("i")), P(None, "i"), 1),
    "summed, then whole": (sum_and_product, (P(None, "i"), P("i")), P(), None),
    "own numbers": (lambda x, w: (x * (1 + lax.axis_index("i"))) @ w, (P(), P()), P("i"), 1),
    "exchanged": (lambda x, w: lax.all_to_all(x, "i", 1, 0, tiled=True) @ w, (P("i"), P("i")), P("i"), 1),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=needs_lines if IN_SHARD_MAPS[name][3] is None else ())
        for name in IN_SHARD_MAPS
    ],
)
def test_the_body_of_a_shard_map_counts_by_the_axes_over_which_its_values_vary(name):
    body, specs, out, expected = IN_SHARD_MAPS[name]
    mesh = line("i")
    arguments = [abstract(mesh, spec, (256, 256)) for spec in specs]
    work = share_of(per_shard(body, mesh, specs, out), *arguments)
    if work.reason == OF_GSPMD:
        pytest.skip(
            "GSPMD, which partitions in this version of JAX, lowers a shard_map as work of one device"
        )
    if expected is None:
        assert {row.share for row in work.lines} == {1, 8}
    else:
        assert work.share == pytest.approx(expected, abs=0.005)


UNKNOWN = {
    "there is one device": (lambda: share_of(jnp.dot, *[jax.ShapeDtypeStruct((8, 8), "float32")] * 2)),
    "a Compiled alone has no lowered program": lambda: share_of(
        jax.jit(jnp.dot).lower(*[abstract(line(), P("dp"), (64, 64))] * 2).compile()
    ),
    "the program has no heavy work": lambda: share_of(jnp.sin, abstract(line(), P("dp"), (64, 64))),
}


@pytest.mark.parametrize("reason", UNKNOWN)
def test_a_share_that_is_not_known_has_its_reason(reason):
    work = UNKNOWN[reason]()
    assert (work.share, work.reason, work.lines) == (None, reason, ())


def dot(rows, name="d", line=1, operand="a"):
    """Return a product of a line, with 2 * rows * 64 * 64 operations."""
    about = f'metadata={{op_name="jit(f)/dot_general" source_file="/home/u/f.py" source_line={line}}}'
    dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    return f"  %{name} = f32[{rows},64] dot(%{operand}, %b), {dims}, {about if line else 'metadata={}'}"


def compared(rows, *more, whole=()):
    """Return the share of work of two devices, of a product of 64 rows of which a device computes some."""
    text = "HloModule f\n\nENTRY %main {{\n  %a = f32[{},64] parameter(0)\n  %b = f32[64,64] parameter(1)\n{}\n}}\n"
    ours = text.format(rows, "\n".join([*more, dot(rows)]))
    lowered = text.format(64, "\n".join([*(whole or more), dot(64)]))
    compiled = read_module(assembled(ours))
    return work_of(
        compiled, lambda: (assembled(lowered), None), 2, {"x": 2}, UserLines(), Causes(compiled, (), ())
    )


KERNEL = '  %k = f32[64,64] custom-call(%b), custom_call_target="tpu_custom_call"'
TRANSFORM = (
    '  %t = c64[64,64] fft(%c), fft_type=FFT, fft_length={64}, metadata={op_name="jit(f)/fft" '
    'source_file="/home/u/f.py" source_line=2}'
)
COMPLEX = "  %c = c64[64,64] parameter(2)"


@pytest.mark.newest
def test_the_share_is_of_the_devices_times_the_work_of_one():
    assert [compared(rows).share for rows in (32, 48, 64)] == [1, 1.5, 2]
    assert compared(64).lines[0].mesh_axes == ("x",)
    assert compared(16).reason == "XLA computes less than the lowered program has"


@pytest.mark.newest
def test_kernels_without_a_count_make_the_share_unknown():
    assert compared(32, KERNEL).reason == "the program has kernels whose work is not counted"


@pytest.mark.newest
def test_lines_that_xla_computes_in_another_way_are_left_out():
    """TPU computes transforms as products."""
    as_products = dot(64, "e", line=2, operand="b")
    work = compared(32, COMPLEX, as_products, whole=(COMPLEX, TRANSFORM))
    assert (work.share, len(work.lines)) == (1, 1)
    without_line = dot(64, "e", line=0, operand="b")
    work = compared(32, COMPLEX, without_line, whole=(COMPLEX, TRANSFORM))
    assert (work.share, work.reason) == (None, "XLA computes fft in another way")


@pytest.mark.newest
def test_a_line_is_not_compared_where_xla_gives_its_products_other_lines():
    work = compared(32, dot(32, "e", line=2), whole=(dot(64, "e", line=1), dot(1, "g", line=2)))
    assert work.share == pytest.approx(1, abs=0.02)
    assert [row.share for row in work.lines] == [None, None]


def shared(share, flops=10**9, of_line=4.0):
    """Return a share of work, all of it of a line."""
    repeated = round(flops * (1 - 1 / share))
    row = WorkLine(op="dot_general", flops=flops, repeated_flops=repeated, share=of_line)
    return WorkShare(share=share, flops=flops, whole_flops=flops, repeated_flops=repeated, lines=(row,))


@pytest.mark.newest
@pytest.mark.parametrize(
    ("work", "is_told"),
    [
        (shared(1.04), False),
        (shared(1.1), True),
        (shared(1.1, of_line=1.4), False),
        (shared(1.3, of_line=1.3), True),
        (shared(8.0, flops=11 * 10**6), False),
        (shared(8.0, flops=12 * 10**6), True),
        (WorkShare(reason="there is one device"), False),
        (None, False),
    ],
)
def test_work_is_a_finding_from_its_bounds_on(work, is_told):
    assert bool([*repeated_work(work, (), ())]) == is_told


@pytest.mark.newest
def test_the_finding_has_the_line_the_passes_the_operations_and_the_mesh_axis():
    origin = Origin(file="/home/u/m1.py", line=36, function="block")
    row = WorkLine(
        origin=origin,
        op="dot_general",
        phases=("forward", "backward"),
        flops=8_600_000_000,
        repeated_flops=6_442_450_944,
        share=4.0,
        mesh_axes=("fsdp",),
    )
    work = WorkShare(share=1.09, flops=77_309_411_328, repeated_flops=6_442_450_944, lines=(row,))
    (finding,) = repeated_work(work, (), ())
    assert finding.problem == (
        "m1.py:36 block (forward and backward): each device does 4.0 times its share, 6.4 of its 77.3 GFLOP are"
        " repeated over fsdp."
    )
    assert (finding.flops, finding.mesh_axes) == (6_442_450_944, ("fsdp",))


compiles = pytest.mark.skipif(
    jax.__version_info__ < (0, 12), reason="before JAX 0.12, compiling a mesh of such names ends the process"
)


@pytest.mark.parametrize("name", [pytest.param("gr\N{LATIN SMALL LETTER SHARP S}", marks=compiles), 'a"b'])
def test_a_mesh_axis_whose_name_would_end_the_process_has_no_share(name):
    mesh = line(name)
    work = share_of(lambda x, w: x @ w, abstract(mesh, P(name), (64, 64)), abstract(mesh, P(), (64, 64)))
    assert work.share in (None, 1)
