from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import to_text
from jax_array_info_core import PathRules, from_json, propagation_report, sharded_structs, to_json
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.programs.propagation.propagation_report import at_line
from tests.core.programs.propagation.programs import constrained, line_of, needs_shardy, origins, struct

pytestmark = needs_shardy


def test_an_fsdp_matmul_has_one_conflict_with_the_letters_and_the_origins():
    def layer(x, wi):
        return x @ wi

    report = propagation_report(layer, struct((32, 64), "data"), struct((64, 256), "data", "model"))
    [conflict] = report.conflicts
    assert (conflict.mesh_axis, conflict.rule, conflict.op) == ("data", "ik,kj->ij", "dot_general")
    found = [(one.name, one.letter, str(one.spec), str(one.axis_origin)) for one in conflict.operands]
    assert found == [
        ("x", "i", "P('data', None)", "argument x"),
        ("wi", "k", "P('data', 'model')", "argument wi"),
    ]
    assert conflict.origin.line == line_of(layer)
    assert origins(report.outputs[0]) == {"data": "argument x", "model": "argument wi"}
    assert [str(one.spec) for one in report.values] == ["P('data', 'model')"]
    assert report.values[0].nbytes == 32 * 256 * 4 // 8
    assert (report.platform, report.device_count) == ("tpu", 8)
    assert conflict.is_meant
    assert report.findings == ()
    assert "XLA rearranges the program" in report.caveats[0]


def test_columns_are_those_of_the_operation():
    def two(x, y):
        return jnp.tanh(x) + jnp.sin(y)

    report = propagation_report(two, struct((8, 8), "data"), struct((8, 8)))
    text = Path(__file__).read_text().splitlines()[line_of(two) - 1]
    start, end = next(one.columns for one in report.values if one.op == "sin")
    assert text[start:end] == "jnp.sin(y)"


def test_values_near_a_constraint_in_a_scan_name_its_line_in_another_file():
    def body(h, w):
        h = jnp.tanh(h @ w)
        return constrained(h, weights, "data", None), None

    def run(weights, x):
        return jax.lax.scan(body, x, weights)[0]

    weights = struct((3, 64, 64), None, None, "model")
    report = propagation_report(run, weights, struct((32, 64)))
    [tanh] = [one for one in report.values if one.op == "tanh"]
    [axis] = tanh.axes
    assert (axis.mesh_axis, axis.kind) == ("data", "constraint")
    assert axis.origin.place.startswith("programs.py:")
    [loss] = [one for one in report.lost if one.reason == "constraint"]
    assert (loss.mesh_axis, loss.op, loss.origin.line) == ("model", "tanh", line_of(body))


def test_gradients_on_65536_devices_lose_fsdp_in_a_sum():
    def loss(params, x):
        h = jax.nn.relu(x @ params["wi"])
        return jnp.mean((h @ params["wo"]) ** 2)

    shapes = {
        "wi": jax.ShapeDtypeStruct((8192, 32768), jnp.bfloat16),
        "wo": jax.ShapeDtypeStruct((32768, 8192), jnp.bfloat16),
    }
    mesh = {"data": 256, "fsdp": 16, "model": 16}
    params = sharded_structs(
        shapes, mesh=mesh, specs=PathRules({"wi": P("fsdp", "model"), "wo": P("model", "fsdp")})
    )
    x = struct((65536, 8192), ("data", "fsdp"), mesh=mesh, dtype=jnp.bfloat16)
    report = propagation_report(jax.grad(loss), params, x)
    assert report.device_count == 65_536
    assert "fsdp" not in str(report.outputs[0].spec)
    lost = {
        one.reason
        for one in report.lost
        if (one.mesh_axis, one.phase, one.origin.line) == ("fsdp", "backward", line_of(loss))
    }
    assert lost == {"contracted"}
    row = next(one for one in report.replicated if one.shape == (32768, 8192) and one.phase == "backward")
    assert "fsdp" in row.mesh_axes
    assert row.avoidable_nbytes == row.nbytes - row.nbytes // (256 * 16)
    assert row.loss is not None


