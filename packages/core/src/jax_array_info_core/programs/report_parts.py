"""The parts of the report on a compiled program. Each can fail alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ..arrays.origins.origins import UserLines
from ..compat.arrays import buffer_key
from ..compat.programs import (
    lowered_record,
    memory_analysis,
    program_devices,
    text_for_cached_lines,
    text_for_frame_numbers,
    xla_flops,
)
from ..compat.stages import (
    ProgramLeaf,
    places_of_arguments,
)
from ..compat.topology_names import GPUS, Topology
from ..facts.reports.control_flow import FlopTotals
from ..facts.reports.left_out import Parts
from ..facts.reports.program_memory import ProgramTimelineReport
from ..facts.reports.propagation import Because
from ..geometry.layouts.links import Link
from ..xla.hlo.collectives import Movement, instruction_text, may_send, movements
from ..xla.hlo.dataflow import Dataflow
from ..xla.hlo.loops import executions
from ..xla.hlo.module import Module
from ..xla.hlo.replica_groups import ProgramSlices
from ..xla.hlo.resharding import replicated_values
from .because import Reasons
from .collectives import (
    Described,
    ProgramDevices,
    described_collectives,
    devices_of,
    merged_collectives,
)
from .compiled import (
    CompiledStages,
    caveats_of,
    caveats_of_cache,
    shortage,
)
from .control_flow import flops_of
from .costs import cost_shares
from .donations import donatable, donations_of, sharing
from .full_replication import rematerializations_of, repeated_of
from .lost_axes import with_lines
from .memory import figures_of, saved_of, timeline_of, with_host_apart, with_temporaries
from .parameters import Parameters
from .sent_totals import runs_of, totals_of
from .updates import Interface, sharded_over
from .work import Causes, work_of

Fields = dict[str, Any]
"""Fields of a report by name."""
OF_TIMELINE = ("name", "origin", "platform", "topology", "out_of_memory")
"""Fields of a report that the one along the schedule has too."""

_UNTOLD = "Up to JAX 0.6, what layers cost outside of named scopes counts as forward: no pass is named."


@dataclass(frozen=True, kw_only=True)
class Program:
    """A compiled program: what each part of its report is made of."""

    compiled: CompiledStages
    module: Module
    interface: Interface
    platform: str
    topology: Topology | None
    leaves: Sequence[ProgramLeaf]
    """Leaves of the arguments."""

    values: Sequence[Any]
    """The arrays among them."""

    lines: UserLines
    bandwidths: Mapping[Link, int]
    explains: bool
    has_timeline: bool
    hbm_nbytes: int | None
    """Memory of a device; None for that of the topology."""

    parts: Parts

    @cached_property
    def devices(self) -> ProgramDevices | None:
        """The devices; None if they are not known."""
        return devices_of(program_devices(self.compiled.stages, self.leaves))

    @cached_property
    def device_count(self) -> int:
        """Number of devices."""
        return self.module.device_count if self.devices is None else self.devices.count(self.module)

    @cached_property
    def slices(self) -> ProgramSlices | None:
        """The slices, if XLA has compiled the program for a single one."""
        return None if self.devices is None else self.devices.slices(self.module)

    @cached_property
    def paths(self) -> dict[str, str]:
        """Path of each argument by the ``op_name`` of its parameter."""
        pairs = zip(self.leaves, self.interface.arguments, strict=True)
        return {leaf.label: argument.path for leaf, argument in pairs if leaf.label is not None}

    @cached_property
    def sizes(self) -> Mapping[str, int] | None:
        """Sizes of the mesh axes; None if the mesh is not that of all devices."""
        mesh, count = self.interface.mesh, self.interface.device_count
        return mesh.shape if mesh and count == self.device_count else None

    @cached_property
    def moved(self) -> list[Movement]:
        """What collectives move."""
        return movements(self.module.once(Dataflow), self.slices)[0]

    @cached_property
    def replicated(self) -> Any:
        """Values that XLA replicates."""
        return replicated_values(self.module.once(Dataflow), self.moved)

    @cached_property
    def reasons(self) -> Reasons:
        """What collectives are needed for."""
        interface, lowered = self.interface, self.compiled.stages.lowered
        return Reasons(interface.arguments, interface.outputs, lowered, self.lines)

    @cached_property
    def described(self) -> tuple[list[Described], tuple[str, ...]]:
        """The collectives, and the instructions that are not understood."""
        return described_collectives(
            self.module,
            self.module.once(executions),
            self.interface.mesh,
            self.paths,
            self.lines,
            self.interface.constraints,
            self.because if self.explains else None,
            self.devices,
        )

    @cached_property
    def parameters(self) -> Parameters:
        """The parameters among the arguments."""
        return Parameters(self.module, self.interface, self.compiled.stages.traced)

    def because(self, *about: Any) -> tuple[Because, ...]:
        """Return what a collective is needed for, as ``Reasons.of``."""
        return self.parts.made("reasons of collectives", lambda: self.reasons.of(*about), ())


def _flops(program: Program, _: Fields) -> Fields:
    """Return the fields of a report on flops."""
    compiled, module = program.compiled, program.module
    flops = flops_of(module, module.once(executions), program.lines)
    return flops if compiled.refusal else {**flops, "xla_flops": xla_flops(compiled.stages.compiled)}


def _collectives(program: Program, _: Fields) -> Fields:
    """Return the fields of a report on what is sent, and on what of it could not be read."""
    module, (described, unread) = program.module, program.described
    collectives = merged_collectives(described)
    local = (row for row in module.unknown_types if not may_send(row))
    return {
        "device_count": program.device_count,
        "collectives": collectives,
        "sent": totals_of(
            collectives,
            program.bandwidths,
            None if unread else runs_of(program.moved, module.once(executions)),
        ),
        "unread": tuple(dict.fromkeys((*map(instruction_text, module.unknown_types), *unread))),
        "unread_local": tuple(dict.fromkeys(map(instruction_text, local))),
    }


def _lost_batches(program: Program, fields: Fields) -> Fields:
    """Return the field of a report on mesh axes that the data loses, from the reasons of collectives."""
    is_known = program.explains and fields["collectives"]
    return {"lost_batches": program.reasons.lost_batches if is_known else ()}


def _lost(program: Program, _: Fields) -> Fields:
    """Return the arguments and outputs of a report with the lines where they lose mesh axes."""
    return with_lines(program.interface, program.module, program.moved, program.lines)


def _replicated(program: Program, _: Fields) -> Fields:
    """Return the field of a report on values that XLA replicates and shards again."""
    times, found = program.module.once(executions), program.replicated
    dataflow, lines = program.module.once(Dataflow), program.lines
    return {"rematerializations": rematerializations_of(found, dataflow, program.sizes, times, lines)}


def _repeated(program: Program, _: Fields) -> Fields:
    """Return the field of a report on values that devices hold or compute whole."""
    return {
        "repeated": repeated_of(
            program.interface,
            program.module,
            program.moved,
            program.sizes,
            program.paths,
            program.lines,
            program.replicated,
            is_numbered=program.slices is None,
        ),
    }


def _work(program: Program, _: Fields) -> Fields:
    """Return the field of a report on the share of work of each device."""
    lowered = program.compiled.stages.lowered

    def read() -> tuple[bytes | None, str | None]:
        return lowered_record(lowered), text_for_frame_numbers(lowered)

    pairs = zip(program.leaves, program.interface.arguments, strict=True)
    whole = {leaf.label for leaf, argument in pairs if not sharded_over(argument.got)}
    causes = Causes(program.module, program.moved, whole)
    known = None if lowered is None else read
    work = work_of(program.module, known, program.device_count, program.sizes, program.lines, causes)
    return {"work": work}


def _donations(program: Program, _: Fields) -> Fields:
    """Return the fields of a report on memory that outputs reuse."""
    arguments, outputs = program.interface.arguments, program.interface.outputs
    is_donated = [leaf.is_donated for leaf in program.leaves]
    places = places_of_arguments(program.values, program.leaves) or ()
    shared = sharing(arguments, [buffer_key(program.values[place]) for place in places])
    donations = donations_of(arguments, is_donated, outputs, program.module, shared)
    return {
        "donations": donations,
        "donatable": donatable(arguments, is_donated, outputs, donations, shared),
    }


def _memory(program: Program, fields: Fields) -> Fields:
    """Return the fields of a report on memory; none if the compiler refused the program."""
    if program.compiled.refusal:
        return {}
    interface, topology = program.interface, program.topology
    memory = figures_of(memory_analysis(program.compiled.stages.compiled), program.platform)
    has_host = any(value.is_in_host_memory for value in (*interface.arguments, *interface.outputs))
    donations = fields["donations"] if has_host else ()
    memory = with_host_apart(memory, interface.arguments, interface.outputs, donations)
    available = program.hbm_nbytes
    if available is None and topology is not None:
        available = topology.memory_nbytes
    if available is not None:
        memory = replace(memory, required_nbytes=memory.allocated_nbytes, available_nbytes=available)
    return {"memory": memory}


def _kept(program: Program, fields: Fields) -> Fields:
    """Return the memory of a report with what JAX saves for the backward pass."""
    if (memory := fields["memory"]) is None:
        return {}
    stages, count = program.compiled.stages, program.interface.device_count
    saved = saved_of(stages, program.leaves, program.lines, count, explains=program.explains)
    return {"memory": replace(memory, saved=saved)}


def _temporaries(program: Program, fields: Fields) -> Fields:
    """Return the memory of a report with its temporary values."""
    if (memory := fields["memory"]) is None:
        return {}
    traced = program.compiled.stages.traced
    return {"memory": with_temporaries(memory, program.module, program.platform, program.lines, traced)}


def _fit(program: Program, fields: Fields) -> Fields:
    """Return the field of a report on a program that does not fit, which XLA tells of TPUs only."""
    memory, topology = fields["memory"], program.topology
    is_gpu = topology is not None and topology.is_gpu
    if memory is None or not (is_gpu or program.hbm_nbytes):
        return {}
    name = f"an {GPUS[topology.kind].name}" if topology and is_gpu and not program.hbm_nbytes else "a device"
    return {"out_of_memory": shortage(memory, name)}


def _timeline(program: Program, fields: Fields) -> Fields:
    """Return the field of a report on memory along the schedule, if it is asked for and known."""
    if fields["memory"] is None or not program.has_timeline:
        return {}
    about = ProgramTimelineReport(**{name: fields[name] for name in OF_TIMELINE})
    return {"timeline": timeline_of(about, fields["memory"], program.module, program.lines)}


def _parameters(program: Program, _: Fields) -> Fields:
    """Return the field of a report on parameters."""
    return {"parameters": program.parameters.rows()}


def _costs(program: Program, fields: Fields) -> Fields:
    """Return the field of a report on what a device does for each parameter."""
    if None in (fields["collectives"], fields["known_dot_flops"]):
        return {}
    saved = None if fields["memory"] is None else fields["memory"].saved
    arguments, (described, _) = program.interface.arguments, program.described
    parameters = program.parameters
    caveats = (_UNTOLD,) if parameters.trained and not parameters.tells_passes else ()
    return {
        "costs": cost_shares(parameters, arguments, described, saved, program.lines),
        "caveats": (*fields["caveats"], *caveats),
    }


def _caveats(program: Program, fields: Fields) -> Fields:
    """Return the field of a report on what differs elsewhere or is unsure."""
    interface, module = program.interface, program.module
    dtypes = {value.dtype for value in (*interface.arguments, *interface.outputs)}
    dots, ffts = (fields[name] or FlopTotals() for name in ("dot_totals", "fft_totals"))
    cached = text_for_cached_lines(program.compiled.stages.lowered)
    return {
        "caveats": (
            *fields["caveats"],
            *caveats_of_cache(cached, module, program.lines),
            *caveats_of(program.platform, dtypes, fields["collectives"] or (), module, dots, ffts),
            *program.reasons.caveats,
        )
    }


PARTS: Mapping[str, Callable[[Program, Fields], Fields]] = {
    "FLOPs": _flops,
    "collectives": _collectives,
    "lost batches": _lost_batches,
    "lines of lost mesh axes": _lost,
    "replicated values": _replicated,
    "repeated values": _repeated,
    "share of work": _work,
    "donations": _donations,
    "memory": _memory,
    "values kept for the backward pass": _kept,
    "temporaries": _temporaries,
    "fit": _fit,
    "schedule": _timeline,
    "parameters": _parameters,
    "costs": _costs,
    "other caveats": _caveats,
}
"""Parts of the report by name: each makes fields of it from the compiled program and earlier fields."""
OF_PARTS = (
    *("dot_flops", "known_dot_flops", "dot_totals", "fft_totals", "decompositions", "uncounted_flops"),
    *("collectives", "sent", "lost_batches"),
    *("unread", "unread_local", "rematerializations", "repeated", "donations", "donatable", "memory"),
)
"""The fields of parts, which are None unless these are made."""
