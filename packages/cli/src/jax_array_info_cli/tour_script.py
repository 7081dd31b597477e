"""The cells of ``jai-cli demo``, which run on any number of devices."""

# %% An array: which slice is on which device
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_array_info import sharding_vis

pairs = np.reshape(jax.devices(), (-1, 2 - jax.device_count() % 2))
mesh = Mesh(pairs, ("fsdp", "tensor"))
n = 64 * mesh.size
w = jax.device_put(jnp.zeros((n, n)), NamedSharding(mesh, P("fsdp", "tensor")))
sharding_vis(w)

# %% A model that does not fit, and one that does: only shapes, no arrays
from jax_array_info import print_check

model = {"embed": jax.ShapeDtypeStruct((131072, 4096), jnp.bfloat16)}
for size in (2, 4):
    print_check(model, mesh={"fsdp": size}, specs=P("fsdp"), hbm_nbytes="0.4GiB")

# %% A step: what it sends, and why
from jax_array_info import print_program

step = jax.jit(lambda w: w @ w.T, out_shardings=w.sharding)
print_program(step, w, max_rows=1)

# %% A leak, found with its line
from jax_array_info import print_growth, track_arrays

losses = []
with track_arrays() as growth:
    for _ in range(4):
        losses.append(jnp.zeros((1024, 64)))
        growth.step()
print_growth(growth)

# %% A recompile, explained
from jax_array_info import print_compilations, watch_compiles

total = jax.jit(lambda batch: batch.sum())
with watch_compiles(total) as watch:
    for size in (32, 32, 20):
        total(jnp.ones((size, 8)))
print_compilations(watch)
