"""The cells of ``jai-cli demo``, which run on any number of devices. Each fits 24 lines with its output."""

# %% An array: which slice is on which device
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import jax_array_info as jai

pairs = np.reshape(jax.devices(), (-1, 2 - jax.device_count() % 2))
mesh = Mesh(pairs, ("fsdp", "tensor"))
n = 64 * mesh.size
w = jax.device_put(jnp.zeros((n, n)), NamedSharding(mesh, P("fsdp", "tensor")))
jai.sharding_vis(w)

# %% A model that does not fit, and one that does: only shapes, no arrays
model = {"embed": jax.ShapeDtypeStruct((131072, 4096), jnp.bfloat16)}
for sizes in ({"fsdp": 2}, {"fsdp": 4}):
    jai.print_check(model, mesh=sizes, specs=P("fsdp"), hbm_nbytes="0.4GiB")

# %% A step: what it sends, and why
x = jax.device_put(jnp.ones((n // 8, n)), NamedSharding(mesh, P("fsdp")))
step = jax.jit(lambda x, w: x @ w, out_shardings=w.sharding)
jai.print_program(step, x, w)

# %% A leak, found with its line
losses = []
with jai.track_arrays() as growth:
    for _ in range(4):
        losses.append(jnp.zeros((1024, 64)))
        growth.step()
jai.print_growth(growth)

# %% A recompile, explained
total = jax.jit(lambda batch: batch.sum())
with jai.watch_compiles(total) as watch:
    for size in (32, 32, 20):
        total(jnp.ones((size, 8)))
jai.print_compilations(watch)
