"""Facts of lowered and compiled programs: their records, text, devices and memory."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..geometry.layouts.spec import MeshAxes
from . import private
from .shardings import has_devices, is_named, mesh_axes
from .stages import ProgramLeaf, Stages


def program_record(compiled: Any) -> bytes | None:
    """Return XLA's record of a compiled program, a serialized ``HloModuleProto``.

    None if its platform does not provide it.
    """
    try:
        modules = compiled.runtime_executable().hlo_modules()
        return bytes(modules[0].as_serialized_hlo_module_proto()) if modules else None
    except (AttributeError, NotImplementedError, RuntimeError):  # a plugin without it, or JAX's own error
        return None


def lowered_record(lowered: Any) -> bytes | None:
    """Return a lowered program as a serialized ``HloModuleProto``.

    None if a mesh axis has a name that MLIR writes with escapes, such as one with an umlaut: XLA ends the
    process when it reads it.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    operations = lowered.compiler_ir("stablehlo").body.operations
    if any("\\" in str(part) for part in operations if part.operation.name == "sdy.mesh"):
        return None
    return bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


def program_mesh(leaves: Sequence[ProgramLeaf]) -> MeshAxes | None:
    """Return the axes of the first mesh with devices among the shardings of arguments and outputs.

    XLA numbers the devices of a program in the order of this mesh.
    """
    shardings = [sharding for leaf in leaves for sharding in (leaf.got, leaf.asked) if sharding is not None]
    named = [sharding for sharding in shardings if is_named(sharding) and has_devices(sharding)]
    largest = max((sharding.mesh.size for sharding in named), default=0)
    return next((mesh_axes(sharding.mesh) for sharding in named if sharding.mesh.size == largest), None)


def program_device(leaves: Sequence[ProgramLeaf]) -> Any:
    """Return one of a program's devices; JAX's first device if the program has no arrays."""
    import jax

    for leaf in leaves:
        for sharding in (leaf.got, leaf.asked):
            if sharding is not None and has_devices(sharding):
                return next(iter(sharding.device_set))
    return jax.devices()[0]


def program_name(text: str) -> str:
    """Return the name of the function from the text of a lowered or compiled program.

    ``program`` if the text has none.
    """
    match = re.match(r"\s*(?:HloModule|module @)\s*(?:jit_|pmap_)?([\w.<>-]+)", text)
    return match[1].strip("_") if match else "program"


def text_for_frame_numbers(lowered: Any) -> str | None:
    """Return the text of a lowered program whose operations tell the numbers of the stack frames.

    None if the version of JAX has the right table; empty if the lowered program is not known.

    Args:
        lowered: A ``jax.stages.Lowered``, or None.
    """
    import jax

    if jax.__version_info__[:2] not in ((0, 7), (0, 8)):
        return None
    return "" if lowered is None else _with_lines(lowered)


def text_for_cached_lines(lowered: Any) -> str | None:
    """Return the text of a lowered program with its source lines, if its executable can be one of a cache.

    JAX's persistent cache takes programs for equal that differ in their source lines only.

    Args:
        lowered: A ``jax.stages.Lowered``, or None.
    """
    import jax

    return None if lowered is None or not jax.config.jax_compilation_cache_dir else _with_lines(lowered)


def _with_lines(lowered: Any) -> str:
    """Return the text of a lowered program with its source lines."""
    # Before JAX 0.5, as_text() leaves them out.
    return str(lowered.compiler_ir("stablehlo").operation.get_asm(enable_debug_info=True))


def lowered_devices(lowered: Any) -> list[Any]:
    """Return the devices for which a program is lowered, in XLA's order.

    Empty for an abstract mesh, and where this version of JAX does not have them.
    """
    computation = getattr(lowered, "_lowering", None)
    arguments = getattr(computation, "compile_args", None) or {}
    assigned = arguments.get("device_assignment", getattr(computation, "_device_list", None))
    return [] if assigned is None else list(assigned)


def program_devices(stages: Stages, leaves: Sequence[ProgramLeaf]) -> list[Any]:
    """Return the devices of a program in XLA's order; empty if they are not known.

    Args:
        stages: The stages of the program.
        leaves: Its arguments and outputs, whose shardings have the devices of a Compiled.
    """
    if devices := lowered_devices(stages.lowered):
        return devices
    shardings = (sharding for leaf in leaves for sharding in (leaf.got, leaf.asked))
    known = (sharding for sharding in shardings if sharding is not None and has_devices(sharding))
    return list(getattr(next(known, None), "_device_assignment", ()))


