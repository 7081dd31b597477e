"""Lines, callers and named scopes of the instructions, the collectives and the rows of compiled programs."""

import os

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import config, from_json, program_report, to_json
from jax_array_info_core.compat.arrays import per_shard
from jax_array_info_core.compat.programs import program_record
from jax_array_info_core.programs.program_report import module_of
from tests.core.programs.collectives_of_text import FSDP, of_module
from tests.programs import abstract, cube

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


@pytest.fixture(scope="module")
def mesh():
    return cube()


def array(mesh, shape, *spec):
    return abstract(mesh, P(*spec), shape)


def module(function, *arguments):
    """Return a compiled program."""
    lowered = jax.jit(function).lower(*arguments)
    return module_of(program_record(lowered.compile()), lowered)


def lines_of(module, *opcodes):
    """Return the file and line of each instruction of some operations; None without one."""
    instructions = [one for each in module.computations.values() for one in each.instructions]
    return {one.frames[0][:2] if one.frames else None for one in instructions if one.opcode in opcodes}


def block(w, x):
    return jnp.tanh(x @ w) + x


def test_instructions_have_their_lines(mesh):
    """On JAX 0.8, the table of stack frames is in another order than the instructions tell."""

    def loss(w, x):
        y, _ = lax.scan(lambda x, w: (block(w, x), None), x, w)
        return jnp.mean(y**2)

    found = module(jax.grad(loss), array(mesh, (4, 64, 64), None, "tensor"), array(mesh, (8, 64), "data"))
    assert found.unknown_types == ()
    assert lines_of(found, "dot", "tanh") - {None} == {(__file__, block.__code__.co_firstlineno + 1)}


def test_a_constant_that_xla_folds_does_not_hide_the_lines(mesh):
    """The gradient of the sum is a constant, whose line has no other operation."""

    def square(v):
        return ((v @ v) ** 2).sum()

    found = module(jax.grad(square), array(mesh, (8, 8), "data"))
    assert lines_of(found, "dot") == {(__file__, square.__code__.co_firstlineno + 1)}


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
        (row,) = of_module(module(mapped, array(mesh, (64, 128), *spec)), FSDP)
        assert (row.kind, row.axes, row.total_nbytes) == (kind, axes, sent)
        assert (row.origin.line, row.origin.is_near) == (function.__code__.co_firstlineno + 1, False)


def test_a_gradient_tells_its_passes(mesh):
    """Those of the gathers are told even where they have only the name of an argument."""

    def loss(params, x):
        return jnp.mean((jax.nn.gelu(x @ params["wi"]) @ params["wo"]) ** 2)

    def scanned(params, x):
        return jnp.mean(lax.scan(lambda c, w: (jnp.tanh(c @ w["wi"]) @ w["wo"], None), x, params)[0] ** 2)

    shapes = {"wi": (128, 512), "wo": (512, 128)}
    specs = {"wi": ("fsdp", "tensor"), "wo": ("tensor", "fsdp")}
    x = array(mesh, (32, 16, 128), ("data", "fsdp"))
    layer = {name: array(mesh, shapes[name], *specs[name]) for name in shapes}
    stack = {name: array(mesh, (4, *shapes[name]), None, *specs[name]) for name in shapes}
    for function, params, times in [(loss, layer, 1), (scanned, stack, 4)]:
        found = of_module(module(jax.grad(function), params, x), FSDP)
        gathers = [one for one in found if one.kind == "all-gather"]
        assert {(one.path, one.axes, one.times) for one in gathers} == {
            ("params/wi", ("fsdp",), times),
            ("params/wo", ("fsdp",), times),
        }
        phases = {one.phase for one in gathers}
        # Outside of a loop, the names of operations have no transformations up to JAX 0.6.
        assert phases == {"forward", "backward"} or (times == 1 and phases == {None})
        assert {one.origin.line for one in gathers} == {function.__code__.co_firstlineno + 1}


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


LAYERS = 3


def project(x, w):
    return jnp.tanh(x @ w)


def model(x, w):
    for layer in range(LAYERS):
        with jax.named_scope(f"layers_{layer}"):
            x = project(x, w)
    with jax.named_scope("head"):
        return project(x, w)


def model_loss(w, x):
    return jnp.sum(model(x, w) ** 2)


@pytest.fixture(scope="module")
def report():
    w = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return program_report(jax.grad(model_loss), w, w)


def rows(report):
    """Return the temporaries of the line of ``project``."""
    line = project.__code__.co_firstlineno + 1
    found = [one for one in report.memory.temporaries if one.origin and one.origin.line == line]
    assert found
    return found


def test_rows_of_unscanned_layers_have_their_named_scopes(report):
    scopes = {scope for one in rows(report) for scope in one.scopes}
    assert scopes <= {"head", *(f"layers_{layer}" for layer in range(LAYERS))}
    assert any(len(one.scopes) > 1 for one in rows(report))


def test_two_call_sites_of_one_function_are_two_rows(report):
    chains = {one.origin.callers for one in rows(report)}
    first = model.__code__.co_firstlineno
    assert {callers[0].line - first for callers in chains} == {3, 5}
    for callers in chains:
        assert [one.function for one in callers[:2]] == ["model", "model_loss"]
    assert from_json(to_json(report)) == report


def test_lines_have_their_text_and_files_that_cannot_be_read_none(report, tmp_path):
    again = from_json(to_json(report))
    assert {one.origin.code for one in rows(again)} == {"    return jnp.tanh(x @ w)"}
    path = tmp_path / "pipe.py"
    os.mkfifo(path)
    for name in (str(path), "<string>", str(tmp_path / "gone.py")):
        names = {"__name__": "made"}
        exec(compile("def double(x):\n    return (x @ x) @ x", name, "exec"), names)
        found = program_report(names["double"], jax.ShapeDtypeStruct((64, 64), jnp.float32))
        assert {one.origin.code for one in found.memory.temporaries if one.origin} == {""}


def test_a_program_of_a_package_alone_has_its_nearest_line(tmp_path, monkeypatch):
    """Its own lines are shown where no line of the user calls it, and on request where one does."""
    package = tmp_path / "site-packages" / "layers_of_a_package.py"
    package.parent.mkdir()
    package.write_text("import jax.numpy as jnp\ndef tower(x):\n    return jnp.tanh(x @ x) @ x\n")
    monkeypatch.syspath_prepend(package.parent)
    from layers_of_a_package import tower

    x = jax.ShapeDtypeStruct((64, 64), jnp.float32)

    def lines(function):
        temporaries = program_report(function, x).memory.temporaries
        return {(one.origin.file, len(one.origin.skipped)) for one in temporaries if one.origin}

    assert {file for file, _ in lines(tower)} <= {str(package), __file__}
    assert lines(lambda x: tower(x)) == {(__file__, 0)}
    monkeypatch.setattr(config, "show_frames", 1)
    assert lines(lambda x: tower(x)) == {(__file__, 1)}
    monkeypatch.setattr(config, "user_packages", ("layers_of_a_package",))
    assert lines(lambda x: tower(x)) == {(str(package), 0)}
