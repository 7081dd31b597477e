"""Objects that stand for the devices of a topology."""

import itertools
from types import SimpleNamespace

from jax_array_info_core.compat.topology_names import GPUS, TPUS


def stand_ins(topology):
    """Return objects with the attributes of a topology's devices."""
    devices = []
    client = type("CompileOnlyPyClient", (), {"devices": lambda self: devices})()
    sides = (1, 1, topology.device_count) if topology.is_gpu else (*topology.sides, 1, 1)[:3]
    cores = 1 if topology.is_gpu else TPUS[topology.kind].devices_per_chip
    kind = GPUS[topology.kind].name if topology.is_gpu else TPUS[topology.kind].device_kind
    places = itertools.product(range(topology.slice_count), *map(range, sides), range(cores))
    for number, (slice_index, *coords, core) in enumerate(places):
        device = SimpleNamespace(client=client, coords=coords, device_kind=kind, core_on_chip=core)
        device.platform, device.id = topology.platform, number
        if topology.slice_count > 1:  # as in libtpu, a device of a single slice has no index
            device.slice_index = slice_index
        devices.append(device)
    return devices
