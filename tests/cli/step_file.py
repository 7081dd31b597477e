"""A file with functions to compile, for tests of ``jai-cli program``."""

STEP = """
import collections, dataclasses, functools, os, pickle, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

print("printed by the file")
os.system("echo printed by a program")
ARGV = list(sys.argv)

def array(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

def loss(params, x):
    return jnp.mean((jax.nn.gelu(x @ params["wi"]) @ params["wo"]) ** 2)

def step(params, x):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

jitted = jax.jit(step, donate_argnums=0)
lowered = jax.jit(lambda a: 2 * a).lower(jax.ShapeDtypeStruct((8,), jnp.float32))
traced, compiled = jax.jit(lambda a: 2 * a).trace(jnp.ones(8)), lowered.compile()

def abstract(mesh):
    params = {"wi": array(mesh, (256, 1024), "fsdp", "tensor"), "wo": array(mesh, (1024, 256), "tensor", "fsdp")}
    return params, array(mesh, (32, 64, 256), ("data", "fsdp"))

def twice(x):
    return jax.tree.map(lambda a: 2 * a, x)

State = collections.namedtuple("State", "w b")

@dataclasses.dataclass
class Saved:
    w: int

class Model:
    @staticmethod
    def forward(x):
        return x + 1

MESH = Mesh(jax.devices(), ("own",))

def as_list(mesh): return [array(mesh, (8,), "data")]
def as_array(mesh): return array(mesh, (8,), "data")
def as_dict(mesh): return {"w": array(mesh, (8,), "data")}
def as_state(mesh): return State(array(mesh, (8,), "data"), array(mesh, (8,), "data"))
def of_any_name(devices): return as_array(devices)
def without_mesh(size=8): return array(MESH, (size,), "own")
def none(mesh): return None
def of_two(size, depth, *, mesh): return None
def exits(): sys.exit(3)
def text(): return "abc"
def of_keys(): return {1: 1.0, "a": 1.0}
def in_dict(mesh): return {"w": array(mesh, (8,), "data"), "b": object()}
def on_two(): return array(Mesh(np.array(jax.devices()[:2]), ("own",)), (8,), "own")
def with_name(mesh): return as_array(mesh), "relu"
def raises(mesh): raise ValueError("no arguments\\nsecond line")

def constrained(x):
    return jax.lax.with_sharding_constraint(x, P("tensor"))

def on_own_mesh(x):
    return jax.lax.with_sharding_constraint(x, P("own")) + 1

def on_own_mesh_alone(x):
    return jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P("own"))) + 1

def on_mesh(x, mesh):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("tensor"))) + 1

on_static_mesh = jax.jit(on_mesh, static_argnums=1)

def with_mesh(mesh): return as_array(mesh), mesh

def saved(x):
    assert pickle.loads(pickle.dumps(Saved(1))) == Saved(1)
    assert __name__ != "__main__"
    return x

@functools.partial(jax.jit, static_argnums=1)
def of_name(x, name):
    return x + len(name)

def ends(x):
    raise BaseException("no answer")

def branches(x):
    return x if x.sum() else -x

number = 3
"""
MESH = ("--mesh", "data=2,fsdp=2,tensor=2")
