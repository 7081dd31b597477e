"""Arguments and outputs of programs: their paths, shardings, memory, and the mesh axes that gradients lose."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.arrays.stage_leaves import argument_values
from jax_array_info_core.compat.arrays import per_shard
from jax_array_info_core.compat.stages import ProgramLeaf, slash_names
from jax_array_info_core.errors import UnsupportedValueError
from tests.contexts import VERSION
from tests.programs import abstract, cube, line, loss, step, step_arguments

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


def test_a_gradient_without_out_shardings_loses_an_axis_and_says_which():
    report = program_report(jax.grad(loss), *step_arguments(cube()))
    wi, wo = report.outputs
    assert (wi.path, str(wi.got.spec), wi.lost_axes, wi.like) == (
        "outputs/wi",
        "P(None, 'tensor')",
        ("fsdp",),
        "params/wi",
    )
    assert (wo.path, str(wo.got.spec), wo.lost_axes) == ("outputs/wo", "P('tensor',)", ("fsdp",))
    assert wi.reason == "params/wi is P('fsdp', 'tensor')"


def test_an_output_with_a_requested_sharding_has_not_lost_it():
    mesh = cube()
    shardings = {"wi": NamedSharding(mesh, P()), "wo": NamedSharding(mesh, P())}
    report = program_report(jax.jit(jax.grad(loss), out_shardings=shardings), *step_arguments(mesh))
    assert [value.lost_axes for value in report.outputs] == [(), ()]
    assert [str(value.asked.spec) for value in report.outputs] == ["P()", "P()"]


@pytest.mark.parametrize("wrap", [jax.jit, lambda f: f])
def test_an_output_that_a_constraint_gathers_has_not_lost_an_axis(wrap):
    mesh = cube()

    @wrap
    def gradients(params, x):
        found = jax.grad(loss)(params, x)
        found["wi"] = jax.lax.with_sharding_constraint(found["wi"], NamedSharding(mesh, P()))
        return found

    report = program_report(lambda *arguments: gradients(*arguments), *step_arguments(mesh))
    assert [(str(one.got.spec), one.lost_axes) for one in report.outputs] == [
        ("P()", ()),
        ("P('tensor',)", ("fsdp",)),
    ]


@pytest.mark.parametrize(
    ("wrap", "in_spec", "out_spec", "words"),
    [
        (jax.jit, P("data"), P("data"), "P('data',)"),
        (lambda f: f, P("data"), P(None, ("fsdp", "data")), "P(None, ('fsdp', 'data'))"),
        (lambda f: jax.jit(jax.jit(f)), P(("data", "fsdp")), P(), "P()"),
    ],
)
def test_the_out_specs_of_a_shard_map_are_a_request(wrap, in_spec, out_spec, words):
    mesh = cube()
    function = wrap(
        per_shard(lambda a: (a[:1, :1] + jnp.zeros((2, 4)), a * 2), mesh, in_spec, (out_spec, in_spec))
    )
    report = program_report(function, abstract(mesh, in_spec, (64, 16)))
    first, second = report.outputs
    assert (str(first.asked.spec), first.is_free, first.is_as_asked) == (words, False, True)
    assert str(second.asked.spec) == str(second.got.spec)
    report = program_report(lambda a: function(a)[0] * 2, abstract(mesh, in_spec, (64, 16)))
    assert report.outputs[0].is_free, "an operation after the shard_map"


def test_a_constraint_is_a_request_where_its_value_is_returned_as_it_is():
    mesh = line("x")

    def constrained(a):
        return jax.lax.with_sharding_constraint(a * 2, NamedSharding(mesh, P(None, "x")))

    def scanned(a):
        return jax.lax.scan(lambda carry, _: (constrained(carry), None), a, None, length=2)[0]

    for function in (constrained, jax.jit(constrained), scanned):
        [output] = program_report(function, abstract(mesh, P("x"), (16, 16))).outputs
        assert (str(output.got.spec), output.is_as_asked) == ("P(None, 'x')", True)

    def stacked(a):
        return jax.lax.scan(lambda carry, _: (carry, constrained(carry)), a, None, length=2)[1]

    [output] = program_report(stacked, abstract(mesh, P("x"), (16, 16))).outputs
    assert output.is_free, "of a scan, it is stacked"


def test_a_gradient_is_matched_by_the_flow_of_values_without_names():
    """The paths of gradients of nnx and Equinox differ from those of the parameters."""
    params, x = step_arguments(cube())

    def gradients(leaves, x):
        found = jax.grad(loss)(dict(zip(("wi", "wo"), leaves, strict=True)), x)
        return {"grads": (found["wi"], found["wo"]), "forward": leaves[0] * 2}

    report = program_report(gradients, (params["wi"], params["wo"]), x)
    assert [(one.path, one.lost_axes, one.like) for one in report.outputs] == [
        ("outputs/forward", (), None),
        ("outputs/grads/0", ("fsdp",), "leaves/0"),
        ("outputs/grads/1", ("fsdp",), "leaves/1"),
    ]


def test_an_output_that_is_no_gradient_or_is_ambiguous_has_not_lost_an_axis():
    mesh = cube()
    w, v = abstract(mesh, P("fsdp", "tensor"), (64, 64)), abstract(mesh, P(), (64, 64))

    def gather(value):
        return -jax.lax.with_sharding_constraint(value, NamedSharding(mesh, P()))

    def product(w, v):
        return gather(w @ v)

    assert program_report(product, w, v).outputs[0].lost_axes == ()

    def gradient(w, v):
        return gather(jax.grad(lambda v: jnp.sin(w @ v).sum())(v))

    assert program_report(gradient, w, v).outputs[0].lost_axes == ()


def test_a_norm_of_a_gradient_is_not_the_gradient_of_an_argument_with_its_shape():
    mesh = cube()
    params, x = step_arguments(mesh)
    bias = abstract(mesh, P("fsdp"), params["wo"].shape[1:])

    def step(params, bias, x):
        found = jax.grad(loss)(params, x)["wo"]
        return {"norm": jnp.square(found).sum(axis=0), "bias": bias * 2, "wo": found}

    outputs = program_report(step, params, bias, x).outputs
    assert [(one.path, str(one.got.spec), one.like) for one in outputs[1:]] == [
        ("outputs/norm", "P()", None),
        ("outputs/wo", "P('tensor',)", "params/wo"),
    ]


def test_arguments_have_the_paths_of_the_function_and_bytes_per_device():
    lowered = jax.jit(step).lower(*step_arguments(cube()))
    compiled = lowered.compile()
    for stage in ((step, *step_arguments(cube())), [lowered], [compiled]):
        report = program_report(*stage)
        assert [(value.path, value.nbytes, str(value.got.spec)) for value in report.arguments] == [
            ("params/wi", 262144, "P('fsdp', 'tensor')"),
            ("params/wo", 262144, "P('tensor', 'fsdp')"),
            ("x", 524288, "P(('data', 'fsdp'),)"),
        ]
        outputs = [("outputs/wi", None), ("outputs/wo", None)]
        if stage == [compiled] and VERSION < (0, 7):
            outputs = []  # a Compiled does not tell them
        assert [(value.path, value.asked) for value in report.outputs] == outputs
        assert (report.name, report.constraints) == ("step", () if len(stage) > 1 else None)


def test_static_and_variable_arguments_and_keywords_have_the_names_of_the_function():
    class Model:
        @functools.partial(jax.jit, static_argnums=(0, 2))
        def apply(self, state, size, *rest, key=None):
            return state["a"] + rest[0]["q"] + key

    one = np.ones(3, np.float32)
    report = program_report(
        functools.partial(Model.apply, Model()), {"a": one}, 4, {"q": one}, {"q": one}, key=one
    )
    assert {value.path for value in report.arguments} >= {"state/a", "rest/0/q", "key"}
    report = program_report(Model.apply, Model(), {"a": one}, 4, {"q": one}, {"q": one}, key=one)
    assert [(value.path, value.is_pruned) for value in report.arguments] == [
        ("state/a", False),
        ("rest/0/q", False),
        ("rest/1/q", True),
        ("key", False),
    ]


def test_the_requested_shardings_of_a_compiled_program_are_unknown_and_not_left_to_the_compiler():
    mesh = line()
    rows = NamedSharding(mesh, P("dp"))
    jitted = jax.jit(lambda a: a * 2, in_shardings=rows, out_shardings=rows)
    lowered = jitted.lower(jax.ShapeDtypeStruct((8, 8), jnp.float32))
    for stage, is_known in ((lowered, True), (lowered.compile(), False)):
        report = program_report(stage)
        values = (*report.arguments, *report.outputs)
        assert {one.is_asked_known for one in values} == {is_known}
    [gradient] = program_report(
        jax.jit(jax.grad(lambda a: (a**2).sum())).lower(abstract(mesh, P(), (8, 8)))
    ).outputs
    assert (gradient.asked, gradient.is_asked_known) == (None, True)


def test_a_stage_with_arguments_and_a_value_that_is_no_function_are_refused():
    lowered = jax.jit(jnp.sin).lower(np.ones(3, np.float32))
    with pytest.raises(UnsupportedValueError, match="has its arguments already"):
        program_report(lowered, 1)
    with pytest.raises(UnsupportedValueError, match="expected a function, a Lowered or a Compiled, got int"):
        program_report(3)


def test_a_single_array_is_called_outputs():
    report = program_report(jnp.sin, np.ones(3, np.float32))
    assert [value.path for value in report.outputs] == ["outputs"]
    assert report.mesh is None
    assert report.outputs[0].nbytes == 12


def test_methods_and_partials_of_jitted_functions_keep_their_options():
    class Network:
        @functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
        def advance(self, state, topology):
            return state + topology

    x = jax.ShapeDtypeStruct((8,), jnp.float32)
    for function in (
        functools.partial(Network().advance, topology=np.float32(1)),
        functools.partial(Network.advance, Network(), topology=np.float32(1)),
    ):
        report = program_report(function, x)
        assert [value.path for value in report.arguments] == ["state", "topology"]
        assert [one.output for one in report.donations] == ["outputs"]
        assert report.name == "Network.advance"
    config = object()
    report = program_report(functools.partial(lambda config, x: x + 1, config), x)
    assert [value.path for value in report.arguments] == ["x"]


def test_arguments_and_outputs_that_are_none_leave_the_others_in_place():
    mesh = line()

    def program(a, nothing, b, unused):
        return a * 2, nothing, {"b": b + 1, "nothing": nothing}

    x, y = abstract(mesh, P("dp"), (8, 16)), abstract(mesh, P(None, "dp"), (16, 8))
    report = program_report(program, x, None, y, x)
    assert [(value.path, value.got and str(value.got.spec)) for value in report.arguments] == [
        ("a", "P('dp',)"),
        ("b", "P(None, 'dp')"),
        ("unused", None),
    ]
    unused = report.arguments[-1]
    assert (unused.is_pruned, str(unused.asked.spec), unused.nbytes) == (True, "P('dp',)", 64)
    assert [(value.path, str(value.got.spec)) for value in report.outputs] == [
        ("outputs/0", "P('dp',)"),
        ("outputs/2/b", "P(None, 'dp')"),
    ]


def test_values_in_memory_of_the_host_are_told_from_those_in_the_default_memory():
    """The default memory of CPU is memory of the host too, and called so in old versions of JAX."""
    mesh = line()
    default = jax.devices()[0].default_memory().kind
    kinds = [memory.kind for memory in jax.devices()[0].addressable_memories()]
    shardings = [NamedSharding(mesh, P("dp"), memory_kind=kind) for kind in kinds]
    leaves = [
        ProgramLeaf((), kind, None, (8,), np.dtype("f4"), got=one)
        for kind, one in zip(kinds, shardings, strict=True)
    ]
    found = argument_values(leaves, None)
    assert [one.memory_kind for one in found] == kinds
    assert [one.is_in_host_memory for one in found] == ["host" in one and one != default for one in kinds]
    report = program_report(lambda a: a + 1, abstract(mesh, P("dp"), (8, 8)))
    for one in (*report.arguments, *report.outputs):
        assert (one.memory_kind, one.is_in_host_memory) == (default, False)


@pytest.mark.parametrize("transform", [jax.grad, jax.jacfwd, jax.checkpoint, jax.vmap, functools.partial])
def test_a_transformed_jitted_function_is_not_the_jitted_function(transform):
    loss = jax.jit(lambda a: (a @ a.T).sum())
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    [output] = program_report(transform(loss), x).outputs
    assert output.shape == jax.eval_shape(transform(loss), x).shape


def test_a_decorated_jitted_function_is_the_decorated_one():
    @jax.jit
    def inner(x):
        return x + 1

    @functools.wraps(inner)
    def outer(x):
        return inner(x)[None]

    assert program_report(outer, np.ones(3, np.float32)).outputs[0].shape == (1, 3)


def test_keyword_arguments_of_a_variable_keep_their_names():
    def program(x, **options):
        return {"n": options["state"]["w"] * 2 + x}

    w = jax.ShapeDtypeStruct((3,), jnp.float32)
    report = program_report(jax.jit(program, donate_argnames="state"), w, state={"w": w})
    assert [value.path for value in report.arguments] == ["x", "state/w"]
    assert [(one.path, one.output) for one in report.donations] == [("state/w", "outputs/n")]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_of_pmap_is_reported():
    report = program_report(
        jax.pmap(lambda a: jax.lax.psum(a, "i"), axis_name="i"), np.ones((8, 4), np.float32)
    )
    assert [one.kind for one in report.collectives] == ["all-reduce"]
    assert report.arguments[0].shape == (8, 4)


class Flat:
    """A container as ``register_pytree_node`` and ``register_pytree_node_class`` register it."""

    def __init__(self, *parts):
        self.parts = parts


class Odd(Flat):
    """A container with keys that are new objects each time."""


class Key:
    """A key without a text of its own."""


jax.tree_util.register_pytree_node(Flat, lambda box: (box.parts, None), lambda _, parts: Flat(*parts))
jax.tree_util.register_pytree_with_keys(
    Odd, lambda box: ([(Key(), part) for part in box.parts], None), lambda _, parts: Odd(*parts)
)
ONE = jax.ShapeDtypeStruct((8, 8), jnp.float32)


def step_of_all(params, x, *rest, scale, **options):
    return jax.tree.map(lambda one: one + 1, (params, x, rest, scale, options))


@pytest.mark.parametrize("stage", ["function", "traced", "lowered", "compiled"])
def test_a_container_without_keys_has_positions_below_it_only(stage):
    params = {"mlp": {"kernel": Flat(ONE), "bias": ONE}, "nested": [Flat(Flat(ONE), [ONE])]}
    found = (jax.jit(step_of_all), params, Flat(ONE, {"q": ONE}), Flat(ONE), ONE)
    keywords = {"scale": Flat(ONE), "extra": {"a": Flat(ONE)}}
    if stage != "function":
        traced = found[0].trace(*found[1:], **keywords)
        lowered = traced if stage == "traced" else traced.lower()
        found, keywords = [lowered.compile() if stage == "compiled" else lowered], {}
    report = program_report(*found, **keywords)
    assert [one.path for one in report.arguments] == [
        *("params/mlp/bias", "params/mlp/kernel/0", "params/nested/0/0/0", "params/nested/0/1/0"),
        *("x/0", "x/1/q", "rest/0/0", "rest/1", "extra/a/0", "scale/0"),
    ]


def test_donations_and_pruned_arguments_have_these_names_too():
    @functools.partial(jax.jit, donate_argnums=0)
    def update(state, unused):
        return state["a"].parts[0].sum()

    report = program_report(update, {"a": Flat(ONE)}, Flat(ONE))
    assert [one.path for one in report.donations] == ["state/a/0"]
    assert [(one.path, one.is_pruned) for one in report.arguments] == [
        ("state/a/0", False),
        ("unused/0", True),
    ]


def test_keys_that_are_written_otherwise_each_time_do_not_unname_an_argument():
    report = program_report(lambda params, x: params["w"].parts[0] + x.parts[0], {"w": Odd(ONE)}, Odd(ONE))
    first, second = (one.path for one in report.arguments)
    assert first.startswith("params/w/")
    assert second.startswith("x/")


def test_names_of_earlier_versions_have_the_number_alone():
    assert slash_names(["p['w'][<flat index 0>].a", "p['w'][0].a", None]) == ["p/w/0/a", "p/w/0/a", None]
