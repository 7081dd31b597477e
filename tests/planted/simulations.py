"""Simulations with a mistake that lets each device do the work of others, or hold what others hold."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat.arrays import per_shard
from tests.programs import abstract, line
from tests.right_programs.registry import grid

from .registry import planted


def keep_if(is_right, x, *spec):
    """Return an array with a constraint in the right program, and as it is in the other."""
    return lax.with_sharding_constraint(x, P(*spec)) if is_right else x


@planted("Monte Carlo, samples of an option's paths")
def _(is_right):
    def price(key):
        steps = keep_if(is_right, jax.random.normal(key, (1 << 17, 64)), "x")  # mistake
        paths = 100 * jnp.exp(jnp.cumsum(steps * 0.02 - 0.0002, 1))
        return jnp.mean(jnp.maximum(jnp.mean(paths, 1) - 100, 0))

    return line("x"), price, jax.eval_shape(lambda: jax.random.key(0))


@planted("quadrature on a grid that is made inside")
def _(is_right):
    def integral(width):
        x = keep_if(is_right, (jnp.arange(1 << 24) + 0.5) / (1 << 24), "x")
        peaks = jnp.exp(-x * x / width) + jnp.tanh(x - width) + jnp.log1p(x * width)  # mistake
        return jnp.mean(jnp.sin(peaks) * jnp.cos(3 * x))  # mistake

    return line("x"), integral, jax.ShapeDtypeStruct((), jnp.float32)


@planted("Poisson's equation, a transform in two dimensions at once")
def _(is_right):
    mesh = line("x")

    def solve(density, symbol):
        if is_right:
            modes = lax.with_sharding_constraint(jnp.fft.fft(density, axis=2), P(None, "x"))
            modes = lax.with_sharding_constraint(modes, P(None, None, "x"))
            return jnp.fft.fft(modes, axis=1) * symbol
        return jnp.fft.fft2(density) * symbol  # mistake

    density = abstract(mesh, P(None, "x"), (4, 1024, 1024), "complex64")
    return mesh, solve, density, abstract(mesh, P(None, "x"), (1024, 1024))


@planted("heat equation, the first field is whole")
def _(is_right):
    def heat(key):
        field = keep_if(is_right, jnp.sin(jnp.arange(1 << 20).reshape(1024, 1024) * 1e-3), "x")

        def turn(_, u):
            around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
            return u + 0.1 * jnp.tanh(around - 4 * u) + key  # mistake

        return lax.fori_loop(0, 100, turn, field)

    return line("x"), heat, jax.ShapeDtypeStruct((), jnp.float32)


@planted("particles, all pairs of gathered positions")
def _(is_right):
    mesh = line("x")

    def forces(places, charges):
        places = keep_if(not is_right, places)
        kernel = jnp.exp(-2 * jnp.einsum("id,jd->ij", places, places))  # mistake
        return jnp.einsum("ij,jd->id", kernel, charges)  # mistake

    return mesh, forces, abstract(mesh, P("x"), (4096, 16)), abstract(mesh, P(), (4096, 16))


@planted("Gaussian processes, arguments that are not sharded")
def _(is_right):
    mesh, spec = line("x"), P("x") if is_right else P()

    def likelihood(points, values):
        distance = jnp.sum((points[:, :, None] - points[:, None]) ** 2, -1)
        factor = jnp.linalg.cholesky(jnp.exp(-distance) + 0.1 * jnp.eye(256))  # mistake
        return jax.vmap(lambda f, v: jax.scipy.linalg.cho_solve((f, True), v))(factor, values)

    return mesh, likelihood, abstract(mesh, spec, (16, 256, 2)), abstract(mesh, spec, (16, 256))


@planted("band structure, k-points that are made inside")
def _(is_right):
    mesh = line("x")

    def bands(hopping):
        k = keep_if(is_right, jnp.linspace(0, 3, 64), "x")
        return jnp.linalg.eigvalsh(jnp.cos(k)[:, None, None] * (hopping + hopping.T))  # mistake

    return mesh, bands, abstract(mesh, P(), (96, 96))


@planted("conjugate gradients on a whole matrix")
def _(is_right):
    mesh = line("x")

    def solve(matrix, right):
        matrix = keep_if(not is_right, matrix)

        def turn(state):
            x, r, p, rr = state
            ap = matrix @ p  # mistake
            alpha = rr / jnp.sum(p * ap)
            x, r = x + alpha * p, r - alpha * ap
            new = jnp.sum(r * r)
            return x, r, r + (new / rr) * p, new

        start = (right * 0, right, right, jnp.sum(right * right))
        return lax.while_loop(lambda state: state[3] > 1e-6, turn, start)[0]

    return mesh, solve, abstract(mesh, P("x"), (4096, 4096)), abstract(mesh, P(), (4096, 8))


@planted("Kalman filters, a scan over sharded times")
def _(is_right):
    mesh = line("x")

    def tracks(measured, f):
        start = jnp.broadcast_to(jnp.eye(16), (512, 16, 16))

        def turn(state, z):
            mean, cov = state
            cov = jnp.einsum("ij,tjk,lk->til", f, cov, f) + 0.1 * jnp.eye(16)  # mistake
            gain = jnp.linalg.inv(cov[:, :8, :8] + jnp.eye(8))  # mistake
            gain = jnp.einsum("tij,tjk->tik", cov[:, :, :8], gain)  # mistake
            mean = mean + jnp.einsum("tij,tj->ti", gain, z - mean[:, :8])
            return (mean, cov - jnp.einsum("tij,tjk->tik", gain, cov[:, :8])), mean  # mistake

        return lax.scan(turn, (jnp.zeros((512, 16)), start), measured)[1]

    spec = P(None, "x") if is_right else P("x")
    return mesh, tracks, abstract(mesh, spec, (64, 512, 8)), abstract(mesh, P(), (16, 16))


@planted("graph network, features of all nodes on each device")
def _(is_right):
    mesh = line("x")

    def layer(nodes, senders, receivers, w):
        messages = jax.ops.segment_sum(nodes[senders], receivers, 4096)
        return jax.nn.relu(keep_if(is_right, messages, "x") @ w)  # mistake

    edges = abstract(mesh, P("x"), (32768,), "int32")
    return mesh, layer, abstract(mesh, P(), (4096, 128)), edges, edges, abstract(mesh, P(), (128, 256))


@planted("tensor network, a bond that is gathered")
def _(is_right):
    mesh = grid()

    def contract(left, middle, right):
        left = keep_if(not is_right, left, None, "tensor")
        environment = jnp.einsum("ab,bpc->apc", left, middle)  # mistake
        return jnp.einsum("apc,cd->apd", environment, right)  # mistake

    return (
        mesh,
        contract,
        abstract(mesh, P("data", "tensor"), (512, 512)),
        abstract(mesh, P(None, None, "tensor"), (512, 2, 512)),
        abstract(mesh, P("tensor"), (512, 512)),
    )


@planted("spectral transform after a sum over devices")
def _(is_right):
    mesh = line("x")

    def transform(field, basis, damping):
        modes = keep_if(is_right, field @ basis, "x")
        return jnp.sin(modes) @ damping  # mistake

    return (
        mesh,
        transform,
        abstract(mesh, P(None, "x"), (1024, 1024)),
        abstract(mesh, P("x"), (1024, 512)),
        abstract(mesh, P(), (512, 512)),
    )


@planted("keys of particles, sorted all together")
def _(is_right):
    mesh = line("x")

    def ordered(keys):
        return jnp.sort(keys if is_right else keys.reshape(-1))  # mistake

    return mesh, ordered, abstract(mesh, P("x"), (4096, 4096))


@planted("walkers one after the other")
def _(is_right):
    mesh = line("x")

    def walk(walkers, drift):
        def turn(place):
            return jnp.tanh(jnp.tanh(place @ drift) @ drift)  # mistake

        return jax.vmap(turn)(walkers) if is_right else lax.map(turn, walkers)

    return mesh, walk, abstract(mesh, P("x"), (64, 128, 256)), abstract(mesh, P(), (256, 256))


@planted("modes of snapshots by a singular value decomposition")
def _(is_right):
    mesh = line("x")

    def modes(snapshots):
        if is_right:
            values, vectors = jnp.linalg.eigh(snapshots.T @ snapshots)
            return snapshots @ (vectors / jnp.sqrt(values + 1e-6))
        return jnp.linalg.svd(snapshots, full_matrices=False)[0]  # mistake

    return mesh, modes, abstract(mesh, P("x"), (65536, 32))


@planted("bootstrap, samples drawn from all rows")
def _(is_right):
    mesh = line("x")

    def fit(rows, targets, key):
        chosen = jax.random.randint(key, (16, len(rows)), 0, len(rows))

        def once(place):
            x = keep_if(is_right, rows[place], "x")
            y = keep_if(is_right, targets[place], "x")
            return x.T @ x, x.T @ y  # mistake

        return lax.map(once, chosen)

    key = jax.eval_shape(lambda: jax.random.key(0))
    return mesh, fit, abstract(mesh, P("x"), (8192, 64)), abstract(mesh, P("x"), (8192,)), key


@planted("variational Monte Carlo, chains merged with sharded walkers")
def _(is_right):
    mesh = line("x")

    def energy(walkers, wi, wo):
        flat = walkers if is_right else walkers.reshape(-1, 64)
        return jnp.mean(jnp.tanh(flat @ wi) @ wo)  # mistake

    walkers = abstract(mesh, P(None, "x"), (6, 1024, 64))
    return mesh, energy, walkers, abstract(mesh, P(), (64, 512)), abstract(mesh, P(), (512, 1))


@planted("implicit steps that factorize one matrix in each step")
def _(is_right):
    mesh = line("x")

    def steps(fields, matrix):
        inverse = jnp.linalg.inv(matrix)

        def turn(u, _):
            return inverse @ u if is_right else jnp.linalg.solve(matrix, u), None  # mistake

        return lax.scan(turn, fields, None, length=40)[0]

    return mesh, steps, abstract(mesh, P(None, "x"), (256, 2048)), abstract(mesh, P(), (256, 256))


@planted("structure factor in a shard_map whose inputs are whole")
def _(is_right):
    mesh = line("x")

    def factor(places, k):
        waves = jnp.exp(1j * (places @ k.T))  # mistake
        total = jnp.sum(waves, 0)
        return lax.psum(total, "x") if is_right else total

    spec = P("x") if is_right else P()
    sharded = per_shard(factor, mesh, (spec, P()), P())
    return mesh, sharded, abstract(mesh, P("x"), (16384, 64)), abstract(mesh, P(), (256, 64))


@planted("waves, a state that returns whole", "JAI201")
def _(is_right):
    mesh = line("x")

    def step(u, propagator):
        return keep_if(is_right, jnp.einsum("ij,jk->ik", propagator, u), "x") * 0.99  # mistake

    return mesh, step, abstract(mesh, P("x"), (2048, 256)), abstract(mesh, P(None, "x"), (2048, 2048))
