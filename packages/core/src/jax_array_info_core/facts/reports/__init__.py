"""Reports: frozen dataclasses with the facts about an array, a mesh, a tree or a program.

They hold plain values and numpy arrays of device ids. They keep no JAX array alive and draw nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.names import import_on_demand

if TYPE_CHECKING:
    from .all_reports import *  # noqa: F403

_PLACES = {
    ".all_reports": "Report",
    ".advice": "AdviceReport LoopFigures ProgramFigures Remedy RemedyChange RemedyPlace",
    ".array": "ArrayReport ArrayType BatchAxes ContainerLeaf Leaf ShardingDescription",
    ".changes": (
        "Change DonationChange FigureChange LeafChange ProgramDiff ReshardReport ReshardRow "
        "RuleResult SentChange SentLine ShardingChange TemporaryChange TreeDiff"
    ),
    ".checks": "CheckReport",
    ".collectives": "Collective SentBytes SentOverLink SentTotals",
    ".compiles": "Compilation CompilationsReport CompileCache CompileCachesReport",
    ".control_flow": "ControlFlow FlopTotals PerIteration",
    ".devices": "DeviceReport DevicesReport MemoryProfileReport MemoryReport ProfileRow",
    ".findings": "Finding FindingLeaf",
    ".growth": "CollectedArrays GrowthReport OriginGrowth",
    ".hosts": "HostArray HostDevice HostDifference HostSummary HostsReport UnreadHost",
    "...geometry.layouts.layout": "ShardingLayout",
    "...geometry.layouts.links": "AxisLinks Neighbors",
    ".layers": "CostShare LayerRow LayersReport Parameter",
    ".left_out": "LeftOut",
    ".live": "LiveArrayGroup LiveArrayReport",
    ".logs": "LogEvent LogFinding LogReport RankLog UnusableDonation",
    ".mesh": "MeshReport ShardReport XlaReport",
    ".lost_batch": "LostBatch",
    ".moves": "DevicePeaks MoveWay",
    ".origin": "Origin SourceLine",
    ".compiler_messages": "LargeBuffer OutOfMemory Rematerialization",
    ".program": "ProgramReport",
    ".program_memory": (
        "BackwardLine LiveAtBackward ProgramMemory ProgramSeries "
        "ProgramTimelineReport SavedForBackward Temporary"
    ),
    ".program_values": "Constraint Donation ProgramValue RepeatedValue UncountedFlops",
    ".propagation": (
        "AxisOrigin Because Conflict ConflictOperand Loss PropagatedLeaf PropagatedValue "
        "PropagationReport ReplicatedValue"
    ),
    ".record": "RecordStall RecordThread",
    ".timeline": (
        "TimelineGroup TimelineGrowth TimelineJump TimelineMark TimelineOutOfMemory TimelinePeak "
        "TimelineRecompilation TimelineReport TimelineSeries UnreadRecord"
    ),
    ".timeline_process": "TimelineDevice TimelineProcess",
    ".tree": (
        "ElsewhereBytes ExcessBytes LeafStatistics TreeMesh TreeReport TreeRow UnmatchedAxes UnmatchedName"
    ),
    ".work": "WorkLine WorkShare",
}
"""Public names by the module from which each is imported at first use."""

if not TYPE_CHECKING:
    _classes, __getattr__, __dir__ = import_on_demand(__name__, _PLACES, rooms=())
    __all__ = sorted({*_classes} - {"ShardingLayout"})
