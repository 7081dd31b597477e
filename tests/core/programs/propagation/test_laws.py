"""Laws of propagation, on random programs of 3 to 12 operations with random specs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import propagation_report
from jax_array_info_core.geometry.layouts.spec import Spec, placement

pytestmark = [
    pytest.mark.newest,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on"),
]

SIZE = 16
SPECS = [
    P(),
    P("data"),
    P("model"),
    P(None, "data"),
    P(None, "model"),
    P("data", "model"),
    P("model", "data"),
    P(("data", "model")),
]
OPEN = [
    P(P.UNCONSTRAINED, "model"),
    P("data", P.UNCONSTRAINED),
    P(P.UNCONSTRAINED, None),
    P(P.UNCONSTRAINED, ("model", "data")),
]
"""Specs of constraints with dimensions that they say nothing about."""
UNARY = {
    "tanh": jnp.tanh,
    "transpose": jnp.transpose,
    "sum": lambda x: jnp.broadcast_to(x.sum(0), x.shape),
    "rows": lambda x: jnp.broadcast_to(x.mean(1, keepdims=True), x.shape),
    "sort": lambda x: jnp.sort(x, 1),
    "reshape": lambda x: x.reshape(4, 4, SIZE).swapaxes(0, 1).reshape(SIZE, SIZE),
    "flip": lambda x: x[::-1],
    "cumsum": lambda x: jnp.cumsum(x, 0),
    "scan": lambda x: jax.lax.scan(lambda c, row: (c + row, c * row), x[0], x)[1],
    "cond": lambda x: jax.lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "jit": lambda x: jax.jit(lambda y: y * 2 + 1)(x),
}
BINARY = {"add": jnp.add, "matmul": jnp.matmul, "where": lambda x, y: jnp.where(x > 0, x, y)}


@st.composite
def programs(draw):
    """Return the steps of a program, each with its operands, and the specs of the arguments and constraints."""
    count = draw(st.integers(1, 3))
    steps = []
    for number in range(draw(st.integers(3, 12))):
        name = draw(st.sampled_from([*UNARY, *BINARY, "constraint"]))
        operands = draw(st.lists(st.integers(0, count + number - 1), min_size=2, max_size=2))
        steps.append((name, operands, draw(st.sampled_from([*SPECS, *OPEN]))))
    return draw(st.lists(st.sampled_from(SPECS), min_size=count, max_size=count)), steps


def constraint_at(line):
    """Return a function for constraints whose line has this number."""
    names = {"constrain": jax.lax.with_sharding_constraint}
    source = "\n" * (line - 1) + "def run(x, sharding): return constrain(x, sharding)"
    exec(compile(source, "constraints.py", "exec"), names)
    return names["run"]


def function_of(steps, mesh):
    """Return a function; the number of a step is the line of its constraint."""

    def run(*values):
        values = list(values)
        for line, (name, (one, other), spec) in enumerate(steps, 1):
            if name in UNARY:
                values.append(UNARY[name](values[one]))
            elif name in BINARY:
                values.append(BINARY[name](values[one], values[other]))
            else:
                values.append(constraint_at(line)(values[one], NamedSharding(mesh, spec)))
        return values[-1], values[-2]

    return run


def names_of(spec):
    """Return the mesh axes of a spec."""
    entries = [(one,) if isinstance(one, str) else one for one in spec if one is not P.UNCONSTRAINED]
    return {name for names in entries for name in names or ()}


@settings(max_examples=60, deadline=None)
@given(programs())
@example(([P(None, "data")], [("sum", [0, 0], P()), ("scan", [1, 0], P()), ("tanh", [0, 0], P())]))
def test_outputs_are_sharded_as_xla_returns_them_and_origins_have_their_axes(program):
    specs, steps = program
    mesh = Mesh(np.reshape(jax.devices()[:8], (4, 2)), ("data", "model"))
    arguments = [
        jax.ShapeDtypeStruct((SIZE, SIZE), jnp.float32, sharding=NamedSharding(mesh, spec)) for spec in specs
    ]
    lowered = jax.jit(function_of(steps, mesh)).lower(*arguments)
    report = propagation_report(lowered)
    assert report.reason is None
    compiled = lowered.compile().output_shardings
    # XLA rearranges the program before it propagates: where an axis is lost, it can keep it.
    is_sure = not report.caveats
    for leaf, sharding in zip(report.outputs if is_sure else (), compiled if is_sure else (), strict=True):
        found = placement(leaf.spec, mesh.shape)
        got = placement(
            Spec(tuple((one,) if isinstance(one, str) else tuple(one or ()) for one in sharding.spec)),
            mesh.shape,
        )
        assert found == got, (leaf.path, str(leaf.spec), sharding.spec)
    with_axis = {
        "argument": {one.path: one.spec for one in report.arguments},
        "output": {one.path: one.spec for one in report.outputs},
    }
    rows = [axis for row in (*report.arguments, *report.outputs, *report.values) for axis in row.axes]
    for axis in rows:
        name = axis.mesh_axis.partition(":")[0]
        if axis.kind == "constraint":
            kind, _, spec = steps[axis.origin.line - 1]
            assert (kind, axis.origin.file) == ("constraint", "constraints.py")
            assert name in names_of(spec), (axis, spec)
        else:
            assert axis.kind is not None, axis
            assert any(name in names for names in with_axis[axis.kind][axis.path].axes)
