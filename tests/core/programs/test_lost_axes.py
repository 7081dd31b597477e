"""States, gradients and moments that lack mesh axes of the arguments that they belong to."""

import functools

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.facts.reports.array import ShardingDescription
from jax_array_info_core.facts.reports.program_values import Constraint, ProgramValue
from jax_array_info_core.geometry.layouts.spec import MeshAxes, Spec
from jax_array_info_core.programs.lost_axes import with_gradients, with_moments
from tests.programs import abstract, cube, line, needs_lines

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


def product(u, a):
    return a @ u


def named(name, f=product):
    """Return a function under another name."""
    g = functools.wraps(f)(lambda *arguments: f(*arguments))
    g.__name__ = g.__qualname__ = name
    return g


def state(name, f=product, *, donate=(), out=None):
    """Return the report on a function of a state and a matrix that it is multiplied with."""
    mesh = line("i")
    arguments = abstract(mesh, P("i"), (256, 32)), abstract(mesh, P(None, "i"), (256, 256))
    options = {} if out is None else {"out_shardings": NamedSharding(mesh, out)}
    return program_report(jax.jit(named(name, f), donate_argnums=donate, **options), *arguments)


def codes(report):
    return [one.code for one in report.findings if one.code in ("JAI107", "JAI201")]


def test_a_state_that_a_step_returns_whole_is_named_with_the_line_and_the_first_call():
    report = state("step")
    (finding,) = (one for one in report.findings if one.code == "JAI201")
    (leaf,) = finding.leaves
    assert (finding.nbytes, leaf.remedy) == (32_768, "u is P('i',)")
    assert leaf.origin.line == product.__code__.co_firstlineno + 1
    assert report.first_call.startswith("figures of the first call; if u is passed on as returned")


@pytest.mark.parametrize("name", ["predict", "apply", "attend", "eval_loss", "<lambda>", "steppe"])
def test_a_result_with_the_shape_of_an_argument_is_not_its_next_state(name):
    report = state(name)
    assert (codes(report), report.passed_on) == ([], ())


@pytest.mark.parametrize("name", ["step", "time_step", "Solver.step", "advance", "UPDATE"])
def test_the_name_of_a_step_may_have_further_words(name):
    assert codes(state(name)) == ["JAI201"]


def test_a_donated_argument_is_replaced_whatever_the_name():
    assert codes(state("f", donate=0)) == ["JAI201"]


def test_a_state_with_a_requested_sharding_is_not_lost():
    assert codes(state("step", out=P())) == []
    assert codes(state("step", out=P("i"))) == []


@pytest.mark.parametrize(
    ("f", "is_lost"),
    [
        (lambda u, a: (a @ u, (a @ u).sum()), True),
        (lambda u, a: ((a @ u).sum(), a @ u), False),
        (lambda u, a: (a @ u, jnp.sin(a @ u)), False),
        (lambda u, a: a @ jnp.ones_like(u), False),
        (lambda u, a: 2 * u, False),
        (lambda u, a: a @ jax.grad(lambda u: jnp.sum(jnp.sin(a @ u)))(u), True),
    ],
    ids=["first", "second", "two", "independent", "kept", "gradient"],
)
def test_a_state_is_the_only_output_of_its_type_and_the_first(f, is_lost):
    assert codes(state("step", f)) == ["JAI201"] * is_lost


def test_the_line_is_that_of_the_sum_and_not_of_what_follows_on_single_elements():
    def f(u, a):
        v = a @ u
        v = jnp.sin(v)
        return v * 2

    ((leaf,),) = (one.leaves for one in state("step", f).findings if one.code == "JAI201")
    assert leaf.origin.line == f.__code__.co_firstlineno + 1


