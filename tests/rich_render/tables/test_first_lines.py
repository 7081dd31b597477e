"""Lines that tell how figures are meant: below the title, and of leaves with fewer axes than a spec."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info.engine.render import to_text
from jax_array_info_core import check_report, program_report, reshard_report, tree_report

pytestmark = pytest.mark.once_per_version

STATE = {
    "params": {
        "b": jax.ShapeDtypeStruct((16,), jnp.float32),
        "w": jax.ShapeDtypeStruct((16, 8), jnp.float32),
    },
    "step": jax.ShapeDtypeStruct((), jnp.int32),
}


@pytest.mark.parametrize(("spec", "count"), [(P("x"), "1 leaf"), (P("x", "y"), "2 leaves")])
def test_leaves_with_fewer_axes_than_the_spec_are_counted_in_a_line(spec, count):
    options = {"mesh": {"x": 4, "y": 2}, "specs": spec}
    words = f"{count} with fewer axes than the spec: replicated"
    report = tree_report(STATE, **options)
    assert words in to_text(report)
    check = check_report(STATE, **options, expect=spec)
    assert f"\n{words}\nexpect: {words}" in to_text(check)
    replicated = tree_report(STATE, mesh=options["mesh"], specs=P())
    for target in (report, spec):
        assert words in to_text(reshard_report(replicated, target))


@pytest.mark.needs_devices(8)
def test_figures_of_the_first_call_are_told_below_the_title():
    mesh = Mesh(np.array(jax.devices()), ("d",))
    rows = NamedSharding(mesh, P("d"))
    w, x = (jax.device_put(jnp.ones((64, 64)), one) for one in (NamedSharding(mesh, P()), rows))

    def step(w, x):
        gradient = jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)
        return jax.lax.with_sharding_constraint(w - 0.1 * gradient, rows)

    line = to_text(program_report(step, w, x), width=200).splitlines()[2]
    assert line == "figures of the first call; if w is passed on as returned, the second call compiles again"


def test_no_donation_is_counted_if_a_call_fails():
    shared = jnp.ones((16, 16))
    state = {"a": shared, "b": shared, "c": jnp.ones((16, 16))}
    doubled = jax.jit(lambda state: jax.tree.map(lambda one: 2 * one, state), donate_argnums=0)
    assert "donated: 0 of 3 arguments reused" in to_text(program_report(doubled, state))
