"""All report classes, and the union of them."""

from __future__ import annotations

from ..layouts.layout import ShardingLayout as ShardingLayout
from .array import ArrayReport as ArrayReport
from .caches import CompileCachesReport as CompileCachesReport
from .checks import CheckReport as CheckReport
from .compilations import CompilationsReport as CompilationsReport
from .devices import DevicesReport as DevicesReport
from .devices import MemoryReport as MemoryReport
from .growth import GrowthReport as GrowthReport
from .live import LiveArrayReport as LiveArrayReport
from .log import LogReport as LogReport
from .mesh import MeshReport as MeshReport
from .mesh import ShardReport as ShardReport
from .mesh import XlaReport as XlaReport
from .profile import MemoryProfileReport as MemoryProfileReport
from .program import ProgramReport as ProgramReport
from .program_changes import ProgramDiff as ProgramDiff
from .tree import TreeReport as TreeReport
from .tree_changes import ReshardReport as ReshardReport
from .tree_changes import TreeDiff as TreeDiff

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
