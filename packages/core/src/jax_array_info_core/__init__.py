"""Facts about JAX arrays: shards, bytes per device, live arrays and their growth.

The package draws and prints nothing. Importing it does not import JAX: each name is imported at first use.
The classes of reports are in ``jax_array_info_core.reports``, notation and layouts in ``.layouts``, errors in
``.errors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Imported now: the first import of a submodule sets the attribute of its name to the module.
from .base.config import Config as Config, config as config
from .base.names import import_on_demand

if TYPE_CHECKING:
    from . import errors as errors, layouts as layouts, reports as reports
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
    from .programs.gates import assert_no_regression as assert_no_regression
    from .programs.reshard import (
        reshard_report as reshard_report,
    )
    from .trees.tree_diff import (
        tree_diff_report as tree_diff_report,
    )
    from .trees.checks.check import (
        assert_tree as assert_tree,
        check_report as check_report,
    )
    from .compat.shardings import sharding_layout as sharding_layout
    from .arrays.delivery import (
        collect_reports as collect_reports,
    )
    from .jobs.devices import (
        devices_report as devices_report,
        memory_report as memory_report,
    )
    from .base.errors import (
        ArrayInfoError as ArrayInfoError,
        CheckError as CheckError,
    )
    from .arrays.live.growth import (
        ArrayTracker as ArrayTracker,
        track_arrays as track_arrays,
    )
    from .jobs.hosts.files import (
        load_report as load_report,
        save_report as save_report,
    )
    from .jobs.hosts.gather import (
        gather_reports as gather_reports,
        hosts_report as hosts_report,
    )
    from .geometry.layouts.layout import (
        ShardingLayout as ShardingLayout,
    )
    from .arrays.live.report import (
        live_array_report as live_array_report,
    )
    from .arrays.plans import xla_report as xla_report
    from .arrays.plans import (
        dtype_bits as dtype_bits,
        planned_report as planned_report,
        shard_report as shard_report,
        spec_layout as spec_layout,
        spec_problems as spec_problems,
        uneven_axes as uneven_axes,
    )
    from .arrays.origins.profiles import memory_profile_report as memory_profile_report
    from .programs.assertions import (
        assert_donated as assert_donated,
        assert_no_collective as assert_no_collective,
        assert_program_sharding as assert_program_sharding,
        assert_sent as assert_sent,
        assert_work_divided as assert_work_divided,
    )
    from .jobs.logs.log_report import (
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
    from .programs.layers import layers_report as layers_report
    from .programs.program_report import (
        program_report as program_report,
        program_timeline_report as program_timeline_report,
    )
    from .programs.propagation.propagation_report import (
        assert_no_conflict as assert_no_conflict,
        propagation_report as propagation_report,
    )
    from .base.quantities import (
        format_bytes as format_bytes,
        format_devices as format_devices,
    )
    from .programs.recompiles.watch import (
        CompileWatch as CompileWatch,
        watch_compiles as watch_compiles,
    )
    from .facts.reports.json import (
        from_json as from_json,
        json_schema as json_schema,
        to_json as to_json,
    )
    from .jobs.timeline.timeline_report import timeline_report as timeline_report
    from .facts.reports.metrics import metrics as metrics
    from .jobs.timeline.recorder import MemoryRecorder as MemoryRecorder, record_memory as record_memory
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
    ".arrays.array_report": "array_report",
    ".arrays.labels": "label_array label_of",
    ".arrays.meshes": "mesh_report planned_mesh_report",
    ".programs.gates": "assert_no_regression",
    ".programs.layers": "layers_report",
    ".programs.reshard": "reshard_report",
    ".trees.tree_diff": "tree_diff_report",
    ".trees.checks.check": "assert_tree check_report",
    ".compat.shardings": "sharding_layout",
    ".base.config": "Config config",
    ".arrays.delivery": "collect_reports",
    ".jobs.devices": "devices_report memory_report",
    ".base.errors": "ArrayInfoError CheckError",
    ".jobs.hosts.files": "load_report save_report",
    ".jobs.hosts.gather": "gather_reports hosts_report",
    ".geometry.layouts.layout": "ShardingLayout",
    ".arrays.live.growth": "ArrayTracker track_arrays",
    ".arrays.live.report": "live_array_report",
    ".arrays.origins.profiles": "memory_profile_report",
    ".arrays.plans": (
        "dtype_bits planned_report shard_report spec_layout spec_problems uneven_axes xla_report"
    ),
    ".programs.assertions": (
        "assert_donated assert_no_collective assert_program_sharding assert_sent assert_work_divided"
    ),
    ".programs.caches": "compile_caches_report",
    ".programs.compiled": "topology_mesh",
    ".jobs.logs.log_report": "log_report",
    ".programs.program_diff": "program_diff_report",
    ".programs.program_report": "program_report program_timeline_report",
    ".programs.propagation.propagation_report": "assert_no_conflict propagation_report",
    ".base.quantities": "format_bytes format_devices",
    ".programs.recompiles.watch": "CompileWatch watch_compiles",
    ".facts.reports.json": "from_json json_schema to_json",
    ".facts.reports.metrics": "metrics",
    ".jobs.timeline.recorder": "MemoryRecorder record_memory",
    ".jobs.timeline.timeline_report": "timeline_report",
    ".trees.files": "load_tree",
    ".trees.specs": "PathRules",
    ".trees.tree_report": "save_tree sharded_structs tree_report",
}
"""Public names by the module from which each is imported at first use."""

__all__, _get, _names = import_on_demand(__name__, _PLACES)

if not TYPE_CHECKING:  # mypy would otherwise accept any misspelt name
    __getattr__, __dir__ = _get, _names
