"""Facts about JAX arrays: shards, bytes per device, live arrays and their growth.

The package draws and prints nothing. Importing it does not import JAX: each name is imported at first use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

# Imported now: the first import of a submodule sets the attribute of its name to the module.
from .config import Config as Config, config as config

if TYPE_CHECKING:
    from .arrays.labels import label_array as label_array, label_of as label_of
    from .arrays.objects import mesh_report as mesh_report
    from .arrays.array_report import array_report as array_report
    from .compat.shardings import sharding_layout as sharding_layout
    from .delivery import collect_reports as collect_reports
    from .devices.memory import devices_report as devices_report
    from .devices.memory import memory_report as memory_report
    from .errors import (
        ArrayInfoError as ArrayInfoError,
        CheckError as CheckError,
        ConfigError as ConfigError,
        FileFormatError as FileFormatError,
        FunctionNameError as FunctionNameError,
        LabelError as LabelError,
        LayoutError as LayoutError,
        NotationError as NotationError,
        ProcessError as ProcessError,
        ProcessTimeoutError as ProcessTimeoutError,
        ProfileError as ProfileError,
        ReportFormatError as ReportFormatError,
        SpecError as SpecError,
        TopologyError as TopologyError,
        TrackerError as TrackerError,
        UnsupportedValueError as UnsupportedValueError,
    )
    from .gather import gather_reports as gather_reports
    from .growth.tracker import ArrayTracker as ArrayTracker, track_arrays as track_arrays
    from .layouts.grid import Grids as Grids, flat_grids as flat_grids
    from .layouts.layout import ShardingLayout as ShardingLayout
    from .layouts.layout import LocalPart as LocalPart
    from .layouts.notation import (
        format_mesh as format_mesh,
        format_spec as format_spec,
        parse_mesh as parse_mesh,
        parse_shape as parse_shape,
        parse_spec as parse_spec,
    )
    from .layouts.grid import describe_pattern as describe_pattern
    from .layouts.spec import MeshAxes as MeshAxes, Spec as Spec
    from .layouts.spec import UnevenAxis as UnevenAxis
    from .layouts.xla import parse_xla_sharding as parse_xla_sharding, spec_of_xla as spec_of_xla
    from .layouts.xla_sharding import XlaSharding as XlaSharding
    from .live.report import live_array_report as live_array_report
    from .plans.explain import xla_report as xla_report
    from .plans.plan import (
        dtype_bits as dtype_bits,
        mesh_plan as mesh_plan,
        planned_report as planned_report,
        shard_report as shard_report,
        spec_layout as spec_layout,
    )
    from .plans.plan import spec_problems as spec_problems, uneven_axes as uneven_axes
    from .profiles.profile_report import memory_profile_report as memory_profile_report
    from .programs.caches import compile_caches_report as compile_caches_report
    from .programs.assertions import (
        assert_donated as assert_donated,
        assert_no_collective as assert_no_collective,
        assert_sent as assert_sent,
        assert_sharding as assert_sharding,
    )
    from .programs.program_diff import program_diff as program_diff
    from .programs.compiler_log import log_report as log_report
    from .programs.program_report import program_report as program_report
    from .programs.compiled import topology_mesh as topology_mesh
    from .quantities import format_bytes as format_bytes, format_devices as format_devices
    from .recompiles.watch import CompileWatch as CompileWatch, watch_compiles as watch_compiles
    from .reports import Report as Report
    from .reports.array import (
        ArrayReport as ArrayReport,
        BatchAxes as BatchAxes,
        Leaf as Leaf,
        ShardingDescription as ShardingDescription,
    )
    from .reports.checks import CheckReport as CheckReport, Finding as Finding, FindingLeaf as FindingLeaf
    from .reports.compiles import Compilation as Compilation, CompilationsReport as CompilationsReport
    from .reports.devices import (
        DeviceReport as DeviceReport,
        DevicesReport as DevicesReport,
        MemoryReport as MemoryReport,
    )
    from .reports.growth import (
        CollectedArrays as CollectedArrays,
        GrowthReport as GrowthReport,
        OriginGrowth as OriginGrowth,
    )
    from .reports.json import from_json as from_json, json_schema as json_schema, to_json as to_json
    from .reports.live import LiveArrayGroup as LiveArrayGroup, LiveArrayReport as LiveArrayReport
    from .reports.compiles import LogReport as LogReport, UnusableDonation as UnusableDonation
    from .reports.mesh import MeshReport as MeshReport, ShardReport as ShardReport, XlaReport as XlaReport
    from .reports.origin import Origin as Origin, SourceLine as SourceLine
    from .reports.devices import MemoryProfileReport as MemoryProfileReport, ProfileRow as ProfileRow
    from .reports.compiles import CompileCache as CompileCache, CompileCachesReport as CompileCachesReport
    from .reports.program import UncountedFlops as UncountedFlops
    from .reports.program import (
        Collective as Collective,
        Constraint as Constraint,
        Donation as Donation,
        ProgramReport as ProgramReport,
        ProgramValue as ProgramValue,
        Rematerialization as Rematerialization,
        SentBytes as SentBytes,
        SentTotals as SentTotals,
    )
    from .reports.program_memory import (
        LargeBuffer as LargeBuffer,
        OutOfMemory as OutOfMemory,
        ProgramMemory as ProgramMemory,
        Temporary as Temporary,
    )
    from .reports.changes import (
        DonationChange as DonationChange,
        FigureChange as FigureChange,
        ProgramDiff as ProgramDiff,
        SentChange as SentChange,
        ShardingChange as ShardingChange,
        TemporaryChange as TemporaryChange,
    )
    from .reports.tree import (
        ExcessBytes as ExcessBytes,
        LeafStatistics as LeafStatistics,
        TreeMesh as TreeMesh,
        TreeReport as TreeReport,
        TreeRow as TreeRow,
        UnmatchedAxes as UnmatchedAxes,
        UnmatchedName as UnmatchedName,
    )
    from .reports.changes import (
        LeafChange as LeafChange,
        ReshardReport as ReshardReport,
        ReshardRow as ReshardRow,
        TreeDiff as TreeDiff,
    )
    from .checks.check import assert_sharded as assert_sharded, check_report as check_report
    from .changes.tree_diff import tree_diff as tree_diff
    from .trees.files import load_tree as load_tree, save_tree as save_tree
    from .trees.path_rules import PathRules as PathRules
    from .trees.tree_report import tree_report as tree_report
    from .changes.reshard import reshard_report as reshard_report


def import_on_demand(
    package: str, modules: Mapping[str, Collection[str]]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package that imports names at first use.

    Args:
        package: Name of the package.
        modules: Public names of each module, by relative module name.
    """
    module_of = {name: module for module, names in modules.items() for name in names}
    public = sorted(module_of)
    known = vars(sys.modules[package])
    for name in public:  # a reloaded module still has the names of the first load
        known.pop(name, None)

    def get(name: str) -> Any:
        if name not in module_of:
            if name.startswith("_") or find_spec(f"{package}.{name}") is None:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            return import_module(f"{package}.{name}")
        if sys.is_finalizing():
            # Imports fail while the interpreter shuts down, and nothing is printed then.
            return lambda *args, **options: None
        known[name] = getattr(import_module(module_of[name], package), name)
        return known[name]

    def names() -> list[str]:
        return sorted([*public, *(name for name in known if name.startswith("__"))])

    return public, get, names