def decoding(*, donate, f=None, spec=None):
    """Return the report on a function that writes the keys of a token into a cache."""
    mesh = cube()
    cache = {name: abstract(mesh, spec or P(), (8, 64, 32)) for name in "kv"}
    x = abstract(mesh, P("data", None, "tensor"), (8, 1, 32))

    def decode(cache, x):
        new = {
            name: lax.dynamic_update_slice_in_dim(old * jnp.exp(x), x, 3, 1) for name, old in cache.items()
        }
        return x.sum(), new

    return program_report(jax.jit(f or decode, donate_argnums=donate), cache, x)


def test_a_donated_cache_that_returns_sharded_otherwise_is_named_with_the_line():
    report = decoding(donate=0)
    (finding,) = (one for one in report.findings if one.code == "JAI205")
    assert [leaf.path for leaf in finding.leaves] == ["cache/k", "cache/v"]
    assert all(leaf.origin.file == __file__ for leaf in finding.leaves)
    assert {one.replaces for one in report.outputs} == {None, "cache/k", "cache/v"}


def test_a_cache_that_is_not_donated_or_keeps_its_sharding_is_not_named():
    for report in (decoding(donate=()), decoding(donate=0, spec=P("data", None, "tensor"))):
        assert not [one for one in report.findings if one.code == "JAI205"]


def test_a_donated_tree_that_two_outputs_may_replace_is_not_named():
    def twice(cache, x):
        new = {name: jnp.exp(old * jnp.exp(x)) for name, old in cache.items()}
        return new, {name: jnp.sin(old) for name, old in new.items()}

    assert not [one.replaces for one in decoding(donate=0, f=twice).outputs if one.replaces]


def training(spec, moment_spec, gradient_spec=None):
    """Return the report on a step with momentum."""
    mesh = cube()
    w = abstract(mesh, spec, (64, 512))
    opt = {"mu": {"w": abstract(mesh, moment_spec, (64, 512))}, "count": abstract(mesh, P(), (), "int32")}
    arguments = {"params": {"w": w}, "opt": opt}, abstract(mesh, P(("data", "fsdp")), (128, 64))

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, x):
        params, opt = state["params"], state["opt"]
        g = jax.grad(lambda p: jnp.mean((x @ p["w"]) ** 2))(params)
        if gradient_spec is not None:
            g = lax.with_sharding_constraint(g, NamedSharding(mesh, gradient_spec))
        mu = jax.tree.map(lambda m, g: 0.9 * m + g, opt["mu"], g)
        new = jax.tree.map(lambda p, m: p - 0.1 * m, params, mu)
        new = {"params": new, "opt": {"mu": mu, "count": opt["count"] + 1}}
        return lax.with_sharding_constraint(new, jax.tree.map(lambda one: one.sharding, arguments[0]))

    return program_report(step, *arguments), step.__wrapped__.__code__.co_firstlineno


@needs_lines
def test_a_moment_that_is_sharded_less_than_its_parameter_says_what_it_takes_and_sends():
    report, first = training(P("fsdp", "tensor"), P())
    (finding,) = (one for one in report.findings if one.code == "JAI107")
    (leaf,) = finding.leaves
    assert (leaf.path, leaf.origin.line) == ("state/opt/mu/w", first + 6)
    assert finding.nbytes == 131_072 - 32_768
    right, _ = training(P("fsdp", "tensor"), P("fsdp", "tensor"))
    more = report.sent.nbytes - right.sent.nbytes
    assert finding.sent_nbytes == more > 0
    held = [sum(value.nbytes for value in one.arguments) for one in (report, right)]
    assert held[0] - held[1] == finding.nbytes


def test_a_gradient_that_is_requested_whole_is_named_with_its_line():
    report, first = training(P("fsdp", "tensor"), P("fsdp", "tensor"), P())
    (finding,) = (one for one in report.findings if one.code == "JAI201")
    (leaf,) = finding.leaves
    assert (leaf.origin.line, finding.mesh_axes) == (first + 5, ("fsdp", "tensor"))
    assert finding.nbytes == 131_072 - 32_768
    right, _ = training(P("fsdp", "tensor"), P("fsdp", "tensor"), P("fsdp", "tensor"))
    if finding.sent_nbytes is not None:  # the reasons of collectives are known
        assert finding.sent_nbytes <= report.sent.nbytes - right.sent.nbytes


