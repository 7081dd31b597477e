import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.arrays.origins.origins import UserLines
from jax_array_info_core.arrays.stage_leaves import shard_shape
from jax_array_info_core.compat.programs import program_record
from jax_array_info_core.programs.constraints import _shapes, constraints_of
from jax_array_info_core.programs.program_report import module_of
from tests.programs import abstract, line

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


@pytest.mark.parametrize("rows", [17, 30])
@pytest.mark.parametrize("is_returned", [False, True])
def test_an_uneven_constraint_is_padded_inside_and_gathered_only_where_it_is_returned(rows, is_returned):
    mesh = line("x")

    def program(a):
        padded = jax.lax.with_sharding_constraint(a * 2, NamedSharding(mesh, P("x")))
        return padded if is_returned else padded.sum()

    # Without out_shardings, JAX 0.12 refuses 30 rows: XLA leaves them sharded over 2 of the 8 devices.
    jitted = jax.jit(program, out_shardings=NamedSharding(mesh, P()))
    report = program_report(jitted, abstract(mesh, P(), (rows, 64)))
    [constraint] = report.constraints
    assert str(constraint.got.spec) == str(constraint.asked.spec) == "P('x',)"
    padded = {17: 24, 30: 32}[rows]
    assert constraint.reason.startswith(f"inside the program, XLA pads axis 0 to {padded}: ")
    assert f"{rows} % 8 = {rows % 8}" in constraint.reason
    assert constraint.origin.function == "program"
    assert constraint.origin.line == program.__code__.co_firstlineno + 1
    assert str(report.outputs[0].got.spec) == "P()"
    assert {one.kind for one in report.collectives} == {"all-gather" if is_returned else "all-reduce"}


def test_a_constraint_that_the_compiled_program_does_not_show_is_unknown():
    mesh = line("x")
    sharding = NamedSharding(mesh, P("x"))

    def program(a, constrain):
        return constrain(jax.numpy.sin(a)).sum()

    def applied(value):
        return jax.lax.with_sharding_constraint(value, sharding)

    a = abstract(mesh, P(), (16, 64))
    constrained, free = (jax.jit(program, static_argnums=1).trace(a, one) for one in (applied, lambda v: v))
    without = module_of(program_record(free.lower().compile()), None)
    for module in (without, None):
        [constraint] = constraints_of(constrained.jaxpr, module, UserLines())
        assert constraint.got is None
        assert constraint.reason == (
            "the compiled program has no array of the shape of its shard, (2, 64), in this line or next to it"
        )


def test_constraints_are_found_next_to_products_that_merge_axes():
    mesh = line("x")
    rows, heads = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, None, "x"))

    def layer(a, w):
        a = jax.lax.with_sharding_constraint(jnp.einsum("btd,dhk->bthk", a, w).astype("bfloat16"), heads)
        scores = jnp.einsum("bthk,bshk->hbts", a, a)
        return jax.lax.with_sharding_constraint(scores, rows).sum(), None

    def program(a, w):
        return jax.lax.scan(lambda carry, w: (carry + jax.checkpoint(layer)(a, w)[0], None), 0.0, w)[0]

    arguments = abstract(mesh, P(), (4, 6, 32)), abstract(mesh, P(), (3, 32, 16, 8))
    for function in (program, jax.grad(program)):
        found = program_report(function, *arguments).constraints
        assert len(found) == 2
        assert all(one.got == one.asked for one in found)


def test_constraints_are_found_in_scans_checkpoints_conditionals_and_jitted_functions():
    mesh = line()
    rows, columns = NamedSharding(mesh, P("dp")), NamedSharding(mesh, P(None, "dp"))

    def body(carry, _):
        inner = jax.checkpoint(lambda x: jax.lax.with_sharding_constraint(jnp.sin(x), columns))
        return jax.jit(inner)(carry), None

    def program(x):
        x = jax.lax.scan(body, x, None, length=3)[0]
        return jax.lax.cond(x[0, 0] > 0, lambda x: jax.lax.with_sharding_constraint(x, rows), lambda x: x, x)

    found = program_report(program, abstract(mesh, P(), (16, 16))).constraints
    assert {(str(one.asked.spec), one.reason) for one in found} == {
        ("P(None, 'dp')", None),
        ("P('dp',)", None),
    }
    assert all(one.got == one.asked for one in found)


