"""Remedies of findings of a propagation, and of a mesh."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    mesh_report,
    propagation_report,
)
from tests.arrays import FakeDevice, mesh_of
from tests.core.trees.checks.remedies import (
    POD,
    PROPAGATION,
    kept,
    planned,
    remedy_of,
    struct,
)
from tests.programs import abstract, line


@remedy_of("JAI301", PROPAGATION)
def operands_over_other_axes():
    x, y = planned(POD, (4096, 8192), "data"), planned(POD, (4096, 8192), None, "data")
    yield propagation_report(jnp.add, x, y)
    yield "Shard one operand over another mesh axis, or constrain it before the operation."
    yield propagation_report(jnp.add, x, planned(POD, (4096, 8192), "data", "model"))
    mesh = x.sharding.mesh
    yield propagation_report(lambda x, y: x + kept(mesh, y, "data", None), x, y)


@remedy_of("JAI302", PROPAGATION)
def another_size():
    heads = lambda count: lambda x: x.reshape(4096, count, 3072 // count)  # noqa: E731
    yield propagation_report(heads(24), planned(POD, (4096, 3072), "data", "model"))
    yield "A dimension that does not divide needs another size, or another mesh axis."
    yield propagation_report(heads(32), planned(POD, (4096, 3072), "data", "model"))
    yield propagation_report(heads(24), planned({"data": 256, "model": 8}, (4096, 3072), "data", "model"))


@remedy_of("JAI302", PROPAGATION)
def written_in_the_constraint():
    x = planned(POD, (4096, 3072), "data", "model")
    mesh = x.sharding.mesh
    yield propagation_report(lambda x: kept(mesh, jnp.tanh(x), "data", None) * 2, x)
    yield "In the constraint, write the mesh axis, or P.UNCONSTRAINED"
    yield propagation_report(lambda x: kept(mesh, jnp.tanh(x), "data", "model") * 2, x)
    yield propagation_report(lambda x: kept(mesh, jnp.tanh(x), "data", P.UNCONSTRAINED) * 2, x)


@remedy_of("JAI303", PROPAGATION)
def constrained_values():
    wi, x = planned(POD, (8192, 32768), "data", "model"), planned(POD, (4096, 8192), "data")
    gradient = jax.grad(lambda wi, x: jnp.mean((x @ wi) ** 2))
    yield propagation_report(gradient, wi, x)
    yield "Constrain the value, or the argument or output that it comes from or goes to."
    yield propagation_report(jax.jit(gradient, out_shardings=wi.sharding), wi, x)
    yield propagation_report(lambda *args: kept(x.sharding.mesh, gradient(*args), "data", "model"), wi, x)


@remedy_of("JAI303", PROPAGATION)
def called_in_shard_map():
    mesh = line("b")
    x = abstract(mesh, P("b"), (16, 64, 64))

    def factor(x):
        results = (struct(*x.shape), jax.ShapeDtypeStruct(x.shape[:1], jnp.int32))
        return jax.ffi.ffi_call("lapack_spotrf_ffi", results)(x, uplo=np.uint8(ord("L")))[0] * 2

    inside = jax.shard_map(factor, mesh=mesh, in_specs=P("b"), out_specs=P("b"), check_vma=False)
    yield propagation_report(factor, x)
    yield "Call ffi_call inside jax.shard_map"
    yield propagation_report(inside, x)


@remedy_of("JAI303", PROPAGATION)
def a_callback_in_shard_map():
    mesh = line("b")
    x = abstract(mesh, P("b"), (16, 64, 64))

    def called(x):
        return jax.pure_callback(np.sin, struct(*x.shape), x) * 2

    yield propagation_report(called, x)
    yield "Call pure_callback inside jax.shard_map"
    yield propagation_report(
        jax.shard_map(called, mesh=mesh, in_specs=P("b"), out_specs=P("b"), check_vma=False), x
    )


@remedy_of("JAI304", PROPAGATION)
def constrained_lookup():
    mesh = {"fsdp": 8}
    table, rows = (
        planned(mesh, (4096, 256), None, "fsdp"),
        abstract(line("fsdp"), P("fsdp"), (64, 128), jnp.int32),
    )

    def gradient(on_rows):
        return jax.grad(lambda table, rows: jnp.mean((on_rows(table[rows]) @ table.T) ** 2))

    yield propagation_report(gradient(lambda h: h), table, rows)
    yield 'Write jax.lax.with_sharding_constraint(table[rows], P("fsdp")).'
    yield propagation_report(gradient(lambda h: kept(table.sharding.mesh, h, "fsdp")), table, rows)


@remedy_of("JAI401")
def in_the_order_of_make_mesh():
    devices = [FakeDevice(number, number // 4) for number in range(8)]
    ordered = [*devices]
    devices[3], devices[7] = devices[7], devices[3]
    yield mesh_report(mesh_of((4, 2), ("data", "model"), devices))
    yield "Order the devices with jax.make_mesh((4, 2), ('data', 'model'))."
    yield mesh_report(mesh_of((4, 2), ("data", "model"), ordered))
