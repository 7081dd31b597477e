"""Compiled programs as plain values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat.programs import program_record
from jax_array_info_core.programs.program_report import module_of

pytestmark = pytest.mark.once_per_version


def block(w, x):
    return jnp.tanh(x @ w) + x


def loss(w, x):
    y, _ = jax.lax.scan(lambda x, w: (block(w, x), None), x, w)
    return jnp.mean(y**2)


@pytest.mark.needs_devices(8)
def test_instructions_have_their_lines():
    """On JAX 0.8, the table of stack frames is in another order than the instructions tell."""
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("d", "t"))
    w = jax.ShapeDtypeStruct((4, 64, 64), jnp.float32, sharding=NamedSharding(mesh, P(None, "t")))
    x = jax.ShapeDtypeStruct((8, 64), jnp.float32, sharding=NamedSharding(mesh, P("d")))
    traced = jax.jit(jax.grad(loss)).trace(w, x)
    lowered = traced.lower()
    module = module_of(program_record(lowered.compile()), lowered)
    assert module is not None
    assert module.unknown_types == ()
    instructions = [one for each in module.computations.values() for one in each.instructions]
    frames = {one.frames[0][:2] for one in instructions if one.opcode in ("dot", "tanh") and one.frames}
    assert frames == {(__file__, block.__code__.co_firstlineno + 1)}


@pytest.mark.needs_devices(8)
def test_a_constant_that_xla_folds_does_not_hide_the_lines():
    """The gradient of the sum is a constant, whose line has no other operation."""

    def square(v):
        return ((v @ v) ** 2).sum()

    mesh = Mesh(np.array(jax.devices()).reshape(2, 2, 2), ("data", "fsdp", "tensor"))
    x = jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    lowered = jax.jit(jax.grad(square)).lower(x)
    module = module_of(program_record(lowered.compile()), lowered)
    assert module is not None
    instructions = [one for each in module.computations.values() for one in each.instructions]
    frames = {one.frames[0][:2] if one.frames else None for one in instructions if one.opcode == "dot"}
    assert frames == {(__file__, square.__code__.co_firstlineno + 1)}