def test_heads_that_do_not_divide_lose_a_part_of_the_axis():
    report = propagation_report(
        lambda x: x.reshape(8, 24, 64), struct((8, 24 * 64), None, "model", mesh={"model": 16})
    )
    assert str(report.outputs[0].spec) == "P(None, 'model:(1)8', None)"
    [loss] = report.lost
    assert (loss.mesh_axis, loss.reason, loss.operand) == ("model:(8)2", "uneven", "x")
    assert (loss.size, loss.divisor.shape) == (24, {"model": 16})
    words = "24 does not divide by model=16: a factor of 8 stays (model:(1)8), one of 2 is lost"
    assert words in " ".join(to_text(report).split())
    assert report.findings[0].remedy.startswith("A dimension that does not divide needs another size")
    assert origins(report.outputs[0]) == {"model:(1)8": "argument x"}


def test_a_closed_constraint_in_the_middle_loses_an_axis():
    def middle(x):
        y = jnp.tanh(x)
        return constrained(y, x0, None, "model") * 2

    x0 = struct((32, 64), "data")
    report = propagation_report(middle, x0)
    reasons = {(one.mesh_axis, one.reason, one.origin.line) for one in report.lost}
    assert reasons == {("data", "constraint", line_of(middle))}
    assert report.lost[0].constraint.place.startswith("programs.py:")
    assert report.lost[0].nbytes == 32 * 64 * 4 // 2 - 32 * 64 * 4 // 8
    for finding in report.findings:
        assert finding.remedy.startswith("In the constraint, write the mesh axis, or P.UNCONSTRAINED")


def test_an_open_dimension_of_a_constraint_has_its_axis_from_elsewhere():
    def run(x):
        return jnp.sin(constrained(x, x0, P.UNCONSTRAINED, "model"))

    report = propagation_report(run, x0 := struct((32, 64), "data"))
    for row in (*report.values, *report.outputs):
        assert {one.mesh_axis: one.kind for one in row.axes} == {"data": "argument", "model": "constraint"}
    later = propagation_report(
        lambda x, y: constrained(x, x0, P.UNCONSTRAINED, "model") + y, struct((32, 64)), x0
    )
    assert origins(later.outputs[0])["data"] == "argument y"


def test_equal_operations_in_a_row_are_values_of_their_own():
    def chain(x, weights):
        for w in weights:
            x = x @ w
        return x

    weights = [struct((64, 512), None, "model"), struct((512, 1024), "model"), struct((1024, 64))]
    report = propagation_report(chain, struct((32, 64), "data"), weights)
    assert sorted(one.shape for one in report.values) == [(32, 64), (32, 512), (32, 1024)]


def test_an_inner_function_that_is_called_twice_has_both_shardings():
    @jax.jit
    def inner(a):
        return a * 2

    report = propagation_report(
        lambda a, b: (inner(a), inner(b)), struct((32, 64), "data"), struct((32, 64), None, "model")
    )
    assert {str(one.spec) for one in report.values} == {"P('data', None)", "P(None, 'model')"}


