"""Reports: frozen dataclasses with the facts about an array, a device, a mesh or the live arrays.

They hold plain values and numpy arrays of device ids. They keep no JAX array alive and draw nothing.
"""

from __future__ import annotations

from ..layouts.layout import ShardingLayout
from .array import ArrayReport
from .checks import CheckReport
from .devices import DevicesReport, MemoryReport
from .growth import GrowthReport
from .live import LiveArrayReport
from .mesh import MeshReport, ShardReport, XlaReport
from .profile import MemoryProfileReport
from .programs import CompileCachesReport
from .tree import TreeReport
from .tree_changes import ReshardReport, TreeDiff

Report = (
    ArrayReport
    | CheckReport
    | GrowthReport
    | LiveArrayReport
    | CompileCachesReport
    | DevicesReport
    | MemoryProfileReport
    | MemoryReport
    | MeshReport
    | ShardingLayout
    | ReshardReport
    | ShardReport
    | TreeDiff
    | TreeReport
    | XlaReport
)
"""Union of all report classes. Each report can be printed, drawn and written as JSON."""
