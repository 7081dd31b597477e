"""Caveats of a compiled program: figures that are left out, or differ on another platform."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..compat.topology_names import Topology
from ..hlo.module import Instruction, Module
from ..hlo.schedule import schedule_of
from ..hlo.source import source_lines
from ..layouts.dtypes import bits_of_name
from ..origins.origins import UserLines
from ..reports.collectives import Collective
from ..reports.control_flow import FlopTotals

_ON_CPU = 'On TPU or GPU, traffic and temporaries may differ: "What a CPU compile tells".'
VMEM = 1
"""XLA's number for a TPU's VMEM among the memory spaces."""
_SUMS = ("all-reduce", "reduce-scatter")
_TIMES = {2: "twice", 4: "4 times"}


def caveats_of(
    platform: str,
    dtypes: Collection[str],
    collectives: Collection[Collective],
    module: Module,
    dots: FlopTotals,
    ffts: FlopTotals,
) -> tuple[str, ...]:
    """Return what differs on another platform, and what is left out, as sentences.

    Args:
        platform: Platform that the program is compiled for.
        dtypes: Dtypes of the arguments and outputs.
        collectives: Collectives of the program.
        module: The compiled program.
        dots: Its dots and convolutions.
        ffts: Its Fourier transforms.
    """
    if platform == "tpu" and _uses_vmem(module):
        return ("Values in VMEM are not among the temporaries that are listed.",)
    if platform != "cpu":
        return ()
    caveats = [_ON_CPU]
    widened = _widened({*dtypes, *_dtypes_of(module)}, collectives)
    for factor, names in widened.items():
        caveats.append(f"CPU sends {' and '.join(names)}, {_TIMES[factor]} the bytes of an accelerator.")
    is_told = any(name.endswith("float32") for names in widened.values() for name in names)
    if not is_told and dots.exact != 0 and any(one.dtype == "float32" for one in collectives):
        caveats.append("TPU may send float32 operands of matrix products as bfloat16, half the bytes.")
    if ffts.exact != 0:
        caveats.append("TPU computes Fourier transforms as matrix products, with other FLOPs.")
    if _has_complex_dots(module):
        caveats.append("TPU computes a product of complex numbers as 3 real ones, not 4: FLOPs are fewer.")
    return tuple(caveats)


def _widened(dtypes: Collection[str], collectives: Collection[Collective]) -> dict[int, list[str]]:
    """Return the dtypes that CPU sends as wider ones, such as ``int4 as int8``, by the factor of the bytes.

    An accelerator moves numbers below 16 bits as they are, but may sum them as wider ones.
    """
    found: dict[int, list[str]] = {}
    for dtype in sorted(dtypes):
        wide, bits = _sent_as(dtype), bits_of_name(dtype)
        wide_bits = bits_of_name(wide)
        if wide is None or bits is None or wide_bits is None:
            continue
        if any(one.dtype == wide and (bits == 16 or one.kind not in _SUMS) for one in collectives):
            found.setdefault(wide_bits // bits, []).append(f"{dtype} as {wide}")
    return found


def _sent_as(dtype: str) -> str | None:
    """Return the wider dtype as which the CPU backend sends one; None if it sends it as it is."""
    if dtype in ("bfloat16", "float16", "float8_e8m0fnu"):
        return "float32"
    if dtype in ("int4", "uint4"):
        return dtype.replace("4", "8")
    return "float16" if dtype.startswith(("float4_", "float6_", "float8_")) else None


def _dtypes_of(module: Module) -> set[str]:
    """Return the dtypes of all values of a program, without float16: CPU has it in place of narrower ones."""
    return {shape.dtype for one in _instructions(module) for shape in one.shapes} - {"float16"}


def caveats_of_tracing(traced_on: str | None, topology: Topology | None) -> tuple[str, ...]:
    """Return what may differ in a program that was traced with other devices than those of its topology.

    Args:
        traced_on: The other devices, such as ``CPU``; None if there are none.
        topology: The topology.
    """
    if traced_on is None or topology is None:
        return ()
    target = topology.text if ":" in traced_on else topology.platform.upper()
    return (
        f"Traced with {traced_on} devices: code that asks for their platform, such as"
        f" mesh.devices.flat[0].platform, took the branch for {traced_on}. With a mesh from topology_mesh, it"
        f" takes the branch for {target}.",
    )


def caveats_of_cache(lowered_text: str | None, module: Module, lines: UserLines) -> tuple[str, ...]:
    """Return what may be wrong in a program that a persistent cache has with other source lines.

    Args:
        lowered_text: Text of the lowered program, with its source lines; None if there is no such cache.
        module: The compiled program.
        lines: The search for the user's line.
    """
    if lowered_text is None:
        return ()
    frames = {frame[:2] for one in module.once(schedule_of).operations for frame in one.frames}
    if all(lines.is_hidden(file) for file, _ in frames - source_lines(lowered_text)):
        return ()
    return (
        "Loaded from the persistent compilation cache, which ignores source lines: those of what XLA compiled"
        " can be of an earlier version of the source, and reasons of collectives unknown. Set"
        " jax_compilation_cache_include_metadata_in_key to compile again.",
    )


def _has_complex_dots(module: Module) -> bool:
    """Return whether a program multiplies matrices of complex numbers."""
    dots = (one for one in _instructions(module) if one.opcode == "dot")
    return any(shape.dtype.startswith("complex") for one in dots for shape in one.shapes)


def _uses_vmem(module: Module) -> bool:
    """Return whether a program has values in the fast memory of a TPU core."""
    return any(shape.memory_space == VMEM for one in _instructions(module) for shape in one.shapes)


def _instructions(module: Module) -> Iterator[Instruction]:
    return (one for computation in module.computations.values() for one in computation.instructions)
