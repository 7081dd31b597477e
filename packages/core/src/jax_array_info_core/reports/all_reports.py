"""All report classes, and the union of them."""

from __future__ import annotations

from ..layouts.layout import ShardingLayout as ShardingLayout
from .array import ArrayReport as ArrayReport
from .changes import ProgramDiff as ProgramDiff
from .changes import ReshardReport as ReshardReport
from .changes import TreeDiff as TreeDiff
from .checks import CheckReport as CheckReport
from .compiles import CompilationsReport as CompilationsReport
from .compiles import CompileCachesReport as CompileCachesReport
from .compiles import LogReport as LogReport
from .devices import DevicesReport as DevicesReport
from .devices import MemoryProfileReport as MemoryProfileReport
from .devices import MemoryReport as MemoryReport
from .growth import GrowthReport as GrowthReport
from .live import LiveArrayReport as LiveArrayReport
from .mesh import MeshReport as MeshReport
from .mesh import ShardReport as ShardReport
from .mesh import XlaReport as XlaReport
from .program import ProgramReport as ProgramReport
from .tree import TreeReport as TreeReport

Report = (
    ArrayReport
    | CheckReport
    | GrowthReport
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
    | ReshardReport
    | ShardReport
    | TreeDiff
    | TreeReport
    | XlaReport
)
"""Union of all report classes. Each report can be printed, drawn and written as JSON."""
