"""Compilation of a program for a report: for its own devices, or for a topology that is not here."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..compat.fresh_compile import compile_lowered, prints_warnings, refused_program
from ..compat.stages import Stages, program_text
from ..compat.topologies import topology_of
from ..compat.topology_lowering import lowered_devices, lowered_for_topology, with_compiler_options
from ..compat.topology_names import Topology
from ..errors import TopologyError
from ..hlo.oom_tables import read_out_of_memory
from ..reports.program import Known
from .warnings_of_compile import captured_warnings


class Compilation(NamedTuple):
    """A compiled program, or one that does not fit the memory of a device."""

    stages: Stages
    """The stages, with the compiled one unless the program was refused."""

    text: str | None
    """The program as XLA prints it; None if it was refused and is not known."""

    known: Known
    """Whether ``warnings`` is complete."""

    warnings: str = ""
    """XLA's rematerialization warnings."""

    topology: Topology | None = None
    """The topology; None for devices of this process."""

    traced_on: str | None = None
    """Devices with which the function was traced, if they are not those of the topology: ``CPU``."""

    refusal: str = ""
    """XLA's message, if the program does not fit."""

    assignment: str = ""
    """XLA's text on the buffers of a program that does not fit; empty if it is not known."""


def compilation_of(stages: Stages, topology: Topology | None, *, fresh: bool) -> Compilation:
    """Compile a program, and read XLA's warnings while it compiles.

    Args:
        stages: The stages of the program, as far as they exist.
        topology: The topology to compile for; None for the devices of the arguments, which can be those of a
            topology too.
        fresh: Whether to compile even if the program is in a cache.

    Raises:
        TopologyError: If the topology does not fit the program, or needs a compiler that is not installed; or
            if the program is lowered or compiled already.
    """
    import jax

    traced_on = None
    if topology is not None:
        if stages.traced is None:
            raise TopologyError(
                f"topology {topology.text}: the program is lowered for its own devices already: pass the "
                "function, or a jax.stages.Traced"
            )
        lowered, traced_on = lowered_for_topology(stages.traced, topology)
        stages = stages._replace(lowered=lowered)
    if stages.compiled is not None:
        return Compilation(stages, program_text(stages.compiled), "compiled before")
    if stages.lowered is None:
        stages = stages._replace(lowered=stages.traced.lower())
    topology = topology or topology_of(next(iter(lowered_devices(stages.lowered)), None))
    stages = stages._replace(lowered=with_compiler_options(stages.lowered, topology))
    platform = None if topology is None else topology.platform
    refusal = ""
    refused: list[Any] = []

    def compile_stages() -> None:
        nonlocal stages, refusal
        try:
            stages = stages._replace(compiled=compile_lowered(stages.lowered, fresh=fresh))
        except jax.errors.JaxRuntimeError as error:
            refusal = str(error)
            if read_out_of_memory(refusal) is None:
                raise

    captured = captured_warnings(compile_stages, platform)
    if not refusal:
        text = program_text(stages.compiled)
        return Compilation(stages, text, captured.known, captured.text, topology, traced_on)
    # The same warnings again.
    captured_warnings(lambda: refused.append(refused_program(stages.lowered)), platform)
    known: Known = "known" if captured.text or prints_warnings(platform) else "not captured"
    program, assignment = refused[0] or (None, "")
    return Compilation(stages, program, known, captured.text, topology, traced_on, refusal, assignment)
