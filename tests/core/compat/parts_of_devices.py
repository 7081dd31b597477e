"""Private parts of JAX that processes and topologies need."""

from unittest import mock

import jax

from jax_array_info_core.compat import lowering, private, topologies
from jax_array_info_core.compat.topology_names import parse_topology
from tests.core.compat.private_parts import Part, attribute, renamed


def is_placed():
    """Return whether a program can be given other devices, here those that it has."""
    lowered = jax.jit(lambda x: x + 1).trace(1.0).lower()
    with mock.patch.object(lowering, "topology_devices", return_value=jax.devices()[:1]):
        try:
            placed = lowering._on_topology(lowered, parse_topology("v5e:1x1"))
        except KeyError:
            return False
    return placed is not lowered and placed.compile().as_text()


DEVICES = {
    ("compat/processes.py", "gather_reports and process_index miss other processes, or start a backend"): [
        attribute("distributed", "global_state.client"),
        attribute("distributed", "global_state.process_id"),
        attribute("distributed", "global_state.num_processes"),
        attribute("xla_bridge", "backends_are_initialized"),
    ],
    ("compat/topologies.py", "programs on a topology_mesh have no topology and no memory of a device"): [
        Part(
            "the class CompileOnlyPyClient of jaxlib",
            lambda: hasattr(private("lib").xla_client._xla, topologies.COMPILE_ONLY),
            renamed(topologies, "COMPILE_ONLY"),
        ),
    ],
    ("compat/lowering.py", "program_report raises TopologyError for each topology"): [
        Part(
            "compile_args and the devices of a lowered program",
            is_placed,
            renamed(lowering, "_SHARDINGS"),
        ),
        attribute("lib", "xla_client.DeviceList"),
    ],
}
