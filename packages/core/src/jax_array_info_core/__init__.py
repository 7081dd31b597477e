"""Facts about JAX arrays: which device holds which slice, how many bytes, what else is alive.

Nothing here draws or prints, and importing it does not import jax.
"""

from .arrays import array_report
from .collecting import collect_reports
from .config import Config, config
from .errors import (
    ArrayInfoError,
    ConfigError,
    FunctionNameError,
    LabelError,
    LayoutError,
    NotationError,
    ProcessError,
    ProcessTimeoutError,
    ProfileError,
    ReportFormatError,
    SpecError,
    TrackerError,
    UnsupportedValueError,
)
from .grid import Grids, flat_grids
from .growth.model import CollectedArrays, GrowthReport, OriginGrowth
from .growth.tracker import ArrayTracker, track_arrays
from .labels import label_array, label_of
from .layout import ShardingLayout
from .local import LocalPart
from .memory.compile_caches import compile_caches_report
from .memory.device_memory import devices_report
from .memory.device_model import (
    CompileCache,
    CompileCachesReport,
    DeviceReport,
    DevicesReport,
    MemoryProfileReport,
    ProfileRow,
)
from .memory.live import live_array_report
from .memory.model import LiveArrayGroup, LiveArrayReport, MemoryReport, Origin
from .memory.profile import memory_profile_report
from .memory.statistics import memory_report
from .model import (
    ArrayReport,
    BatchAxes,
    Leaf,
    MeshAxes,
    MeshReport,
    Report,
    ShardingDescription,
    ShardReport,
    Spec,
    XlaReport,
)
from .notation import (
    XlaSharding,
    format_mesh,
    format_spec,
    parse_mesh,
    parse_shape,
    parse_spec,
    parse_xla_sharding,
    spec_of_xla,
)
from .patterns import describe_pattern
from .planning import dtype_bits, mesh_plan, planned_report, shard_report, spec_layout, xla_report
from .processes import gather_reports
from .serialization import from_json, json_schema, to_json
from .shardings import mesh_report, sharding_layout
from .specs import UnevenAxis, spec_problems, uneven_axes
from .units import format_bytes, format_devices

__all__ = [
    "ArrayInfoError",
    "ArrayReport",
    "ArrayTracker",
    "BatchAxes",
    "CollectedArrays",
    "CompileCache",
    "CompileCachesReport",
    "Config",
    "ConfigError",
    "DeviceReport",
    "DevicesReport",
    "FunctionNameError",
    "Grids",
    "GrowthReport",
    "LabelError",
    "LayoutError",
    "Leaf",
    "LiveArrayGroup",
    "LiveArrayReport",
    "LocalPart",
    "MemoryProfileReport",
    "MemoryReport",
    "MeshAxes",
    "MeshReport",
    "NotationError",
    "Origin",
    "OriginGrowth",
    "ProcessError",
    "ProcessTimeoutError",
    "ProfileError",
    "ProfileRow",
    "Report",
    "ReportFormatError",
    "ShardReport",
    "ShardingDescription",
    "ShardingLayout",
    "Spec",
    "SpecError",
    "TrackerError",
    "UnevenAxis",
    "UnsupportedValueError",
    "XlaReport",
    "XlaSharding",
    "array_report",
    "collect_reports",
    "compile_caches_report",
    "config",
    "describe_pattern",
    "devices_report",
    "dtype_bits",
    "flat_grids",
    "format_bytes",
    "format_devices",
    "format_mesh",
    "format_spec",
    "from_json",
    "gather_reports",
    "json_schema",
    "label_array",
    "label_of",
    "live_array_report",
    "memory_profile_report",
    "memory_report",
    "mesh_plan",
    "mesh_report",
    "parse_mesh",
    "parse_shape",
    "parse_spec",
    "parse_xla_sharding",
    "planned_report",
    "shard_report",
    "sharding_layout",
    "spec_layout",
    "spec_of_xla",
    "spec_problems",
    "to_json",
    "track_arrays",
    "uneven_axes",
    "xla_report",
]
