"""Solvers and statistics."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat.arrays import per_shard
from tests.programs import abstract, line

from .registry import Program, keep, named


@named("pencil FFT")
def _():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("a", "b"))
    field = abstract(mesh, P("a", "b"), (32, 32, 32), "complex64")

    def pencils(x):
        x = lax.all_to_all(jnp.fft.fft(x, axis=2), "b", 2, 1, tiled=True)
        x = lax.all_to_all(jnp.fft.fft(x, axis=1), "a", 1, 0, tiled=True)
        return jnp.fft.fft(x, axis=0)

    return mesh, Program(per_shard(pencils, mesh, P("a", "b"), P(None, "a", "b")), (field,))


@named("batch of FFTs")
def _():
    mesh = line("batch")
    fields = abstract(mesh, P("batch"), (16, 64, 64), "complex64")
    own = per_shard(jnp.fft.fft2, mesh, P("batch"), P("batch"))
    return mesh, Program(lambda x: jnp.abs(own(x)).sum(), (fields,))


@named("halo exchange")
def _():
    mesh = line("rows")
    field = abstract(mesh, P("rows"), (512, 256))

    def sweep(_, x):
        above = lax.ppermute(x[-1:], "rows", [(n, (n + 1) % 8) for n in range(8)])
        below = lax.ppermute(x[:1], "rows", [(n, (n - 1) % 8) for n in range(8)])
        whole = jnp.concatenate([above, x, below])
        return (whole[2:] + whole[:-2] + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1)) / 4

    own = per_shard(lambda x: lax.fori_loop(0, 10, sweep, x), mesh, P("rows"), P("rows"))
    return mesh, Program(own, (field,))


@named("stencil, borders by XLA")
def _():
    mesh = line("rows")
    field = abstract(mesh, P("rows"), (512, 256))

    def sweep(_, x):
        around = jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1)
        return keep(mesh, around / 4, "rows")

    return mesh, Program(lambda x: lax.fori_loop(0, 10, sweep, x), (field,), P("rows"))


@named("histogram of sharded values, replicated as requested")
def _():
    mesh = line("data")
    ids = abstract(mesh, P("data"), (2**16,), "int32")
    return mesh, Program(lambda ids: jnp.zeros(2**15).at[ids].add(1.0), (ids,), P())


@named("deposit into parts, exchanged by the user")
def _():
    mesh = line("rows")
    ids = abstract(mesh, P("rows"), (2**14, 2), "int32")

    def deposit(ids):
        rows = ids[:, 0] % 34
        own = jnp.zeros((34, 256)).at[rows, ids[:, 1]].add(1.0)
        below = lax.ppermute(own[-2:], "rows", [(n, (n + 1) % 8) for n in range(8)])
        return own[:-2].at[:2].add(below)

    return mesh, Program(per_shard(deposit, mesh, P("rows"), P("rows")), (ids,))


@named("batch of factorizations, QR, SVD and sorts")
def _():
    mesh = line("batch")
    matrices = abstract(mesh, P("batch"), (16, 48, 48))

    def own(x):
        square = x @ jnp.swapaxes(x, -1, -2) + jnp.eye(48)
        factor = jnp.linalg.cholesky(square)
        q, r = jnp.linalg.qr(x)
        return jnp.sort(factor, -1) + q + r + jnp.linalg.svd(x, compute_uv=False)[..., None]

    return mesh, Program(per_shard(own, mesh, P("batch"), P("batch")), (matrices,))


@named("k-means of sharded points")
def _():
    mesh = line("data")
    points, centers = abstract(mesh, P("data"), (8192, 64)), abstract(mesh, P(), (1024, 64))

    def turn(points, centers):
        nearest = jnp.argmax(points @ centers.T, 1)
        sums = jax.ops.segment_sum(points, nearest, len(centers))
        return sums / jnp.maximum(jnp.bincount(nearest, length=len(centers)), 1)[:, None]

    f = lambda x, c: lax.fori_loop(0, 5, lambda _, c: turn(x, c), c)  # noqa: E731
    return mesh, Program(f, (points, centers), P())
