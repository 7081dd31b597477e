"""A collective never has the reason of another one: cases in which a neighbor was named, and constraints in loops."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report, propagation_report
from tests.programs import abstract, cube, loss
from tests.scanned import PROGRAMS, explained
from tests.scanned import struct as on_line

pytestmark = [
    pytest.mark.once_per_version,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on"),
]


def grid():
    return Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))


def struct(shape, *spec, dtype="float32"):
    return abstract(grid(), P(*spec), shape, dtype)


def kept(x, *spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(grid(), P(*spec)))


def reasons(function, *arguments, kind=None):
    """Return the operations and kinds of the reasons of each collective."""
    report = program_report(function, *arguments)
    assert report.collectives
    return [
        {(each.op, each.kind) for each in one.because}
        for one in report.collectives
        if kind is None or one.kind == kind
    ]


def constrained_for_one(x):
    return kept(x), jnp.sort(x, 1)


def requested_for_one(x):
    y = jnp.tanh(x)
    return y, jnp.sort(y, 0)


@pytest.mark.parametrize("function", [constrained_for_one, requested_for_one])
def test_a_constraint_is_no_reason_for_the_other_users_of_its_value(function):
    if function is requested_for_one:
        function = jax.jit(function, out_shardings=(NamedSharding(grid(), P()), None))
    found = reasons(function, struct((64, 64), "data", "model"), kind="all-to-all")
    assert found
    assert not any(kind == "constraint" for each in found for _, kind in each)


def test_a_constraint_on_an_operand_is_no_reason_for_its_product():
    def both(x, y):
        return kept(x, "model", None), y @ x

    found = reasons(both, struct((32, 64), "data", None), struct((64, 32), "data", None))
    named = [each for each in found if each]
    assert {("dot_general", "conflict")} in named
    assert all(len(each) == 1 for each in named)


def reshaped(x, w):
    y = x.reshape(32, 64)
    return y @ w


def flattened(x, w):
    return x.reshape(x.shape[0], -1) @ w


def transposed(x):
    y = x.reshape((32, 64))
    return x @ jnp.sort(y.T, 1).T


def constrained_after_a_sort(x):
    y = jnp.sort(x, 1)
    return kept(y, None, "data"), y.reshape(32, 128)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (reshaped, (((64, 32), None, "model"), ((64, 64), "model"))),
        (flattened, (((32, 3, 64), "data", None, "model"), ((192, 64), "model", None))),
        (transposed, (((64, 32), None, "model"),)),
        (constrained_after_a_sort, (((64, 64), "data", None),)),
    ],
)
def test_what_a_reshape_gathers_is_neither_for_the_operation_behind_it_nor_for_a_constraint(
    function, arguments
):
    found = reasons(function, *(struct(*one) for one in arguments), kind="all-gather")
    assert found or function is transposed  # where XLA of JAX 0.10 exchanges instead
    assert not any(found)


def test_of_several_sums_of_a_line_none_has_the_letters_of_another():
    def norm(leaves):
        return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in leaves))

    report = program_report(norm, [struct((64, 128), None, "model"), struct((128, 64), "model", "data")])
    assert not any(each.operands for one in report.collectives for each in one.because)


def test_a_sum_over_one_axis_names_no_letter_of_another():
    def product(g, h):
        return jnp.einsum("bti,btj->ij", g, h)

    arguments = struct((8, 16, 64), "data", "model"), struct((8, 16, 128), "data", None, "model")
    [reduced] = [one for one in program_report(product, *arguments).collectives if one.kind == "all-reduce"]
    [because] = reduced.because
    assert (because.mesh_axes, [each.letter for each in because.operands]) == (("data",), ["b", "b"])


def test_a_gradient_is_not_reduced_for_a_clash_of_another_product_of_its_line():
    p = {
        "wi": abstract(cube(), P("fsdp", "tensor"), (64, 256)),
        "wo": abstract(cube(), P("tensor", "fsdp"), (256, 64)),
    }
    gradient = jax.jit(jax.grad(loss), out_shardings=jax.tree.map(lambda one: one.sharding, p))
    report = program_report(gradient, p, abstract(cube(), P(("data", "fsdp")), (8, 16, 64)))
    reductions = [one for one in report.collectives if one.kind == "all-reduce" and one.phase == "backward"]
    assert reductions
    assert {each.kind for one in reductions for each in one.because} == {"sum"}


def test_a_program_that_prints_has_reasons():
    def printing(x, w):
        jax.debug.print("step")
        return x @ w

    found = reasons(printing, struct((32, 64), "data"), struct((64, 64), "data", "model"))
    assert {("dot_general", "conflict")} in found


def test_a_lookup_is_sharded_as_in_the_compiled_program():
    def looked_up(table, ids, w):
        return table[ids] @ w

    arguments = struct((128, 64)), struct((16, 8), "data", dtype="int32"), struct((64, 256), "data", "model")
    report = program_report(looked_up, *arguments)
    assert not any("disagree" in one for one in report.caveats)
    [gathered] = [one for one in report.collectives if one.kind == "all-gather"]
    assert [each.kind for each in gathered.because] == ["conflict"]


def test_a_constraint_on_the_result_of_an_inner_function_gathers_its_operand():
    def constrained(x, w):
        return kept(jax.nn.relu(x @ w))

    arguments = struct((512, 1024), "data"), struct((1024, 4096), None, "model")
    found = reasons(constrained, *arguments, kind="all-gather")
    assert found
    assert all(each and {kind for _, kind in each} == {"constraint"} for each in found)


def test_an_operation_that_moves_shards_itself_is_not_the_operation_before_it():
    def reversed_too(x):
        y = jnp.sort(x, 1)
        return y, jax.lax.rev(y, (0,))

    function = jax.jit(reversed_too, out_shardings=(NamedSharding(grid(), P("model", "data")), None))
    found = reasons(function, struct((32, 64), "data", "model"), kind="collective-permute")
    assert not any(op == "sort" for each in found for op, _ in each)


def test_a_constraint_that_moves_an_axis_is_not_explained_by_the_next_constraint():
    def on(x, *spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(cube(), P(*spec)))

    def both(a):
        h = on(a, "fsdp", "tensor")
        return on(h, "tensor", "fsdp"), h @ on(h, None, None).T

    found = reasons(both, abstract(cube(), P("data", None), (32, 16)), kind="collective-permute")
    assert found
    assert not any(found)


def test_the_result_of_an_inner_function_that_enters_a_shard_map_has_an_answer():
    def entering(x):
        mapped = jax.shard_map(lambda part: part * 2, mesh=grid(), in_specs=P("data"), out_specs=P("data"))
        return mapped(jax.nn.relu(x))

    report = propagation_report(entering, struct((32, 64), "data"))
    assert report.reason is None
    assert [str(one.spec) for one in report.outputs] == ["P('data', None)"]


def line_mesh(axis_type):
    return jax.make_mesh((8,), ("data",), axis_types=(getattr(jax.sharding.AxisType, axis_type),))


@pytest.mark.parametrize("axis_type", ["Explicit", "Auto"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_of_a_constraint_in_a_loop_and_its_reason_are_kept(name, axis_type):
    assert [one.code for one in explained(name, line_mesh(axis_type)).findings] == []


def test_the_call_of_a_constraint_that_another_operation_needs_too_keeps_its_line():
    mesh = line_mesh("Auto")

    def layer(x, w):
        kept = jax.lax.with_sharding_constraint(w, NamedSharding(mesh, P()))
        return jnp.tanh(x @ kept), jnp.sort(w, 0)

    def function(weights, x):
        return jax.lax.scan(layer, x, weights)

    report = program_report(
        function, on_line(mesh, (6, 64, 64), None, "data"), on_line(mesh, (64, 64), "data")
    )
    line = inspect.getsourcelines(layer)[1] + 1
    assert report.collectives
    assert all(one.origin is None or one.origin.line != line or one.because for one in report.collectives)