PLATFORMS = ("_lowering", "_platforms")
"""Private attributes on the way from a lowered program to its platforms."""


def platforms_of(lowered: Any) -> Sequence[str]:
    """Return the platforms that a program is lowered for; empty if they are unknown.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    platforms = lowered
    for name in PLATFORMS:
        platforms = getattr(platforms, name, None)
    return platforms or ()


def module_bytecode(lowered: Any) -> bytes:
    """Return a lowered program as bytecode of MLIR, with its locations.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    stream = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(stream)
    return stream.getvalue()


def module_name(lowered: Any) -> str:
    """Return the name of the module of a lowered program.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    return str(lowered.compiler_ir("stablehlo").operation.attributes["sym_name"].value)


def argument_locations(lowered: Any) -> list[str]:
    """Return the location of each argument of a lowered program, which has its name: ``loc("params['w']")``.

    Arguments that JAX adds come first, and those that it removes are missing.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    main = main_function(lowered.compiler_ir("stablehlo"))
    return [str(argument.location) for argument in main.regions[0].blocks[0].arguments]


def main_function(module: Any) -> Any:
    """Return the operation of the function ``main`` of a module of MLIR."""
    functions = (function.operation for function in module.body)
    return next(
        function
        for function in functions
        if function.name == "func.func" and str(function.attributes["sym_name"]) == '"main"'
    )


class MemoryStatistics(NamedTuple):
    """Memory of a compiled program per device, in bytes; None where the backend does not report it."""

    argument_nbytes: int | None = None
    output_nbytes: int | None = None
    alias_nbytes: int | None = None
    temporary_nbytes: int | None = None
    code_nbytes: int | None = None
    peak_nbytes: int | None = None
    host_argument_nbytes: int | None = None
    host_output_nbytes: int | None = None
    host_alias_nbytes: int | None = None
    host_temporary_nbytes: int | None = None


_ATTRIBUTES = (
    "argument_size_in_bytes",
    "output_size_in_bytes",
    "alias_size_in_bytes",
    "temp_size_in_bytes",
    "generated_code_size_in_bytes",
    "peak_memory_in_bytes",  # since JAX 0.7
    "host_argument_size_in_bytes",
    "host_output_size_in_bytes",
    "host_alias_size_in_bytes",
    "host_temp_size_in_bytes",
)


def memory_analysis(compiled: Any) -> MemoryStatistics | None:
    """Return the figures of ``compiled.memory_analysis()``; None if the backend has none.

    Args:
        compiled: A ``jax.stages.Compiled``.
    """
    import jax

    try:
        statistics = compiled.memory_analysis()
    except (NotImplementedError, AttributeError, TypeError, ValueError, jax.errors.JaxRuntimeError):
        return None
    if statistics is None:
        return None
    return MemoryStatistics(*(_number(getattr(statistics, name, None)) for name in _ATTRIBUTES))


def xla_flops(compiled: Any) -> int | None:
    """Return the FLOPs of ``compiled.cost_analysis()``, of one device; None if the backend has none.

    Args:
        compiled: A ``jax.stages.Compiled``.
    """
    import jax

    try:
        analysis = compiled.cost_analysis()
    except (NotImplementedError, AttributeError, TypeError, ValueError, jax.errors.JaxRuntimeError):
        return None
    return _flops(
        analysis[0] if isinstance(analysis, list) and analysis else analysis
    )  # a list up to JAX 0.4


def xla_flops_of_record(record: bytes, device: Any) -> int | None:
    """Return the FLOPs of a program on one device, as ``xla_flops`` does; None if JAX lacks the analysis.

    Args:
        record: A serialized ``HloModuleProto``.
        device: A device of the platform.
    """
    client = private("lib").xla_client
    try:
        module = client.XlaComputation(record).get_hlo_module()
        return _flops(client._xla.hlo_module_cost_analysis(device.client, module))
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None


def _flops(costs: Any) -> int | None:
    flops = costs.get("flops") if isinstance(costs, dict) else None
    return int(flops) if isinstance(flops, int | float) and 0 <= flops < math.inf else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None
