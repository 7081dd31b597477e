import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

shard_map = getattr(jax, "shard_map", None)
if shard_map is None:
    from jax.experimental.shard_map import shard_map

devices = globals()["devices"]  # from write.py
mesh = Mesh(devices.reshape(2, 2, 2), ("data", "fsdp", "tensor"))
dp = Mesh(devices, ("dp",))
xy = Mesh(devices.reshape(4, 2), ("x", "y"))


def array(shape, *axes, mesh=mesh, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*axes)))


def constraint(value, *axes, mesh=mesh):
    return lax.with_sharding_constraint(value, NamedSharding(mesh, P(*axes)))


def loss(params, x):
    return jnp.mean((jax.nn.gelu(x @ params["wi"]) @ params["wo"]) ** 2)


def step(params, x):
    gradients = jax.grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


def layer(w, x):
    return x + jax.nn.gelu(x @ w["wi"]) @ w["wo"]


def scanned(layer, params, x):
    y, _ = lax.scan(lambda c, w: (layer(w, c), None), x, params)
    return jnp.mean(y**2)


def scan(params, x):
    gradients = jax.grad(lambda params: scanned(layer, params, x))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


def checkpoint(params, x):
    gradients = jax.grad(lambda params: scanned(jax.checkpoint(layer), params, x))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


def nested(x, w):
    def inner(c, _):
        return jnp.tanh(constraint(c @ w, "data")), None

    def outer(c, _):
        return lax.scan(inner, c, None, length=4)[0], None

    return lax.scan(outer, x, None, length=3)[0]


def unknown(x, w):
    return lax.while_loop(lambda c: jnp.max(c) < 100, lambda c: jnp.tanh(c @ w), x)


def branch(p, x, w):
    return lax.cond(p, lambda c: jnp.tanh(c @ w), lambda c: c, x)


def scatter(a):
    return lax.psum_scatter(a, "tensor", scatter_dimension=0, tiled=True)


def exchange(a):
    return lax.all_to_all(a, "fsdp", split_axis=1, concat_axis=0, tiled=True)


def pipeline(a):
    def stage(c, _):
        return lax.ppermute(c, "data", [(0, 1), (1, 0)]) * 2, None

    return lax.scan(stage, a, None, length=5)[0]


def grouped(x, w):
    return constraint(lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=4), "dp", mesh=dp)


def uneven(a):
    return constraint(a, "dp", mesh=dp) * 2


def moved(a):
    return constraint(a * 2, None, ("x", "y"), mesh=xy) + 1


def update(state, x):
    return jax.tree.map(lambda a: a + x, state)


def half(state):
    return jax.tree.map(lambda a: a.astype(jnp.bfloat16), state)


def mapped(f, source, target):
    return jax.jit(shard_map(f, mesh=mesh, in_specs=source, out_specs=target))


weights = {
    "wi": array((256, 1024), "fsdp", "tensor"),
    "wo": array((1024, 256), "tensor", "fsdp"),
}
batch = array((32, 64, 256), ("data", "fsdp"))
stack = {
    "wi": array((4, 1024, 4096), None, "fsdp", "tensor"),
    "wo": array((4, 4096, 1024), None, "tensor", "fsdp"),
}
shardings = jax.tree.map(lambda one: one.sharding, stack)
tokens = array((32, 256, 1024), ("data", "fsdp"))
rows = array((64, 128), "data", "tensor")
square = array((128, 128), "tensor", None)
flag = array((), dtype=jnp.bool_)
split = array((64, 64), "dp", mesh=dp)

programs = {
    "step": lambda: jax.jit(step).lower(weights, batch),
    "scan": lambda: jax.jit(scan, out_shardings=shardings).lower(stack, tokens),
    "checkpoint": lambda: jax.jit(checkpoint, out_shardings=shardings).lower(stack, tokens),
    "scan_in_scan": lambda: jax.jit(nested).lower(rows, square),
    "while": lambda: jax.jit(unknown).lower(rows, square),
    "cond": lambda: jax.jit(branch).lower(flag, rows, square),
    "reduce_scatter": lambda: mapped(scatter, P("data"), P(("data", "tensor"))).lower(
        array((64, 128), "data")
    ),
    "all_to_all": lambda: mapped(exchange, P("fsdp"), P(None, "fsdp")).lower(array((64, 128), "fsdp")),
    "permute": lambda: mapped(pipeline, P("data"), P("data")).lower(array((64, 128), "data")),
    "convolution": lambda: jax.jit(grouped).lower(
        array((16, 8, 8, 8), "dp", mesh=dp), array((8, 2, 3, 3), mesh=dp)
    ),
    "uneven": lambda: jax.jit(uneven).lower(array((17, 16), mesh=dp)),
    "rematerialized": lambda: jax.jit(moved).lower(array((16, 16, 16), "y", None, "x", mesh=xy)),
    "donated": lambda: jax.jit(update, donate_argnums=0).lower({"a": split, "b": split}, array((), mesh=dp)),
    "donor": lambda: jax.jit(half, donate_argnums=0).lower({"a": split}),
}


def keep(name, lower, lowered, done):
    try:
        lowered[name] = lower()
    finally:
        done.release()
