"""Facts about JAX arrays: which device holds which slice, how many bytes, what else is alive.

Nothing here draws or prints, and importing it does not import jax.
"""

from .arrays import array_report
from .config import Config, config
from .errors import (
    ArrayInfoError,
    LabelError,
    LayoutError,
    ReportFormatError,
    UnsupportedValueError,
)
from .grid import Grid, flat_grid
from .labels import label_array, label_of
from .layout import ShardingLayout
from .live import live_array_report
from .memory import memory_report
from .model import (
    ArrayReport,
    BatchAxis,
    Leaf,
    LiveArrayGroup,
    LiveArrayReport,
    MemoryReport,
    MeshAxes,
    Report,
    ShardingDescription,
    Spec,
)
from .serialization import from_json, json_schema, to_json
from .shardings import sharding_layout
from .units import format_bytes, format_devices

__all__ = [
    "ArrayInfoError",
    "ArrayReport",
    "BatchAxis",
    "Config",
    "Grid",
    "LabelError",
    "LayoutError",
    "Leaf",
    "LiveArrayGroup",
    "LiveArrayReport",
    "MemoryReport",
    "MeshAxes",
    "Report",
    "ReportFormatError",
    "ShardingDescription",
    "ShardingLayout",
    "Spec",
    "UnsupportedValueError",
    "array_report",
    "config",
    "flat_grid",
    "format_bytes",
    "format_devices",
    "from_json",
    "json_schema",
    "label_array",
    "label_of",
    "live_array_report",
    "memory_report",
    "sharding_layout",
    "to_json",
]
