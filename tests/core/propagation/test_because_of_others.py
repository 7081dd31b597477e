"""A collective never has the reason of another one: cases in which a neighbor was named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report, propagation_report

pytestmark = [
    pytest.mark.once_per_version,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on"),
]


def grid():
    return Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))


def struct(shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(grid(), P(*spec)))


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


def test_a_constraint_is_no_reason_for_the_other_users_of_its_value():
    def both(x):
        return kept(x), jnp.sort(x, 1)

    found = reasons(both, struct((64, 64), "data", "model"), kind="all-to-all")
    assert found
    assert not any(("sharding_constraint", "constraint") in each for each in found)


def test_a_requested_output_is_no_reason_for_what_else_uses_its_value():
    def both(x):
        y = jnp.tanh(x)
        return y, jnp.sort(y, 0)

    out_shardings = (NamedSharding(grid(), P()), None)
    function = jax.jit(both, out_shardings=out_shardings)
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


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (reshaped, (((64, 32), None, "model"), ((64, 64), "model"))),
        (flattened, (((32, 3, 64), "data", None, "model"), ((192, 64), "model", None))),
        (transposed, (((64, 32), None, "model"),)),
    ],
)
def test_what_a_reshape_gathers_is_not_for_the_operation_behind_it(function, arguments):
    structs = [struct(shape, *spec) for shape, *spec in arguments]
    found = reasons(function, *structs, kind="all-gather")
    assert found or function is transposed  # where XLA of JAX 0.10 exchanges instead
    assert not any(found)


def test_a_value_that_is_moved_for_a_constraint_is_not_gathered_for_it():
    def both(x):
        y = jnp.sort(x, 1)
        return kept(y, None, "data"), y.reshape(32, 128)

    found = reasons(both, struct((64, 64), "data", None), kind="all-gather")
    assert found
    assert not any(found)


def test_of_several_sums_of_a_line_none_has_the_letters_of_another():
    def norm(leaves):
        return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in leaves))

    leaves = [struct((64, 128), None, "model"), struct((128, 64), "model", "data")]
    report = program_report(norm, leaves)
    for one in report.collectives:
        assert all(not each.operands for each in one.because)


def test_a_sum_over_one_axis_names_no_letter_of_another():
    def product(g, h):
        return jnp.einsum("bti,btj->ij", g, h)

    report = program_report(
        product,
        struct((8, 16, 64), "data", "model"),
        struct((8, 16, 128), "data", None, "model"),
    )
    [reduced] = [one for one in report.collectives if one.kind == "all-reduce"]
    [because] = reduced.because
    assert (because.mesh_axes, [each.letter for each in because.operands]) == (("data",), ["k", "k"])


def test_a_gradient_is_not_reduced_for_a_clash_of_another_product_of_its_line():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 2, 2), ("data", "fsdp", "tensor"))

    def of(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    def loss(p, x):
        u = jax.nn.gelu(x @ p["wi"])
        y = u @ p["wd"]
        return (y**2).mean()

    p = {"wi": of((64, 256), "fsdp", "tensor"), "wd": of((256, 64), "tensor", "fsdp")}
    gradient = jax.jit(jax.grad(loss), out_shardings=jax.tree.map(lambda one: one.sharding, p))
    report = program_report(gradient, p, of((8, 16, 64), ("data", "fsdp")))
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

    ids = jax.ShapeDtypeStruct((16, 8), jnp.int32, sharding=NamedSharding(grid(), P("data")))
    report = program_report(looked_up, struct((128, 64)), ids, struct((64, 256), "data", "model"))
    assert not any("disagree" in one for one in report.caveats)
    [gathered] = [one for one in report.collectives if one.kind == "all-gather"]
    assert [each.kind for each in gathered.because] == ["conflict"]


def test_a_constraint_on_the_result_of_an_inner_function_gathers_its_operand():
    def constrained(x, w):
        return kept(jax.nn.relu(x @ w))

    found = reasons(
        constrained, struct((512, 1024), "data"), struct((1024, 4096), None, "model"), kind="all-gather"
    )
    assert found
    assert all(kind == "constraint" for each in found for _, kind in each)
    assert all(found)


def test_an_operation_that_moves_shards_itself_is_not_the_operation_before_it():
    def reversed_too(x):
        y = jnp.sort(x, 1)
        return y, jax.lax.rev(y, (0,))

    out_shardings = (NamedSharding(grid(), P("model", "data")), None)
    function = jax.jit(reversed_too, out_shardings=out_shardings)
    report = program_report(function, struct((32, 64), "data", "model"))
    permutes = [one for one in report.collectives if one.kind == "collective-permute"]
    assert not any(each.op == "sort" for one in permutes for each in one.because)


def test_a_constraint_that_moves_an_axis_is_not_explained_by_the_next_constraint():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 2, 2), ("data", "fsdp", "model"))

    def on(x, *spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def both(a):
        h = on(a, "fsdp", "model")
        return on(h, "model", "fsdp"), h @ on(h, None, None).T

    a = jax.ShapeDtypeStruct((32, 16), jnp.float32, sharding=NamedSharding(mesh, P("data", None)))
    report = program_report(both, a)
    permutes = [one for one in report.collectives if one.kind == "collective-permute"]
    assert permutes
    assert not any(one.because for one in permutes)


def test_the_result_of_an_inner_function_that_enters_a_shard_map_has_an_answer():
    if not hasattr(jax, "shard_map"):
        pytest.skip(f"jax {jax.__version__} has no jax.shard_map")

    def entering(x):
        specs = P("data")
        return jax.shard_map(lambda part: part * 2, mesh=grid(), in_specs=specs, out_specs=specs)(
            jax.nn.relu(x)
        )

    report = propagation_report(entering, struct((32, 64), "data"))
    assert report.reason is None
    assert [str(one.spec) for one in report.outputs] == ["P('data', None)"]
