"""Programs with a sharding that is wrong, each with a function of its arguments, and two that are right."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P


def _struct(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


@jax.jit
def mlp_forgotten(params, x):
    """The batch is replicated: P("data") is forgotten."""

    def loss(params):
        h = jax.nn.relu(x @ params["up"])
        y = h @ params["down"]
        return (y**2).mean()

    return jax.value_and_grad(loss)(params)


def mlp_forgotten_args(mesh):
    up = _struct(mesh, (256, 1024), None, "model")
    down = _struct(mesh, (1024, 256), "model", None)
    return {"up": up, "down": down}, _struct(mesh, (512, 256))


@jax.jit
def fsdp_contracted(params, x):
    """The weights are sharded over the axis of the batch, along the dimension that is summed."""

    def loss(params):
        @jax.checkpoint
        def layer(h, w):
            h = jax.nn.relu(h @ w["up"])
            h = h @ w["down"]
            return h, None

        h, _ = lax.scan(layer, x, params)
        return (h**2).mean()

    return jax.value_and_grad(loss)(params)


def fsdp_contracted_args(mesh):
    up = _struct(mesh, (4, 256, 1024), None, "data", "model")
    down = _struct(mesh, (4, 1024, 256), None, "model", "data")
    return {"up": up, "down": down}, _struct(mesh, (4096, 256), "data")


@jax.jit
def heads_uneven(params, x):
    """Six heads do not divide over four devices."""
    batch, length, _ = x.shape
    q = (x @ params["q"]).reshape(batch, length, 6, 32)
    k = (x @ params["k"]).reshape(batch, length, 6, 32)
    v = (x @ params["v"]).reshape(batch, length, 6, 32)
    a = jax.nn.softmax(jnp.einsum("bthd,bshd->bhts", q, k))
    o = jnp.einsum("bhts,bshd->bthd", a, v)
    o = o.reshape(batch, length, 192)
    return o @ params["o"]


def heads_uneven_args(mesh):
    names = {"q": (None, "model"), "k": (None, "model"), "v": (None, "model"), "o": ("model", None)}
    params = {name: _struct(mesh, (192, 192), *spec) for name, spec in names.items()}
    return params, _struct(mesh, (8, 128, 192), "data")


@jax.jit
def embed_vocab(table, tokens, w):
    """The vocabulary is sharded over the axis of the batch."""
    h = table[tokens]
    h = jax.nn.relu(h @ w)
    return h.sum(axis=1)


def embed_vocab_args(mesh):
    tokens = _struct(mesh, (64, 64), "data", dtype=jnp.int32)
    return _struct(mesh, (16384, 256), "data", None), tokens, _struct(mesh, (256, 512), None, "model")


@jax.jit
def moe_dispatch(params, x):
    """The input of the experts has no constraint."""
    gates = jax.nn.softmax(x @ params["gate"])
    chosen = jax.nn.one_hot(jnp.argmax(gates, -1), 8)
    inputs = jnp.einsum("te,td->etd", chosen, x)
    h = jax.nn.relu(jnp.einsum("etd,edf->etf", inputs, params["up"]))
    y = jnp.einsum("etf,efd->etd", h, params["down"])
    return jnp.einsum("etd,te->td", y, chosen * gates)


def moe_dispatch_args(mesh):
    params = {
        "gate": _struct(mesh, (128, 8)),
        "up": _struct(mesh, (8, 128, 256), "data", None, "model"),
        "down": _struct(mesh, (8, 256, 128), "data", "model", None),
    }
    return params, _struct(mesh, (1024, 128), "data")


@jax.jit
def logits_xent(head, h, labels):
    """Logits of a sharded vocabulary are gathered for the labels."""

    def loss(head):
        logits = h @ head
        logs = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()

    return jax.value_and_grad(loss)(head)


def logits_xent_args(mesh):
    labels = _struct(mesh, (512,), "data", dtype=jnp.int32)
    return _struct(mesh, (256, 8192), "data", "model"), _struct(mesh, (512, 256), "data"), labels


def kv_cache(cache, k, q, position):
    """The cache is sharded over the sequence, and written at a position."""
    cache = lax.dynamic_update_slice(cache, k, (0, position, 0, 0))
    a = jnp.einsum("bhd,bshd->bhs", q, cache)
    a = jax.nn.softmax(a)
    return cache, jnp.einsum("bhs,bshd->bhd", a, cache)


kv_cache = jax.jit(kv_cache, donate_argnums=0)


def kv_cache_args(mesh):
    return (
        _struct(mesh, (16, 1024, 8, 32), None, "data", None, None),
        _struct(mesh, (16, 1, 8, 32), "data", None, "model"),
        _struct(mesh, (16, 8, 32), "data", "model"),
        _struct(mesh, (), dtype=jnp.int32),
    )


@jax.jit
def fft_pencil(r):
    """A Fourier transform of pencils, along the local dimension first."""
    a = jnp.fft.fft(r, axis=2)
    b = jnp.fft.fft(a, axis=1)
    c = jnp.fft.fft(b, axis=0)
    return jnp.abs(c) ** 2


def fft_pencil_args(mesh):
    return _struct(mesh, (64, 64, 64), "data", "model", None, dtype=jnp.complex64)


@jax.jit
def scatter_mass(positions, mass):
    """Particles are sharded over all devices, and their density over none."""
    cell = jnp.floor(positions * 64).astype(jnp.int32)
    rho = jnp.zeros((64, 64, 64))
    rho = rho.at[cell[:, 0], cell[:, 1], cell[:, 2]].add(mass)
    phi = rho - rho.mean()
    return jnp.cumsum(phi, axis=2)


def scatter_mass_args(mesh):
    every = ("data", "model")
    return _struct(mesh, (16384, 3), every, None), _struct(mesh, (16384,), every)


def moments_mismatch(p, mu, nu, x):
    """The moments are sharded in another way than the parameters."""
    g = jax.grad(lambda p: ((x @ p) ** 2).mean())(p)
    mu = 0.9 * mu + 0.1 * g
    nu = 0.99 * nu + 0.01 * g * g
    p = p - 0.01 * mu / (jnp.sqrt(nu) + 1e-8)
    return p, mu, nu


moments_mismatch = jax.jit(moments_mismatch, donate_argnums=(0, 1, 2))


def moments_mismatch_args(mesh):
    p = _struct(mesh, (1024, 1024), None, "model")
    moment = _struct(mesh, (1024, 1024), "data", None)
    return p, moment, moment, _struct(mesh, (512, 1024), "data")


def out_replicated(params, x):
    """A gradient step without out_shardings."""
    g = jax.grad(lambda p: (jnp.tanh(x @ p["a"]) @ p["b"]).sum())(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, g)


out_replicated = jax.jit(out_replicated, donate_argnums=0)


def out_replicated_args(mesh):
    params = {"a": _struct(mesh, (512, 1024)), "b": _struct(mesh, (1024, 512))}
    return params, _struct(mesh, (512, 512), "data", None)


@jax.jit
def carry_reshard(ws, x):
    """The carry of a scan leaves each iteration in another sharding."""

    def body(h, w):
        h = jnp.tanh(h @ w)
        h = jnp.transpose(h)
        return h, None

    h, _ = lax.scan(body, x, ws)
    return h


def carry_reshard_args(mesh):
    return _struct(mesh, (6, 512, 512)), _struct(mesh, (512, 512), "data", None)


def backward_gather(w1, w2, x, *, mesh):
    """The forward pass is local, and the backward pass gathers."""

    def loss(w1, w2):
        h = jnp.tanh(x @ w1)
        y = h @ w2
        y = lax.with_sharding_constraint(y, NamedSharding(mesh, P("data", "model")))
        return (y**2).mean()

    return jax.grad(loss, argnums=(0, 1))(w1, w2)


def backward_gather_args(mesh):
    w1, w2 = _struct(mesh, (256, 1024), None, "model"), _struct(mesh, (1024, 256), None, "model")
    return w1, w2, _struct(mesh, (2048, 256), "data")


@jax.jit
def stencil(u):
    """Values are sorted along the sharded dimension."""
    v = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) - 2 * u
    w = v.reshape(-1)
    return jnp.sort(w.reshape(256, 1024), axis=1)


def stencil_args(mesh):
    return _struct(mesh, (256, 1024), None, ("data", "model"))


@jax.jit
def right_mlp(params, x):
    """Right: tensor and data parallelism, whose sums are needed."""
    h = jax.nn.relu(x @ params["up"])
    y = h @ params["down"]
    return (y**2).mean()


def right_mlp_args(mesh):
    up = _struct(mesh, (256, 1024), None, "model")
    down = _struct(mesh, (1024, 256), "model", None)
    return {"up": up, "down": down}, _struct(mesh, (512, 256), "data")


@jax.jit
def right_dp(w, x):
    """Right: data parallelism, which sends nothing."""
    h = jnp.tanh(x @ w)
    return h.sum(axis=1)


def right_dp_args(mesh):
    return _struct(mesh, (256, 256)), _struct(mesh, (512, 256), ("data", "model"))
