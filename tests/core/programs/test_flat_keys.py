"""Paths of arguments with containers whose children have no keys, or no keys that stay alike."""

import functools

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core import program_report
from jax_array_info_core.compat.stages import slash_names

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


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


def step(params, x, *rest, scale, **options):
    return jax.tree.map(lambda one: one + 1, (params, x, rest, scale, options))


ARGUMENTS = {
    "below a dict": (({"mlp": {"kernel": Flat(ONE), "bias": ONE}}, ONE), ["mlp/bias", "mlp/kernel/0"]),
    "as an argument": ((Flat(ONE, {"q": ONE}), ONE), ["0", "1/q"]),
    "one in the other": (([Flat(Flat(ONE), [ONE])], ONE), ["0/0/0", "0/1/0"]),
}


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("stage", ["function", "traced", "lowered", "compiled"])
def test_a_container_without_keys_has_positions_below_it_only(name, stage):
    arguments, expected = ARGUMENTS[name]
    found = (jax.jit(step), *arguments, *(Flat(ONE), ONE))
    keywords = {"scale": Flat(ONE), "extra": {"a": Flat(ONE)}}
    if stage != "function":
        traced = found[0].trace(*found[1:], **keywords)
        lowered = traced if stage == "traced" else traced.lower()
        found, keywords = [lowered.compile() if stage == "compiled" else lowered], {}
    report = program_report(*found, **keywords)
    paths = [one.path for one in report.arguments]
    assert paths == [
        *(f"params/{path}" for path in expected),
        "x",
        *("rest/0/0", "rest/1", "extra/a/0", "scale/0"),
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