@pytest.mark.parametrize(
    ("spec", "moment_spec", "gradient_spec"),
    [
        (P("fsdp", "tensor"), P("fsdp", "tensor"), None),
        (P("fsdp", "tensor"), P("fsdp", "tensor"), P("fsdp", "tensor")),
        (P("fsdp", "tensor"), P("fsdp", "tensor"), P("tensor", "fsdp")),
        (P("fsdp"), P("fsdp", "tensor"), P("fsdp")),  # ZeRO-1
        (P(), P("fsdp"), P()),
        (P(), P("fsdp"), P("fsdp")),  # ZeRO-2
        (P(), P(), P()),
        (P("fsdp"), P("tensor"), P("fsdp")),
    ],
)
def test_state_that_is_sharded_like_its_parameter_further_or_otherwise_is_right(
    spec, moment_spec, gradient_spec
):
    report, _ = training(spec, moment_spec, gradient_spec)
    assert codes(report) == []


MESH = MeshAxes(("x", "y"), (2, 4))
SPECS = [Spec(()), Spec((("x",),)), Spec((("y",),)), Spec((("x", "y"),)), Spec((("x",), ("y",)))]


def sharded(spec):
    return ShardingDescription(type="NamedSharding", spec=spec, mesh=MESH)


def value(path, spec, shape=(8, 8)):
    sharding = sharded(spec)
    return ProgramValue(path=path, shape=shape, dtype="float32", nbytes=256, asked=sharding, got=sharding)


def axes(spec):
    return {name for names in spec.axes for name in names}


@settings(deadline=None)
@given(*[st.sampled_from(SPECS)] * 2, st.sampled_from(["", "state/", "train/"]))
def test_a_moment_lacks_what_its_parameter_has_more(spec, moment_spec, prefix):
    arguments = [
        value(f"{prefix}params/a/w", spec),
        value(f"{prefix}opt/0/mu/a/w", moment_spec),
        value(f"{prefix}opt/0/count", Spec(()), ()),
        value("x", Spec(()), (8, 4)),
    ]
    changed = with_moments(arguments)
    is_less = axes(moment_spec) < axes(spec)
    assert set(changed[1].lost_axes) == (axes(spec) - axes(moment_spec) if is_less else set())
    assert changed[1].like == (f"{prefix}params/a/w" if is_less else None)
    assert [one.lost_axes for one in changed[:1] + changed[2:]] == [()] * 3


def test_a_single_array_is_the_parameter_of_a_moment_without_keys_if_it_alone_has_its_shape():
    moments = [value("o/0/mu", Spec(())), value("o/0/count", Spec(()), ()), value("o/0/nu", Spec(()))]
    p, x = value("p", SPECS[3]), value("x", SPECS[1], (8, 4))
    assert [one.like for one in with_moments([*moments, x, p])] == ["p", None, "p", None, None]
    other = value("y", SPECS[3])
    assert not any(one.like for one in with_moments([*moments, p, other]))


@settings(deadline=None)
@given(st.sampled_from(SPECS), st.lists(st.sampled_from(SPECS), max_size=3), st.booleans())
def test_a_gradient_lacks_axes_only_if_every_argument_of_its_type_has_them(spec, specs, is_gradient):
    constraint = Constraint(
        shape=(8, 8), dtype="float32", asked=sharded(spec), got=None, is_gradient=is_gradient
    )
    arguments = [value(f"p/{number}", one) for number, one in enumerate(specs)]
    (changed,) = with_gradients([constraint], arguments)
    for one in specs:
        assert set(changed.lost_axes) <= axes(one) - axes(spec)
    is_less = bool(specs) and is_gradient and all(axes(spec) < axes(one) for one in specs)
    assert bool(changed.lost_axes) <= is_less
    if len(specs) == 1 and is_less:
        assert set(changed.lost_axes) == axes(specs[0]) - axes(spec)
