"""Facts about JAX arrays: which device holds which slice, how many bytes, what else is alive.

Nothing here draws or prints, and importing it does not import jax.
"""

from .arrays.labels import label_array, label_of
from .arrays.objects import mesh_report
from .arrays.report import array_report
from .compat.shardings import sharding_layout
from .config import Config, config
from .delivery import collect_reports
from .devices.report import devices_report
from .devices.statistics import memory_report
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
from .gather import gather_reports
from .growth.tracker import ArrayTracker, track_arrays
from .layouts.grid import Grids, flat_grids
from .layouts.layout import ShardingLayout
from .layouts.local import LocalPart
from .layouts.notation import format_mesh, format_spec, parse_mesh, parse_shape, parse_spec
from .layouts.patterns import describe_pattern
from .layouts.spec import MeshAxes, Spec
from .layouts.xla import XlaSharding, parse_xla_sharding, spec_of_xla
from .live.report import live_array_report
from .plans.explain import xla_report
from .plans.plan import dtype_bits, mesh_plan, planned_report, shard_report, spec_layout
from .plans.spec_checks import UnevenAxis, spec_problems, uneven_axes
from .profiles.report import memory_profile_report
from .programs.caches import compile_caches_report
from .quantities import format_bytes, format_devices
from .reports import Report
from .reports.array import ArrayReport, BatchAxes, Leaf, ShardingDescription
from .reports.devices import DeviceReport, DevicesReport, MemoryReport
from .reports.growth import CollectedArrays, GrowthReport, OriginGrowth
from .reports.json import from_json, json_schema, to_json
from .reports.live import LiveArrayGroup, LiveArrayReport
from .reports.mesh import MeshReport, ShardReport, XlaReport
from .reports.origin import Origin
from .reports.profile import MemoryProfileReport, ProfileRow
from .reports.programs import CompileCache, CompileCachesReport

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