@pytest.mark.parametrize("rows", [16, 17])
def test_an_unconstrained_axis_is_left_to_the_compiler_and_does_not_hide_an_uneven_one(rows):
    mesh = line()
    sharding = NamedSharding(mesh, P("dp", P.UNCONSTRAINED))
    [constraint] = program_report(
        lambda x: jax.lax.with_sharding_constraint(x * 2, sharding) + 1, abstract(mesh, P(), (rows, 16))
    ).constraints
    assert constraint.asked.spec.unconstrained == (1,)
    assert constraint.got is None
    assert ("17 % 8 = 1" in (constraint.reason or "")) == (rows == 17)


def test_equal_constraints_of_a_line_are_merged_with_their_count():
    mesh = line()
    sharding = NamedSharding(mesh, P("dp"))

    def program(xs):
        return [jax.lax.with_sharding_constraint(x, sharding) for x in xs]

    [constraint] = program_report(program, [abstract(mesh, P(), (16,)) for _ in range(3)]).constraints
    assert constraint.count == 3


def constrained_in_scan(value):
    def body(carry, _):
        return jax.lax.with_sharding_constraint(carry, P(None, "j")) * 2, None

    return jax.lax.scan(body, value, None, length=3)[0]


@pytest.mark.newest  # earlier versions refuse or crash on some of them
@pytest.mark.parametrize(
    ("axis_type", "body", "asked"),
    [
        ("Auto", lambda a: jax.lax.with_sharding_constraint(a, P("j")) * 2, "P('j',)"),
        ("Auto", lambda a: jax.lax.with_sharding_constraint(a, P()) * 2, "P()"),
        ("Auto", constrained_in_scan, "P(None, 'j')"),
        ("Auto", jax.grad(lambda a: jnp.sum(jax.lax.with_sharding_constraint(a**2, P("j")))), "P('j',)"),
        ("Explicit", lambda a: jax.sharding.reshard(a, P(None, "j")) * 2, "P(None, 'j')"),
    ],
)
def test_a_constraint_on_a_mesh_with_manual_axes_is_a_constraint(axis_type, body, asked):
    types = (getattr(jax.sharding.AxisType, axis_type),) * 2
    mesh = jax.make_mesh((4, 2), ("i", "j"), axis_types=types)
    mapped = jax.shard_map(
        body, mesh=mesh, in_specs=P("i"), out_specs=P("i"), axis_names={"i"}, check_vma=False
    )
    with jax.set_mesh(mesh):
        report = program_report(jax.jit(mapped), abstract(mesh, P("i"), (64, 16)))
    assert asked in [str(one.asked.spec) for one in report.constraints]
    assert {one.shape for one in report.constraints} == {(16, 16)}, "of a local value"


def test_shards_are_as_large_as_a_spec_makes_them_and_unknown_where_jax_has_none():
    mesh = jax.make_mesh((4, 2), ("i", "j"))
    assert shard_shape((3, 7), NamedSharding(mesh, P("i", "j"))) == (1, 4)

    class Manual:
        def shard_shape(self, shape):
            raise NotImplementedError("Unhandled OpSharding type")

    assert shard_shape((16, 16), Manual()) is None


def test_the_shapes_of_a_place_do_not_depend_on_the_other_places():
    mesh = line("x")

    def layer(x, w):
        return jnp.tanh(x @ jax.lax.with_sharding_constraint(w, NamedSharding(mesh, P()))), None

    def program(weights, x):
        return jax.lax.scan(layer, x, weights)[0]

    given = abstract(mesh, P(None, "x"), (6, 512, 512)), abstract(mesh, P("x"), (64, 512))
    lowered = jax.jit(program).lower(*given)
    module = module_of(program_record(lowered.compile()), lowered)
    instructions = [one for each in module.computations.values() for one in each.instructions]
    places = {(frame.file, frame.line) for one in instructions for frame in one.frames[:1]}
    places |= {one.op_name.rpartition("/")[2] for one in instructions if one.op_name}
    each = {place: found for one in places for place, found in _shapes(module, {one}).items()}
    assert len(each) > 2
    assert _shapes(module, places) == each