_MODULES = {
    ".arrays.labels": ["label_array", "label_of"],
    ".arrays.objects": ["mesh_report"],
    ".arrays.array_report": ["array_report"],
    ".compat.shardings": ["sharding_layout"],
    ".config": ["Config", "config"],
    ".delivery": ["collect_reports"],
    ".devices.memory": ["devices_report", "memory_report"],
    ".errors": [
        "ArrayInfoError",
        "CheckError",
        "ConfigError",
        "FileFormatError",
        "FunctionNameError",
        "LabelError",
        "LayoutError",
        "NotationError",
        "ProcessError",
        "ProcessTimeoutError",
        "ProfileError",
        "ReportFormatError",
        "SpecError",
        "TopologyError",
        "TrackerError",
        "UnsupportedValueError",
    ],
    ".gather": ["gather_reports"],
    ".growth.tracker": ["ArrayTracker", "track_arrays"],
    ".layouts.grid": ["Grids", "flat_grids", "describe_pattern"],
    ".layouts.layout": ["ShardingLayout", "LocalPart"],
    ".layouts.notation": ["format_mesh", "format_spec", "parse_mesh", "parse_shape", "parse_spec"],
    ".layouts.spec": ["MeshAxes", "Spec", "UnevenAxis"],
    ".layouts.xla": ["parse_xla_sharding", "spec_of_xla"],
    ".layouts.xla_sharding": ["XlaSharding"],
    ".live.report": ["live_array_report"],
    ".plans.explain": ["xla_report"],
    ".plans.plan": [
        "dtype_bits",
        "mesh_plan",
        "planned_report",
        "shard_report",
        "spec_layout",
        "spec_problems",
        "uneven_axes",
    ],
    ".profiles.profile_report": ["memory_profile_report"],
    ".programs.caches": ["compile_caches_report"],
    ".programs.assertions": ["assert_donated", "assert_no_collective", "assert_sent", "assert_sharding"],
    ".programs.program_diff": ["program_diff"],
    ".programs.compiler_log": ["log_report"],
    ".programs.program_report": ["program_report"],
    ".programs.compiled": ["topology_mesh"],
    ".quantities": ["format_bytes", "format_devices"],
    ".recompiles.watch": ["CompileWatch", "watch_compiles"],
    ".reports": ["Report"],
    ".reports.array": ["ArrayReport", "BatchAxes", "Leaf", "ShardingDescription"],
    ".reports.checks": ["CheckReport", "Finding", "FindingLeaf"],
    ".reports.compiles": [
        "Compilation",
        "CompilationsReport",
        "LogReport",
        "UnusableDonation",
        "CompileCache",
        "CompileCachesReport",
    ],
    ".reports.devices": [
        "DeviceReport",
        "DevicesReport",
        "MemoryReport",
        "MemoryProfileReport",
        "ProfileRow",
    ],
    ".reports.growth": ["CollectedArrays", "GrowthReport", "OriginGrowth"],
    ".reports.json": ["from_json", "json_schema", "to_json"],
    ".reports.live": ["LiveArrayGroup", "LiveArrayReport"],
    ".reports.mesh": ["MeshReport", "ShardReport", "XlaReport"],
    ".reports.origin": ["Origin", "SourceLine"],
    ".reports.program": [
        "UncountedFlops",
        "Collective",
        "Constraint",
        "Donation",
        "ProgramReport",
        "ProgramValue",
        "Rematerialization",
        "SentBytes",
        "SentTotals",
    ],
    ".reports.program_memory": ["LargeBuffer", "OutOfMemory", "ProgramMemory", "Temporary"],
    ".reports.changes": [
        "DonationChange",
        "FigureChange",
        "ProgramDiff",
        "SentChange",
        "ShardingChange",
        "TemporaryChange",
        "LeafChange",
        "ReshardReport",
        "ReshardRow",
        "TreeDiff",
    ],
    ".reports.tree": [
        "ExcessBytes",
        "LeafStatistics",
        "TreeMesh",
        "TreeReport",
        "TreeRow",
        "UnmatchedAxes",
        "UnmatchedName",
    ],
    ".checks.check": ["assert_sharded", "check_report"],
    ".changes.tree_diff": ["tree_diff"],
    ".trees.files": ["load_tree", "save_tree"],
    ".trees.path_rules": ["PathRules"],
    ".trees.tree_report": ["tree_report"],
    ".changes.reshard": ["reshard_report"],
}
__all__, _get, _names = import_on_demand(__name__, _MODULES)

if not TYPE_CHECKING:  # mypy would otherwise accept any misspelt name
    __getattr__, __dir__ = _get, _names
