"""Programs with a constraint inside a scanned layer."""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report


def struct(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def constraint(mesh):
    """Return a function that replicates an array, as the axis types of a mesh ask for, and its line."""
    if mesh.axis_types[0] == jax.sharding.AxisType.Explicit:

        def kept(array):
            return jax.sharding.reshard(array, P())
    else:

        def kept(array):
            return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, P()))

    return kept, kept.__code__.co_firstlineno + 1


def scanned(mesh, dtype=jnp.float32, wrap=lambda layer: layer, is_gradient=False):
    kept, line = constraint(mesh)

    def layer(x, w):
        return jnp.tanh(x @ kept(w)), None

    def forward(weights, x):
        return jax.lax.scan(wrap(layer), x, weights)[0]

    def gradient(weights, x):
        return jax.grad(lambda weights: forward(weights, x).astype(jnp.float32).sum())(weights)

    arguments = (
        struct(mesh, (6, 512, 512), None, "data", dtype=dtype),
        struct(mesh, (64, 512), "data", dtype=dtype),
    )
    return gradient if is_gradient else forward, arguments, line


def two_weights(mesh):
    kept, line = constraint(mesh)

    def layer(x, w):
        return jnp.tanh(x @ kept(w["up"])) @ kept(w["down"]), None

    def forward(weights, x):
        return jax.lax.scan(layer, x, weights)[0]

    weights = {
        "up": struct(mesh, (6, 512, 1024), None, "data"),
        "down": struct(mesh, (6, 1024, 512), None, "data"),
    }
    return forward, (weights, struct(mesh, (64, 512), "data")), line


PROGRAMS = {
    "scan": scanned,
    "bfloat16": lambda mesh: scanned(mesh, dtype=jnp.bfloat16),
    "gradient": lambda mesh: scanned(mesh, is_gradient=True),
    "checkpoint": lambda mesh: scanned(mesh, wrap=jax.checkpoint, is_gradient=True),
    "two weights": two_weights,
}


def explained(name, mesh):
    """Return the report on a program, whose gathers have the line of their constraint, and it as their reason."""
    function, arguments, line = PROGRAMS[name](mesh)
    with jax.set_mesh(mesh):
        report = program_report(jax.jit(function), *arguments, explain=True)
    gathers = [one for one in report.collectives if one.kind == "all-gather"]
    assert {(str(one.origin), one.because[0].kind, one.because[0].origin.line) for one in gathers} == {
        (f"scanned.py:{line} kept", "constraint", line)
    }
    return report