def test_every_kind_of_function_has_a_report():
    x = struct((32, 64), "data")
    mesh = x.sharding.mesh

    @jax.custom_vjp
    def squared(y):
        return y * y

    squared.defvjp(lambda y: (y * y, y), lambda y, g: (2 * y * g,))
    functions = {
        "shard_map": lambda y: jax.shard_map(
            lambda t: t * 2, mesh=mesh, in_specs=P("data"), out_specs=P("data")
        )(y),
        "cond": lambda y: jax.lax.cond(y[0, 0] > 0, jnp.sin, jnp.cos, y),
        "while": lambda y: jax.lax.while_loop(
            lambda c: c[1] < 3, lambda c: (jnp.sin(c[0]), c[1] + 1), (y, 0)
        )[0],
        "custom_vjp": jax.grad(lambda y: squared(y).sum()),
        "checkpoint": jax.grad(lambda y: jax.checkpoint(lambda z: jnp.sin(jnp.sin(z)))(y).sum()),
        "vmap": jax.vmap(lambda row: row / row.sum()),
        "keys": lambda y: y + jax.random.normal(jax.random.key(0), y.shape),
    }
    for name, function in functions.items():
        report = propagation_report(function, x)
        assert (report.reason, report.unread) == (None, ()), name
        assert str(report.outputs[0].spec) == "P('data', None)", name
        assert all(axis.kind is not None for one in report.values for axis in one.axes), name
        assert from_json(to_json(report)) == report


LOOPS = {
    "scan": lambda x, w: jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=3)[0],
    "fori_loop": lambda x, w: jax.lax.fori_loop(0, 3, lambda _, c: c @ w, x),
    "while_loop": lambda x, w: jax.lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] @ w, c[1] + 1), (x, 0))[
        0
    ],
}


