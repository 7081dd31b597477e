"""Reports: frozen dataclasses with the facts about an array, a mesh, a tree or a program.

They hold plain values and numpy arrays of device ids. They keep no JAX array alive and draw nothing.
"""

from __future__ import annotations

from ..layouts.layout import ShardingLayout
from .array import ArrayReport
from .checks import CheckReport
from .compilations import CompilationsReport
from .devices import DevicesReport, MemoryReport
from .growth import GrowthReport
from .live import LiveArrayReport
from .log import LogReport
from .mesh import MeshReport, ShardReport, XlaReport
from .profile import MemoryProfileReport
from .caches import CompileCachesReport
from .program import ProgramReport
from .program_changes import ProgramDiff
from .tree import TreeReport
from .tree_changes import ReshardReport, TreeDiff

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
