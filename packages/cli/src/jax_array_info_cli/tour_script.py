"""The cells of ``jai-cli demo``, which run on any number of devices."""

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

# %% Replicated: every device holds the whole array
n = len(jax.devices())
mesh = Mesh(np.array(jax.devices()), ("data",))
replicated = jax.device_put(weights, NamedSharding(mesh, P()))
sharding_info(replicated, "replicated")
sharding_vis(replicated)

# %% Sharded over one mesh axis
by_data = NamedSharding(mesh, P(None, "data"))
batch = jax.device_put(jnp.zeros((4 * n, 4 * n, 3)), by_data)
sharding_info(batch, "batch")
sharding_vis(batch)

# %% Sharded over two mesh axes
rows = max(k for k in range(1, n + 1) if n % k == 0 and k * k <= n)
devices = np.array(jax.devices()).reshape(n // rows, rows)
grid = Mesh(devices, ("data", "model"))
by_both = NamedSharding(grid, P("data", "model"))
both = jax.device_put(jnp.zeros((4 * n, 4 * n)), by_both)
sharding_info(both, "both")
sharding_vis(both)

# %% One array axis sharded over both mesh axes, model first
by_product = NamedSharding(grid, P(None, ("model", "data")))
compound = jax.device_put(jnp.zeros((4 * n, 4 * n)), by_product)
sharding_info(compound, "compound")
sharding_vis(compound)

# %% Partly replicated: sharded over model, replicated over data
by_model = NamedSharding(grid, P(None, "model"))
partial = jax.device_put(jnp.zeros((4 * n, 4 * n)), by_model)
sharding_info(partial, "partial")
sharding_vis(partial)

# %% A permuted mesh: each shard is shown on the device that holds it
backwards = Mesh(np.array(jax.devices()[::-1]), ("data",))
permuted = jax.device_put(jnp.zeros(4 * n), NamedSharding(backwards, P("data")))
simple_array_info(permuted, "permuted")
sharding_vis(permuted)


# %% A traced value: inside jit, XLA chooses the sharding at compile time
@jax.jit
def double(x):
    sharding_info(x, "x")
    return 2 * x


doubled = double(batch)
sharding_info(doubled)

# %% Labels name arrays in tables without keeping them alive
label_array(doubled, "doubled")
label_array(replicated, None)  # removes the label

# %% Live arrays: the size column is the size on one device
step = jnp.array(42)
print_array_stats()

# %% Memory statistics: a CPU reports none, override= takes those of a GPU
device = jax.local_devices()[0]
pretty_memory_stats(device)
stats = {"num_allocs": 222, "bytes_in_use": 3897557504}
pretty_memory_stats(device, override=stats)
