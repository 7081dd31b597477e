"""Panels, tables and pictures of the sharding, memory and referrers of JAX arrays.

Functions such as ``sharding_info`` and ``print_array_stats``, print reports. The functions that return
reports come from ``jax_array_info_core`` and are re-exported here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax_array_info_core as _core

from jax_array_info_core.notebooks import show_reports_with

from .export.notebook import load_ipython_extension, reports_bundle, unload_ipython_extension  # noqa: F401 - for IPython

if TYPE_CHECKING:
    from jax_array_info_core import (
        ArrayInfoError as ArrayInfoError,
        ArrayReport as ArrayReport,
        ArrayTracker as ArrayTracker,
        BatchAxes as BatchAxes,
        CheckError as CheckError,
        CheckReport as CheckReport,
        CollectedArrays as CollectedArrays,
        Collective as Collective,
        Compilation as Compilation,
        CompilationsReport as CompilationsReport,
        CompileCache as CompileCache,
        CompileCachesReport as CompileCachesReport,
        CompileWatch as CompileWatch,
        Config as Config,
        ConfigError as ConfigError,
        Constraint as Constraint,
        DeviceReport as DeviceReport,
        DevicesReport as DevicesReport,
        Donation as Donation,
        DonationChange as DonationChange,
        ExcessBytes as ExcessBytes,
        FigureChange as FigureChange,
        FileFormatError as FileFormatError,
        Finding as Finding,
        FindingLeaf as FindingLeaf,
        FunctionNameError as FunctionNameError,
        GrowthReport as GrowthReport,
        LabelError as LabelError,
        LargeBuffer as LargeBuffer,
        LayoutError as LayoutError,
        Leaf as Leaf,
        LeafChange as LeafChange,
        LeafStatistics as LeafStatistics,
        LiveArrayGroup as LiveArrayGroup,
        LiveArrayReport as LiveArrayReport,
        LocalPart as LocalPart,
        LogReport as LogReport,
        MemoryProfileReport as MemoryProfileReport,
        MemoryReport as MemoryReport,
        MeshAxes as MeshAxes,
        MeshReport as MeshReport,
        NotationError as NotationError,
        Origin as Origin,
        OriginGrowth as OriginGrowth,
        OutOfMemory as OutOfMemory,
        PathRules as PathRules,
        ProcessError as ProcessError,
        ProcessTimeoutError as ProcessTimeoutError,
        ProfileError as ProfileError,
        ProfileRow as ProfileRow,
        ProgramDiff as ProgramDiff,
        ProgramMemory as ProgramMemory,
        ProgramReport as ProgramReport,
        ProgramValue as ProgramValue,
        Rematerialization as Rematerialization,
        Report as Report,
        ReportFormatError as ReportFormatError,
        ReshardReport as ReshardReport,
        ReshardRow as ReshardRow,
        SentBytes as SentBytes,
        SentChange as SentChange,
        SentTotals as SentTotals,
        ShardReport as ShardReport,
        ShardingChange as ShardingChange,
        TemporaryChange as TemporaryChange,
        ShardingDescription as ShardingDescription,
        ShardingLayout as ShardingLayout,
        Spec as Spec,
        SourceLine as SourceLine,
        SpecError as SpecError,
        Temporary as Temporary,
        TopologyError as TopologyError,
        TrackerError as TrackerError,
        TreeDiff as TreeDiff,
        TreeMesh as TreeMesh,
        TreeReport as TreeReport,
        TreeRow as TreeRow,
        UncountedFlops as UncountedFlops,
        UnevenAxis as UnevenAxis,
        UnmatchedAxes as UnmatchedAxes,
        UnmatchedName as UnmatchedName,
        UnsupportedValueError as UnsupportedValueError,
        UnusableDonation as UnusableDonation,
        XlaReport as XlaReport,
        XlaSharding as XlaSharding,
        array_report as array_report,
        assert_donated as assert_donated,
        assert_no_collective as assert_no_collective,
        assert_sent as assert_sent,
        assert_sharded as assert_sharded,
        assert_sharding as assert_sharding,
        check_report as check_report,
        collect_reports as collect_reports,
        compile_caches_report as compile_caches_report,
        config as config,
        describe_pattern as describe_pattern,
        devices_report as devices_report,
        dtype_bits as dtype_bits,
        format_mesh as format_mesh,
        format_spec as format_spec,
        from_json as from_json,
        gather_reports as gather_reports,
        json_schema as json_schema,
        label_array as label_array,
        label_of as label_of,
        live_array_report as live_array_report,
        load_tree as load_tree,
        log_report as log_report,
        memory_profile_report as memory_profile_report,
        memory_report as memory_report,
        mesh_plan as mesh_plan,
        mesh_report as mesh_report,
        parse_mesh as parse_mesh,
        parse_shape as parse_shape,
        parse_spec as parse_spec,
        parse_xla_sharding as parse_xla_sharding,
        planned_report as planned_report,
        program_diff as program_diff,
        program_report as program_report,
        reshard_report as reshard_report,
        save_tree as save_tree,
        shard_report as shard_report,
        sharding_layout as sharding_layout,
        spec_layout as spec_layout,
        spec_of_xla as spec_of_xla,
        spec_problems as spec_problems,
        to_json as to_json,
        topology_mesh as topology_mesh,
        track_arrays as track_arrays,
        tree_diff as tree_diff,
        tree_report as tree_report,
        uneven_axes as uneven_axes,
        watch_compiles as watch_compiles,
        xla_report as xla_report,
    )

    from .export.formats import save_picture as save_picture, to_html as to_html, to_svg as to_svg
    from .pictures.text import array_picture as array_picture
    from .render import to_text as to_text
    from .verbs.checks import print_check as print_check
    from .verbs.devices import (
        pretty_memory_stats as pretty_memory_stats,
        print_memory_profile as print_memory_profile,
        print_memory_stats as print_memory_stats,
    )
    from .verbs.growth import print_growth as print_growth
    from .verbs.live import print_array_stats as print_array_stats
    from .verbs.oom import report_on_oom as report_on_oom
    from .verbs.caches import print_compile_caches as print_compile_caches
    from .verbs.programs import (
        print_compilations as print_compilations,
        print_log as print_log,
        print_program as print_program,
        print_program_diff as print_program_diff,
    )
    from .verbs.sharding import (
        print_mesh as print_mesh,
        sharding_info as sharding_info,
        sharding_vis as sharding_vis,
        simple_array_info as simple_array_info,
        tap_sharding as tap_sharding,
    )
    from .verbs.tree_changes import print_reshard as print_reshard, print_tree_diff as print_tree_diff
    from .verbs.trees import print_tree as print_tree

_HELPERS = {"Grids", "flat_grids", "format_bytes", "format_devices"}
"""Names of the core that only renderers need: not re-exported."""

_MODULES = {
    "jax_array_info_core": set(_core.__all__) - _HELPERS,
    ".export.formats": ["save_picture", "to_html", "to_svg"],
    ".pictures.text": ["array_picture"],
    ".render": ["to_text"],
    ".verbs.checks": ["print_check"],
    ".verbs.devices": ["pretty_memory_stats", "print_memory_profile", "print_memory_stats"],
    ".verbs.growth": ["print_growth"],
    ".verbs.live": ["print_array_stats"],
    ".verbs.oom": ["report_on_oom"],
    ".verbs.caches": ["print_compile_caches"],
    ".verbs.programs": ["print_compilations", "print_log", "print_program", "print_program_diff"],
    ".verbs.sharding": ["print_mesh", "sharding_info", "sharding_vis", "simple_array_info", "tap_sharding"],
    ".verbs.tree_changes": ["print_reshard", "print_tree_diff"],
    ".verbs.trees": ["print_tree"],
}
__all__, _get, _names = _core.import_on_demand(__name__, _MODULES)

if not TYPE_CHECKING:  # mypy would accept any misspelled name otherwise
    __getattr__, __dir__ = _get, _names

show_reports_with(lambda report: reports_bundle([report]))