SQUARE, ROWS = (64, 64), ((64, 64), "data")
CONFLICTS = {
    "an operation that needs a whole dimension": (
        lambda x: jnp.sort(x),
        [(SQUARE, None, "data")],
        {"data": [("x", "j")]},
    ),
    "a transform": (
        lambda x: jnp.fft.fft(x.astype("complex64")),
        [(SQUARE, None, "data")],
        {"data": [("x", "j")]},
    ),
    **{name: (loop, [ROWS, ROWS], {"data": [("x", "i"), ("w", "k")]}) for name, loop in LOOPS.items()},
    "all operands that ask for an axis": (
        lambda x, w: x @ w,
        [(SQUARE, "data", "model")] * 2,
        {"data": [("x", "i"), ("w", "k")], "model": [("x", "k"), ("w", "k"), ("w", "j")]},
    ),
    "a value with itself": (lambda x: x @ x, [ROWS], {"data": [("x", "i"), ("x", "k")]}),
    "the shared axis of one dimension": (
        lambda x, w: x + w,
        [(SQUARE, ("data", "model")), (SQUARE, "model")],
        {"model": [("x", "i"), ("w", "i")]},
    ),
    "none of an empty array": (lambda x, w: x @ w, [((0, 64), "data"), ROWS], {}),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_conflicts_have_the_letters_and_the_arguments_that_exclude_each_other(name):
    function, structs, expected = CONFLICTS[name]
    report = propagation_report(function, *(struct(*one) for one in structs))
    found = {
        one.mesh_axis: [(str(each.axis_origin), each.letter) for each in one.operands]
        for one in report.conflicts
    }
    assert found == {
        axis: [(f"argument {path}", letter) for path, letter in of] for axis, of in expected.items()
    }
    assert expected or report.findings == ()


def test_the_operations_of_a_function_of_jax_are_one_value():
    [value] = propagation_report(jax.nn.relu, struct((64, 64), "data")).values
    assert (value.op, value.count) == ("max", 1)


def test_a_line_has_its_replicated_values_however_many_larger_ones_there_are():
    def many(x):
        small = jnp.broadcast_to(x[0], (512, 64))
        return small, [jnp.broadcast_to(x[0], (1024 * size, 64)) for size in range(1, 25)]

    report = propagation_report(many, struct((8, 64)))
    assert len(report.replicated) > 20
    rows = at_line(report, f"test_report.py:{line_of(many)}").replicated
    assert [one.shape for one in rows] == [(512, 64)]


@pytest.mark.parametrize(
    "function", [jax.scipy.special.erf, jnp.square, jnp.sinh], ids=["erf", "square", "sinh"]
)
def test_functions_that_xla_divides_into_operations_propagate(function):
    report = propagation_report(function, struct((64, 64), "data", "model"))
    assert str(report.outputs[0].spec) == "P('data', 'model')"
    assert report.unread == ()


def test_a_requested_output_without_an_axis_loses_it():
    x = struct((64, 64), "data")
    out = NamedSharding(x.sharding.mesh, P())
    report = propagation_report(jax.jit(lambda x: x * 2, out_shardings=out), x)
    assert str(report.outputs[0].spec) == "P(None, None)"
    assert report.outputs[0].nbytes == 64 * 64 * 4
    [loss] = report.lost
    assert (loss.mesh_axis, loss.reason, loss.op, loss.nbytes) == ("data", "constraint", "return", 12_288)
    assert report.findings[0].remedy == "Request the output with the mesh axis that it lacks."


def test_one_value_that_is_returned_twice_has_two_shardings():
    x = struct((64, 64), "data")
    outs = tuple(NamedSharding(x.sharding.mesh, spec) for spec in (P("data"), P(None, "model")))
    report = propagation_report(jax.jit(lambda x: (x, x), out_shardings=outs), x)
    assert [str(one.spec) for one in report.outputs] == ["P('data', None)", "P(None, 'model')"]


def test_a_constraint_on_an_argument_is_a_loss():
    x = struct((64, 64), "data")
    [loss] = propagation_report(lambda x: constrained(x, x0, None, None) * 2, x0 := x).lost
    assert (loss.mesh_axis, loss.reason, loss.operand) == ("data", "constraint", "x")
    assert loss.constraint.place.startswith("programs.py:")


def test_an_axis_that_an_operation_moves_is_a_conflict():
    def embed(i, e):
        return jax.nn.one_hot(i, 128) @ e

    report = propagation_report(
        embed, struct((8, 16), "data", dtype=jnp.int32), struct((128, 64), "data", "model")
    )
    moved = [one for one in report.conflicts if one.operands[-1].name == "result"]
    assert {one.mesh_axis for one in moved} == {"data"}


def test_an_operand_that_is_cast_has_the_name_of_what_is_cast():
    def layer(x, w):
        return x @ jnp.sin(w).astype(jnp.bfloat16)

    [conflict] = propagation_report(
        layer, struct((32, 64), "data", dtype=jnp.bfloat16), struct((64, 64), "data")
    ).conflicts
    assert conflict.operands[1].name == f"sin of test_report.py:{line_of(layer)}"
    [conflict] = propagation_report(
        jnp.matmul, struct((32, 64), "data"), struct((64, 64), "data", dtype=jnp.bfloat16)
    ).conflicts
    assert [one.name for one in conflict.operands] == ["a", "b"]


def test_a_lowered_function_has_the_names_of_its_parameters():
    def step(params, unused, *rest, scale):
        return params["w"] @ rest[0] * scale

    w = struct((64, 64), "data")
    lowered = jax.jit(step).trace({"v": w, "w": w}, w, w, scale=w).lower(lowering_platforms=("tpu",))
    report = propagation_report(lowered)
    # What is removed from the program has no name, apart from that of its other leaves.
    assert [one.path for one in report.arguments] == ["params/v", "params/w", "args/1", "rest/0", "scale"]
    assert [one.name for one in report.conflicts[0].operands] == ["params/w", "rest/0"]


def test_a_sum_that_scatters_is_no_conflict():
    x = struct((64, 64), None, "data")
    out = NamedSharding(x.sharding.mesh, P("data"))
    assert propagation_report(jax.jit(lambda x: x.sum(1), out_shardings=out), x).conflicts == ()


def test_a_mesh_without_devices_can_be_in_the_shardings_of_the_function_alone():
    sharding = struct((8,), "data").sharding
    report = propagation_report(
        jax.jit(jnp.sin, in_shardings=sharding), jax.ShapeDtypeStruct((8,), jnp.float32)
    )
    assert str(report.outputs[0].spec) == "P('data',)"


@pytest.mark.parametrize(
    ("function", "spec"),
    [
        (lambda x: jnp.pad(x, (0, 1)), "data"),
        (lambda x: x[:0], "data"),
        (lambda x: x.reshape(6, 16), ("data", "model")),
    ],
    ids=["uneven", "empty", "part of an axis"],
)
def test_an_output_that_jax_does_not_shard_has_a_caveat(function, spec):
    report = propagation_report(function, struct((96,), spec))
    assert [one for one in report.caveats if "as P()" in one]


def test_a_line_or_an_output_alone_has_the_way_of_each_axis():
    def step(w, x):
        h = jnp.tanh(x @ w)
        return jnp.sin(h)

    report = propagation_report(step, struct((64, 256), None, "model"), struct((32, 64), "data"))
    at = at_line(report, f"test_report.py:{line_of(step, 2)}")
    [value] = at.values
    assert value.op == "sin"
    assert {one.mesh_axis: [step.line for step in one.via] for one in value.axes} == {
        "data": [line_of(step)],
        "model": [line_of(step)],
    }
    assert [one.path for one in at_line(report, "outputs").outputs] == ["outputs"]
    with pytest.raises(UnsupportedValueError, match=r"no line and no argument or output 'x\.py:1'"):
        at_line(report, "x.py:1")


def test_a_program_without_a_mesh_has_a_report_without_axes():
    report = propagation_report(lambda x: x @ x.T, jnp.ones((8, 8)))
    assert (report.mesh, report.findings, report.answer) == (None, (), "nothing is sharded: there is no mesh")
    assert [one.op for one in report.values][-1:] == ["dot_general"]


def test_unused_arguments_keep_their_places_and_outputs_their_paths():
    report = propagation_report(
        lambda a, unused, b: {"sum": b.sum(0), "same": a},
        struct((8, 8), "data"),
        struct((4,)),
        struct((8, 8), "model"),
    )
    assert [one.path for one in report.arguments] == ["a", "unused", "b"]
    assert [one.spec is None for one in report.arguments] == [False, True, False]
    assert {one.path: str(one.spec) for one in report.outputs} == {
        "outputs/same": "P('data', None)",
        "outputs/sum": "P(None,)",
    }


def test_a_requested_output_is_an_origin():
    x = struct((32, 64))
    out = NamedSharding(x.sharding.mesh, P("data"))
    report = propagation_report(jax.jit(jnp.tanh, out_shardings=out), x)
    assert origins(report.outputs[0]) == {"data": "outputs"}


def test_a_compiled_program_and_shardy_that_is_off_are_refused():
    compiled = jax.jit(jnp.sin).lower(jnp.ones(3)).compile()
    with pytest.raises(UnsupportedValueError, match="a Compiled has no origins"):
        propagation_report(compiled)
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        with pytest.raises(UnsupportedValueError, match="Shardy is off: set jax_use_shardy_partitioner"):
            propagation_report(lambda x: x, 1.0)
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)


def test_small_replicated_values_are_accepted_in_a_line_and_values_with_small_shards_never_listed():
    def field(x, k):
        return x * jnp.sin(k)

    arguments = struct((64, 8192), ("data", "model")), struct((8192,))
    report = propagation_report(field, *arguments)
    assert {one.op for one in report.replicated} == {"argument"}
    assert "JAI303" not in [one.code for one in report.findings]
    [line] = report.accepted
    assert line.startswith("accepted: ")
    assert line.endswith(" per device of replicated values, below the limit of 64.0 KiB")
    strict = propagation_report(field, *arguments, min_nbytes=0)
    assert [one.code for one in strict.findings if one.kind == "replicated value"] == ["JAI303"]
    assert strict.accepted == ()
    assert (
        propagation_report(
            field, struct((64, 4096), ("data", "model")), struct((4096,)), min_nbytes=0
        ).replicated
        == ()
    )
    with pytest.raises(ValueError, match="min_nbytes must be a number of bytes"):
        propagation_report(field, *arguments, min_nbytes="64 kilo")
