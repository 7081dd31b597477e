"""Facts about JAX arrays: shards, bytes per device, live arrays and their growth.

The package draws and prints nothing. Importing it does not import JAX: each name is imported at first use.
The classes of reports are in ``jax_array_info_core.reports``, notation and layouts in ``.layouts``, errors in
``.errors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Imported now: the first import of a submodule sets the attribute of its name to the module.
from .config import Config as Config, config as config
from .names import import_on_demand

if TYPE_CHECKING:
    from . import errors as errors, layouts as layouts, reports as reports
    from .advice.advice_report import advise_report as advise_report
    from .arrays.array_report import (
        array_report as array_report,
    )
    from .arrays.labels import (
        label_array as label_array,
        label_of as label_of,
    )
    from .arrays.meshes import (
        mesh_report as mesh_report,
        planned_mesh_report as planned_mesh_report,
    )
    from .changes.gates import assert_no_regression as assert_no_regression
    from .changes.reshard import (
        reshard_report as reshard_report,
    )
    from .changes.tree_diff import (
        tree_diff_report as tree_diff_report,
    )
    from .checks.check import (
        assert_tree as assert_tree,
        check_report as check_report,
    )
    from .compat.shardings import sharding_layout as sharding_layout
    from .delivery import (
        collect_reports as collect_reports,
    )
    from .devices.memory import (
        devices_report as devices_report,
        memory_report as memory_report,
    )
    from .errors import (
        ArrayInfoError as ArrayInfoError,
        CheckError as CheckError,
    )
    from .live.growth import (
        ArrayTracker as ArrayTracker,
        track_arrays as track_arrays,
    )
    from .hosts.files import (
        load_report as load_report,
        save_report as save_report,
    )
    from .hosts.gather import (
        gather_reports as gather_reports,
        hosts_report as hosts_report,
    )
    from .layouts.layout import (
        ShardingLayout as ShardingLayout,
    )
    from .live.report import (
        live_array_report as live_array_report,
    )
    from .plans.plan import xla_report as xla_report
    from .plans.plan import (
        dtype_bits as dtype_bits,
        planned_report as planned_report,
        shard_report as shard_report,
        spec_layout as spec_layout,
        spec_problems as spec_problems,
        uneven_axes as uneven_axes,
    )
    from .origins.profiles import memory_profile_report as memory_profile_report
    from .programs.assertions import (
        assert_donated as assert_donated,
        assert_no_collective as assert_no_collective,
        assert_program_sharding as assert_program_sharding,
        assert_sent as assert_sent,
    )
    from .logs.log_report import (
        log_report as log_report,
    )
    from .programs.caches import (
        compile_caches_report as compile_caches_report,
    )
    from .programs.compiled import (
        topology_mesh as topology_mesh,
    )
    from .programs.program_diff import (
        program_diff_report as program_diff_report,
    )
    from .programs.program_report import (
        program_report as program_report,
        program_timeline_report as program_timeline_report,
    )
    from .propagation.propagation_report import (
        assert_no_conflict as assert_no_conflict,
        propagation_report as propagation_report,
    )
    from .quantities import (
        format_bytes as format_bytes,
        format_devices as format_devices,
    )
    from .recompiles.watch import (
        CompileWatch as CompileWatch,
        watch_compiles as watch_compiles,
    )
    from .reports.json import (
        from_json as from_json,
        json_schema as json_schema,
        to_json as to_json,
    )
    from .timeline.timeline_report import timeline_report as timeline_report
    from .reports.metrics import metrics as metrics
    from .timeline.recorder import MemoryRecorder as MemoryRecorder, record_memory as record_memory
    from .trees.files import (
        load_tree as load_tree,
    )
    from .trees.specs import (
        PathRules as PathRules,
    )
    from .trees.tree_report import (
        save_tree as save_tree,
        sharded_structs as sharded_structs,
        tree_report as tree_report,
    )

_PLACES = {
    ".advice.advice_report": "advise_report",
    ".arrays.array_report": "array_report",
    ".arrays.labels": "label_array label_of",
    ".arrays.meshes": "mesh_report planned_mesh_report",
    ".changes.gates": "assert_no_regression",
    ".changes.reshard": "reshard_report",
    ".changes.tree_diff": "tree_diff_report",
    ".checks.check": "assert_tree check_report",
    ".compat.shardings": "sharding_layout",
    ".config": "Config config",
    ".delivery": "collect_reports",
    ".devices.memory": "devices_report memory_report",
    ".errors": "ArrayInfoError CheckError",
    ".hosts.files": "load_report save_report",
    ".hosts.gather": "gather_reports hosts_report",
    ".layouts.layout": "ShardingLayout",
    ".live.growth": "ArrayTracker track_arrays",
    ".live.report": "live_array_report",
    ".origins.profiles": "memory_profile_report",
    ".plans.plan": "dtype_bits planned_report shard_report spec_layout spec_problems uneven_axes xla_report",
    ".programs.assertions": "assert_donated assert_no_collective assert_program_sharding assert_sent",
    ".programs.caches": "compile_caches_report",
    ".programs.compiled": "topology_mesh",
    ".logs.log_report": "log_report",
    ".programs.program_diff": "program_diff_report",
    ".programs.program_report": "program_report program_timeline_report",
    ".propagation.propagation_report": "assert_no_conflict propagation_report",
    ".quantities": "format_bytes format_devices",
    ".recompiles.watch": "CompileWatch watch_compiles",
    ".reports.json": "from_json json_schema to_json",
    ".reports.metrics": "metrics",
    ".timeline.recorder": "MemoryRecorder record_memory",
    ".timeline.timeline_report": "timeline_report",
    ".trees.files": "load_tree",
    ".trees.specs": "PathRules",
    ".trees.tree_report": "save_tree sharded_structs tree_report",
}
"""Public names by the module from which each is imported at first use."""

__all__, _get, _names = import_on_demand(__name__, _PLACES)

if not TYPE_CHECKING:  # mypy would otherwise accept any misspelt name
    __getattr__, __dir__ = _get, _names
