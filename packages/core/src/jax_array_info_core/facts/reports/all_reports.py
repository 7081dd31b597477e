"""All report classes and their parts, and the union of the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...geometry.layouts.layout import ShardingLayout as ShardingLayout
from ...geometry.layouts.links import (
    AxisLinks as AxisLinks,
    Neighbors as Neighbors,
)
from .advice import (
    AdviceReport as AdviceReport,
    LoopFigures as LoopFigures,
    ProgramFigures as ProgramFigures,
    Remedy as Remedy,
    RemedyChange as RemedyChange,
    RemedyPlace as RemedyPlace,
)
from .array import (
    ArrayReport as ArrayReport,
    ArrayType as ArrayType,
    BatchAxes as BatchAxes,
    ContainerLeaf as ContainerLeaf,
    Leaf as Leaf,
    ShardingDescription as ShardingDescription,
)
from .changes import (
    Change as Change,
    DonationChange as DonationChange,
    FigureChange as FigureChange,
    LeafChange as LeafChange,
    ProgramDiff as ProgramDiff,
    ReshardReport as ReshardReport,
    ReshardRow as ReshardRow,
    RuleResult as RuleResult,
    SentChange as SentChange,
    SentLine as SentLine,
    ShardingChange as ShardingChange,
    TemporaryChange as TemporaryChange,
    TreeDiff as TreeDiff,
)
from .checks import CheckReport as CheckReport
from .collectives import (
    Collective as Collective,
    SentBytes as SentBytes,
    SentOverLink as SentOverLink,
    SentTotals as SentTotals,
)
from .compiles import (
    Compilation as Compilation,
    CompilationsReport as CompilationsReport,
    CompileCache as CompileCache,
    CompileCachesReport as CompileCachesReport,
)
from .control_flow import (
    ControlFlow as ControlFlow,
    FlopTotals as FlopTotals,
    PerIteration as PerIteration,
)
from .devices import (
    DeviceReport as DeviceReport,
    DevicesReport as DevicesReport,
    MemoryProfileReport as MemoryProfileReport,
    MemoryReport as MemoryReport,
    ProfileRow as ProfileRow,
)
from .findings import (
    Finding as Finding,
    FindingLeaf as FindingLeaf,
)
from .growth import (
    CollectedArrays as CollectedArrays,
    GrowthReport as GrowthReport,
    OriginGrowth as OriginGrowth,
)
from .hosts import (
    HostArray as HostArray,
    HostDevice as HostDevice,
    HostDifference as HostDifference,
    HostSummary as HostSummary,
    HostsReport as HostsReport,
    UnreadHost as UnreadHost,
)
from .layers import (
    CostShare as CostShare,
    LayerRow as LayerRow,
    LayersReport as LayersReport,
    Parameter as Parameter,
)
from .live import (
    LiveArrayGroup as LiveArrayGroup,
    LiveArrayReport as LiveArrayReport,
)
from .logs import (
    LogEvent as LogEvent,
    LogFinding as LogFinding,
    LogReport as LogReport,
    RankLog as RankLog,
    UnusableDonation as UnusableDonation,
)
from .mesh import (
    MeshReport as MeshReport,
    ShardReport as ShardReport,
    XlaReport as XlaReport,
)
from .moves import (
    DevicePeaks as DevicePeaks,
    MoveWay as MoveWay,
)
from .origin import (
    Origin as Origin,
    SourceLine as SourceLine,
)
from .left_out import LeftOut as LeftOut
from .program import (
    ProgramReport as ProgramReport,
)
from .program_values import (
    Constraint as Constraint,
    Donation as Donation,
    ProgramValue as ProgramValue,
    UncountedFlops as UncountedFlops,
)
from .propagation import (
    AxisOrigin as AxisOrigin,
    Because as Because,
    Conflict as Conflict,
    ConflictOperand as ConflictOperand,
    Loss as Loss,
    PropagatedLeaf as PropagatedLeaf,
    PropagatedValue as PropagatedValue,
    PropagationReport as PropagationReport,
    ReplicatedValue as ReplicatedValue,
)
from .lost_batch import LostBatch as LostBatch
from .compiler_messages import (
    LargeBuffer as LargeBuffer,
    OutOfMemory as OutOfMemory,
    Rematerialization as Rematerialization,
)
from .program_memory import (
    BackwardLine as BackwardLine,
    LiveAtBackward as LiveAtBackward,
    ProgramMemory as ProgramMemory,
    ProgramSeries as ProgramSeries,
    ProgramTimelineReport as ProgramTimelineReport,
    SavedForBackward as SavedForBackward,
    Temporary as Temporary,
)
from .record import (
    RecordStall as RecordStall,
    RecordThread as RecordThread,
)
from .program_values import RepeatedValue as RepeatedValue
from .timeline import (
    TimelineGroup as TimelineGroup,
    TimelineGrowth as TimelineGrowth,
    TimelineJump as TimelineJump,
    TimelineMark as TimelineMark,
    TimelineOutOfMemory as TimelineOutOfMemory,
    TimelinePeak as TimelinePeak,
    TimelineRecompilation as TimelineRecompilation,
    TimelineReport as TimelineReport,
    TimelineSeries as TimelineSeries,
    UnreadRecord as UnreadRecord,
)
from .timeline_process import (
    TimelineDevice as TimelineDevice,
    TimelineProcess as TimelineProcess,
)
from .tree import (
    ElsewhereBytes as ElsewhereBytes,
    ExcessBytes as ExcessBytes,
    LeafStatistics as LeafStatistics,
    TreeMesh as TreeMesh,
    TreeReport as TreeReport,
    TreeRow as TreeRow,
    UnmatchedAxes as UnmatchedAxes,
    UnmatchedName as UnmatchedName,
)
from .work import (
    WorkLine as WorkLine,
    WorkShare as WorkShare,
)

Report = (
    AdviceReport
    | ArrayReport
    | CheckReport
    | GrowthReport
    | HostsReport
    | LayersReport
    | LiveArrayReport
    | CompilationsReport
    | CompileCachesReport
    | DevicesReport
    | LogReport
    | MemoryProfileReport
    | MemoryReport
    | MeshReport
    | ShardingLayout
    | ProgramDiff
    | ProgramReport
    | ProgramTimelineReport
    | PropagationReport
    | ReshardReport
    | ShardReport
    | TimelineReport
    | TreeDiff
    | TreeReport
    | XlaReport
)
"""Union of all report classes. Each report can be printed, drawn and written as JSON."""

if not TYPE_CHECKING:  # mypy exports nothing from a module whose list of names is computed
    __all__ = sorted(
        name for name in globals() if name[0].isupper() and name not in ("ShardingLayout", "TYPE_CHECKING")
    )
