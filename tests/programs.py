"""Programs whose collectives are known: a training step of two layers, alone and scanned over four."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

needs_lines = pytest.mark.skipif(
    (0, 7) <= jax.__version_info__ < (0, 9),
    reason="on JAX 0.7 and 0.8, work has no lines: they can be mixed up",
)
"""Mark of tests on the lines of work."""


def cube():
    """Return a mesh of 8 devices: data=2, fsdp=2, tensor=2."""
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 2, 2), ("data", "fsdp", "tensor"))


def line(name="dp", size=8):
    """Return a mesh of one axis."""
    return Mesh(np.array(jax.devices()[:size]), (name,))


def abstract(mesh, spec, shape, dtype="float32"):
    """Return the type of a sharded array."""
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))


def loss(params, x):
    """Return the loss of a multilayer perceptron."""
    return jnp.mean((jax.nn.gelu(x @ params["wi"]) @ params["wo"]) ** 2)


def step(params, x):
    """Return the parameters after one step of gradient descent."""
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))


def step_arguments(mesh):
    """Return the arguments of ``step`` for a mesh with the axes data, fsdp and tensor."""
    params = {
        "wi": abstract(mesh, P("fsdp", "tensor"), (256, 1024)),
        "wo": abstract(mesh, P("tensor", "fsdp"), (1024, 256)),
    }
    return params, abstract(mesh, P(("data", "fsdp")), (32, 64, 256))


def block(x, weights):
    """Return the output of a residual block."""
    return x + jax.nn.gelu(x @ weights["wi"]) @ weights["wo"], None


def scanned(mesh, *, checkpoint):
    """Return a jitted training step of the block scanned over 4 layers, and its arguments."""
    params = {
        "wi": abstract(mesh, P(None, "fsdp", "tensor"), (4, 1024, 4096)),
        "wo": abstract(mesh, P(None, "tensor", "fsdp"), (4, 4096, 1024)),
    }
    layer = jax.checkpoint(block) if checkpoint else block

    def scanned_loss(params, x):
        return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)

    def scanned_step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(scanned_loss)(params, x))

    shardings = jax.tree.map(lambda leaf: leaf.sharding, params)
    x = abstract(mesh, P(("data", "fsdp")), (32, 256, 1024))
    return jax.jit(scanned_step, out_shardings=shardings), (params, x)


def refuse(monkeypatch, record=None):
    """Let XLA refuse all programs for their size, and write a record of each."""

    def compile_refused(*_, **__):
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 36.00G of 15.75G hbm."
        )

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_refused)
    monkeypatch.setattr("jax_array_info_core.programs.compiled.refused_program", lambda _: record)
