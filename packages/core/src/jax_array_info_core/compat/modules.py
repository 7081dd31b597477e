"""Lowered programs that another process compiles: as bytecode, with what JAX tells XLA apart from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..base.errors import UnsupportedValueError
from . import private
from .programs import lowered_devices, module_bytecode
from .topologies import topology_devices, topology_of
from .topology_names import parse_topology

FAST = {"xla_backend_optimization_level": 0}
"""Options with which the CPU backend compiles in half the time, to the same collectives and temporaries."""
_OLDEST = (0, 7)
_FIRST_WITH_SPANS = (0, 12)


class LoweredModule(NamedTuple):
    """A lowered program. It can be pickled."""

    bytecode: bytes
    """The module."""

    device_count: int
    """Number of its devices."""

    free_arguments: tuple[bool, ...]
    """Whether XLA chooses the sharding of each argument."""

    free_outputs: tuple[bool, ...]
    """Whether XLA chooses the sharding of each output."""

    is_tupled: bool = False
    """Whether the arguments are in one tuple."""

    is_shardy: bool = True
    """Whether Shardy partitions it."""

    options: tuple[tuple[str, Any], ...] = ()
    """Options of the compiler."""

    topology: str | None = None
    """Its topology; None for CPU devices."""

    devices: tuple[int, ...] = ()
    """Places of its devices among those of the topology."""


def lowered_module(lowered: Any) -> LoweredModule:
    """Return a lowered program as it is compiled in another process.

    Args:
        lowered: A ``jax.stages.Lowered``, for CPU or a topology.

    Raises:
        UnsupportedValueError: If this version of JAX is too old.
    """
    import jax

    if jax.__version_info__[:2] < _OLDEST:
        raise UnsupportedValueError(
            f"programs are compiled in another process on JAX 0.7 and later: this is {jax.__version__}"
        )
    arguments = lowered._lowering.compile_args
    shardings = arguments["in_shardings"], arguments["out_shardings"]
    chosen = private("interpreters.pxla").get_prop_to_input_output(
        *shardings, len(arguments["ordered_effects"])
    )
    devices = lowered_devices(lowered)
    topology = topology_of(devices[0]) if devices else None
    places = {one.id: place for place, one in enumerate(topology_devices(topology))} if topology else {}
    return LoweredModule(
        bytecode=module_bytecode(lowered),
        device_count=len(devices) or int(arguments["num_devices"]),
        free_arguments=tuple(chosen[0]),
        free_outputs=tuple(chosen[1]),
        is_tupled=bool(arguments["tuple_args"]),
        is_shardy=bool(getattr(jax.config, "jax_use_shardy_partitioner", True)),
        options=tuple(lowered._lowering._compiler_options_kvs or ()),
        topology=None if topology is None else topology.text,
        devices=tuple(places[one.id] for one in devices) if topology else (),
    )


def parsed_module(bytecode: bytes) -> Any:
    """Return a module from its bytecode, in a context of its own."""
    from jaxlib.mlir import ir

    with private("interpreters.mlir").make_ir_context():
        return ir.Module.parse(bytecode)


class CompiledModule:
    """A compiled module, with those methods of a ``jax.stages.Compiled`` that tell its figures."""

    def __init__(self, executable: Any) -> None:
        self._executable = executable

    def runtime_executable(self) -> Any:
        """Return XLA's executable."""
        return self._executable

    def memory_analysis(self) -> Any:
        """Return XLA's figures of its memory."""
        return self._executable.get_compiled_memory_stats()

    def cost_analysis(self) -> Any:
        """Return XLA's count of its operations."""
        return self._executable.cost_analysis()


def compiled_module(module: Any, given: LoweredModule, options: Mapping[str, Any]) -> CompiledModule:
    """Compile a module, without a cache, and return what it is compiled to.

    Args:
        module: The module, perhaps with other constraints than that in the bytecode.
        given: The program.
        options: Further options of the compiler.
    """
    import jax

    devices = jax.devices("cpu")[: given.device_count]
    if given.topology is not None:
        known = topology_devices(parse_topology(given.topology))
        devices = [known[place] for place in given.devices]
    client = devices[0].client
    compiler = private("compiler")
    chosen = compiler.get_compile_options(
        num_replicas=1,
        num_partitions=len(devices),
        device_assignment=np.array(devices, object).reshape(1, -1),
        env_options_overrides={**dict(given.options), **options},
        backend=client,
    )
    chosen.parameter_is_tupled_arguments = given.is_tupled
    build = chosen.executable_build_options
    build.use_shardy_partitioner = given.is_shardy
    build.allow_spmd_sharding_propagation_to_parameters = [*given.free_arguments]
    build.allow_spmd_sharding_propagation_to_output = [*given.free_outputs]
    listed = private("lib").xla_client.DeviceList(tuple(devices))
    return CompiledModule(compiler.backend_compile_and_load(client, module, listed, chosen, []))


def has_spans() -> bool:
    """Return whether lowered programs tell the expression of each operation, with its gradient."""
    import jax

    return bool(jax.__version_info__ >= _FIRST_WITH_SPANS)


def lowered_for_cpu(traced: Any, platform: str) -> Any:
    """Return a traced function lowered for CPU devices, as many as its own.

    Args:
        traced: A ``jax.stages.Traced``.
        platform: Platform of its devices.
    """
    return traced.lower() if platform == "cpu" else traced.lower(lowering_platforms=("cpu",))
