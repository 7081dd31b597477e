"""What ``jai-cli demo`` shows, cell by cell. Runs on any number of devices."""

# %% An array on one device
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import label_array, pretty_memory_stats, print_array_stats
from jax_array_info import sharding_info, sharding_vis, simple_array_info

weights = jnp.ones((128, 128))
sharding_info(weights, "weights")

# %% Replicated: every device holds all of it
n = len(jax.devices())
mesh = Mesh(np.array(jax.devices()), ("data",))
replicated = jax.device_put(weights, NamedSharding(mesh, P()))
sharding_info(replicated, "replicated")
sharding_vis(replicated)

# %% One axis cut by one mesh axis
batch = jax.device_put(jnp.zeros((16 * n, 128, 3)), NamedSharding(mesh, P("data")))
sharding_info(batch, "batch")
sharding_vis(batch)

# %% Two axes cut by two mesh axes
rows = max(k for k in range(1, n + 1) if n % k == 0 and k * k <= n)
grid = Mesh(np.array(jax.devices()).reshape(n // rows, rows), ("data", "model"))
both = jax.device_put(jnp.zeros((16 * n, 16 * n)), NamedSharding(grid, P("data", "model")))
sharding_info(both, "both")
sharding_vis(both)

# %% One axis cut by both mesh axes, model the more major
compound = jax.device_put(jnp.zeros((4, 16 * n)), NamedSharding(grid, P(None, ("model", "data"))))
sharding_info(compound, "compound")
sharding_vis(compound)

# %% Partly replicated: cut by model, copied along data
partial = jax.device_put(jnp.zeros((128, 16 * n)), NamedSharding(grid, P(None, "model")))
sharding_info(partial, "partial")
sharding_vis(partial)

# %% A permuted mesh: the device named is the one that holds the slice
backwards = Mesh(np.array(jax.devices()[::-1]), ("data",))
permuted = jax.device_put(jnp.zeros(16 * n), NamedSharding(backwards, P("data")))
simple_array_info(permuted, "permuted")
sharding_vis(permuted)


# %% Inside jit: what is known while JAX traces
@jax.jit
def double(x):
    sharding_info(x, "x")
    return 2 * x


doubled = double(batch)
sharding_info(doubled, "doubled")

# %% Labels: names for the table, which keep nothing alive
label_array(doubled, "activations")
label_array(replicated, None)

# %% Everything that is alive
step = jnp.array(42)
print_array_stats()

# %% Memory statistics of a device: CPU devices have none, these are a GPU's
pretty_memory_stats(jax.local_devices()[0])
gpu_stats = {"num_allocs": 222, "bytes_in_use": 3897557504, "peak_bytes_in_use": 32087482368}
pretty_memory_stats(jax.local_devices()[0], override=gpu_stats)
