import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from tests.programs import abstract, line

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


def test_a_constraint_that_does_not_divide_evenly_is_padded_and_gathered():
    mesh = line("data")

    def padded(x):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data"))) * 2

    [constraint] = program_report(padded, abstract(mesh, P(), (17, 16))).constraints
    assert (str(constraint.asked.spec), str(constraint.got.spec)) == ("P('data',)", "P()")
    assert constraint.reason == (
        "XLA pads axis 0 to 24, and gathers the value to use it as a whole: axis 0 of shape (17, 16) is not "
        "divisible by mesh axis 'data' of size 8: 17 % 8 = 1. Pad it to 24, or leave it unsharded."
    )
    assert constraint.origin.function == "padded"
    assert constraint.origin.line == padded.__code__.co_firstlineno + 1


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


def test_an_unconstrained_axis_is_left_to_the_compiler():
    mesh = line()
    sharding = NamedSharding(mesh, P("dp", P.UNCONSTRAINED))
    [constraint] = program_report(
        lambda x: jax.lax.with_sharding_constraint(x, sharding), abstract(mesh, P(), (16, 16))
    ).constraints
    assert constraint.asked.spec.unconstrained == (1,)
    assert constraint.got is None


def test_equal_constraints_of_a_line_are_merged_with_their_count():
    mesh = line()
    sharding = NamedSharding(mesh, P("dp"))

    def program(xs):
        return [jax.lax.with_sharding_constraint(x, sharding) for x in xs]

    [constraint] = program_report(program, [abstract(mesh, P(), (16,)) for _ in range(3)]).constraints
    assert constraint.count == 3


def test_an_unconstrained_axis_does_not_hide_an_uneven_one():
    mesh = line()
    sharding = NamedSharding(mesh, P("dp", P.UNCONSTRAINED))
    [constraint] = program_report(
        lambda x: jax.lax.with_sharding_constraint(x * 2, sharding) + 1, abstract(mesh, P(), (17, 16))
    ).constraints
    assert constraint.got is None
    assert "17 % 8 = 1" in constraint.reason
