"""The reports: frozen facts about one thing that a user asks about.

They hold plain values and numpy arrays of device ids: nothing that keeps a JAX array alive, nothing
that draws.
"""

from __future__ import annotations

from ..layouts.layout import ShardingLayout
from .array import ArrayReport
from .devices import DevicesReport, MemoryReport
from .growth import GrowthReport
from .live import LiveArrayReport
from .mesh import MeshReport, ShardReport, XlaReport
from .profile import MemoryProfileReport
from .programs import CompileCachesReport

Report = (
    ArrayReport
    | GrowthReport
    | LiveArrayReport
    | CompileCachesReport
    | DevicesReport
    | MemoryProfileReport
    | MemoryReport
    | MeshReport
    | ShardingLayout
    | ShardReport
    | XlaReport
)
"""Everything that can be rendered and turned into JSON."""
