"""The cells of ``jai-cli demo --processes``, which every process runs on its own devices."""

# %% A mesh over the devices of all processes
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import config, label_array, print_array_stats
from jax_array_info import print_mesh, sharding_info, sharding_vis

devices = np.array(jax.devices()).reshape(jax.process_count(), -1)
mesh = Mesh(devices, ("process", "device"))
config.process = 0  # only process 0 prints
print_mesh(mesh)

# %% A global array, assembled from the rows of each process
rows, columns = 4, 4 * jax.local_device_count()
mine = np.full((rows, columns), jax.process_index(), np.float32)
by_both = NamedSharding(mesh, P("process", "device"))
batch = jax.make_array_from_process_local_data(by_both, mine)
config.process = "all"
sharding_info(batch, "batch")

# %% Its picture: the process and device of each shard
config.process = 0
sharding_vis(batch)

# %% Sharded over device, replicated over process
by_device = NamedSharding(mesh, P("device"))
ones = np.ones((columns, 4), np.float32)
weights = jax.make_array_from_process_local_data(by_device, ones)
sharding_info(weights, "weights")
sharding_vis(weights)

# %% A global scalar: inspecting it never reads its value
total = jax.jit(jnp.sum)(batch)
sharding_info(total, "total")

# %% Live arrays: each process reports its own devices
label_array(weights, "weights")
config.process = "all"
print_array_stats()
