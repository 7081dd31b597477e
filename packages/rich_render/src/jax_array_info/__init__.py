"""Panels, tables and pictures of the sharding, memory and referrers of JAX arrays.

Which call answers your question?

How is this array sharded? Is it replicated?
    sharding_info(x)
    sharding_vis(x)
Is a model sharded as meant?
    print_check(state)
    print_tree(state)
Will it fit, also on a mesh that I don't have?
    print_check(model, mesh={"fsdp": 16, "tensor": 16}, specs=specs, hbm_nbytes="16GiB")
Which sharding did XLA choose inside jit? Inside shard_map?
    x = tap_sharding(x)
Why is it sharded like this?
    print_propagation(step, *args)
What does my step send, and why? Which line keeps most for the backward pass?
    print_program(step, *args)
What does each layer cost: bytes held, sent and saved, FLOPs?
    print_layers(step, *args)
Which change of a sharding makes it better?
    print_report(load_report("advice.json"))
What does it send on a TPU or GPU that I don't have? Needs libtpu, or JAX's CUDA plugin
    mesh = topology_mesh("v5p:2x2x2", {"data": 8})
What do an FFT, a halo exchange and a deposit onto a grid send?
    print_program(step, *args)
What moves if I restore on another mesh?
    print_reshard(state, tree_report(state, mesh={"data": 4}, specs=P("data")))
What is the peak while weights move to another mesh?
    print_reshard(params, shardings, hbm_nbytes="16GiB")
What changed between two checkpoints or programs?
    print_tree_diff(a, b)
    print_program_diff(a, b)
Which leaf contains NaN?
    print_tree(state, statistics=True, sort="nan")
What is using my device memory, and what refers to it? What is on this device?
    print_array_stats(origins=True, referrers=True)
    print_array_stats(device=jax.devices()[3])
Which arrays were live when memory ran out?
    @report_on_oom()
Which lines allocated the memory in memory.prof?
    print_memory_profile()
What happened to my memory over the night?
    with record_memory("memory/"):
    print_timeline("memory/")
Which line leaks memory?
    with track_arrays() as growth:
    growth.step()
    print_growth(growth, referrers=True)
Why does JAX recompile my function? And my job, as it is?
    with watch_compiles() as watch:
    print_compilations(watch)
How does CI fail if it gets worse?
    assert_tree(state, expect=specs)
    assert_no_collective(program_report(step, *args), "all-gather")
What went wrong in a finished run? Which host failed first?
    print_log("train.log")
    print_log("logs/")
What does each process hold? Which mesh axis crosses hosts?
    print_hosts(live_array_report())
    print_mesh(mesh)
What does this XLA sharding, or this code, mean?
    print_report(xla_report(text))

Functions named ``print_…`` print a report. Those named ``…_report`` return it, and ``to_text``, ``to_json``
and ``save_picture`` convert it. Classes of reports are in ``jax_array_info.reports``, notation and layouts in
``jax_array_info.layouts``, and exceptions, such as ``CheckError``, in ``jax_array_info.errors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax_array_info_core.base.names import import_on_demand
from jax_array_info_core.base.notebooks import show_reports_with

if TYPE_CHECKING:
    from . import errors as errors, layouts as layouts, reports as reports
    from jax_array_info_core import (
        ArrayInfoError as ArrayInfoError,
        ArrayTracker as ArrayTracker,
        CheckError as CheckError,
        CompileWatch as CompileWatch,
        Config as Config,
        MemoryRecorder as MemoryRecorder,
        PathRules as PathRules,
        ShardingLayout as ShardingLayout,
        array_report as array_report,
        assert_donated as assert_donated,
        assert_no_collective as assert_no_collective,
        assert_no_conflict as assert_no_conflict,
        assert_no_regression as assert_no_regression,
        assert_sent as assert_sent,
        assert_tree as assert_tree,
        assert_work_divided as assert_work_divided,
        assert_program_sharding as assert_program_sharding,
        check_report as check_report,
        collect_reports as collect_reports,
        compile_caches_report as compile_caches_report,
        config as config,
        devices_report as devices_report,
        from_json as from_json,
        gather_reports as gather_reports,
        hosts_report as hosts_report,
        json_schema as json_schema,
        label_array as label_array,
        label_of as label_of,
        layers_report as layers_report,
        live_array_report as live_array_report,
        load_report as load_report,
        load_tree as load_tree,
        log_report as log_report,
        memory_profile_report as memory_profile_report,
        memory_report as memory_report,
        planned_mesh_report as planned_mesh_report,
        mesh_report as mesh_report,
        metrics as metrics,
        planned_report as planned_report,
        program_diff_report as program_diff_report,
        program_report as program_report,
        program_timeline_report as program_timeline_report,
        propagation_report as propagation_report,
        record_memory as record_memory,
        reshard_report as reshard_report,
        save_report as save_report,
        save_tree as save_tree,
        shard_report as shard_report,
        sharded_structs as sharded_structs,
        sharding_layout as sharding_layout,
        spec_layout as spec_layout,
        timeline_report as timeline_report,
        to_json as to_json,
        topology_mesh as topology_mesh,
        track_arrays as track_arrays,
        tree_diff_report as tree_diff_report,
        tree_report as tree_report,
        watch_compiles as watch_compiles,
        xla_report as xla_report,
    )
    from .export.formats import (
        save_picture as save_picture,
        to_html as to_html,
        to_svg as to_svg,
    )
    from .pictures.text import (
        array_picture as array_picture,
    )
    from .engine.render import (
        to_text as to_text,
    )
    from .verbs.timeline import print_hosts as print_hosts
    from .verbs.programs import print_compile_caches as print_compile_caches
    from .verbs.trees import print_check as print_check
    from .verbs.memory import (
        pretty_memory_stats as pretty_memory_stats,
        print_memory_profile as print_memory_profile,
        print_memory_stats as print_memory_stats,
    )
    from .verbs.memory import print_growth as print_growth
    from .verbs.memory import print_array_stats as print_array_stats
    from .verbs.show import print_report as print_report
    from .verbs.explain import (
        explain_errors as explain_errors,
    )
    from .verbs.layers import print_layers as print_layers
    from .verbs.oom import (
        report_on_oom as report_on_oom,
    )
    from .verbs.programs import (
        print_compilations as print_compilations,
        print_log as print_log,
        print_program as print_program,
        print_program_diff as print_program_diff,
    )
    from .verbs.timeline import print_program_timeline as print_program_timeline
    from .verbs.programs import print_propagation as print_propagation
    from .verbs.sharding import (
        print_mesh as print_mesh,
        sharding_info as sharding_info,
        sharding_vis as sharding_vis,
        simple_array_info as simple_array_info,
        tap_sharding as tap_sharding,
    )
    from .verbs.trees import print_reshard as print_reshard, print_tree_diff as print_tree_diff
    from .verbs.timeline import print_timeline as print_timeline
    from .verbs.trees import (
        print_tree as print_tree,
    )

_PLACES = {
    "jax_array_info_core": (
        "ArrayInfoError ArrayTracker CheckError CompileWatch Config MemoryRecorder PathRules ShardingLayout "
        "array_report assert_donated assert_no_collective assert_no_conflict assert_no_regression "
        "assert_sent assert_tree assert_work_divided assert_program_sharding check_report collect_reports "
        "compile_caches_report config devices_report from_json gather_reports hosts_report json_schema "
        "label_array label_of layers_report live_array_report load_report load_tree log_report "
        "memory_profile_report memory_report planned_mesh_report mesh_report metrics planned_report "
        "program_diff_report program_report program_timeline_report propagation_report record_memory "
        "reshard_report save_report save_tree shard_report sharded_structs sharding_layout spec_layout "
        "timeline_report to_json topology_mesh track_arrays tree_diff_report tree_report watch_compiles "
        "xla_report"
    ),
    ".engine.render": "to_text",
    ".export.formats": "save_picture to_html to_svg",
    ".pictures.text": "array_picture",
    ".verbs.explain": "explain_errors",
    ".verbs.layers": "print_layers",
    ".verbs.memory": (
        "pretty_memory_stats print_memory_profile print_memory_stats print_growth print_array_stats"
    ),
    ".verbs.oom": "report_on_oom",
    ".verbs.programs": (
        "print_compile_caches print_compilations print_log print_program print_program_diff print_propagation"
    ),
    ".verbs.sharding": "print_mesh sharding_info sharding_vis simple_array_info tap_sharding",
    ".verbs.show": "print_report",
    ".verbs.timeline": "print_hosts print_program_timeline print_timeline",
    ".verbs.trees": "print_check print_reshard print_tree_diff print_tree",
}
"""Public names by the module from which each is imported at first use."""

__all__, _get, _names = import_on_demand(__name__, _PLACES)

if not TYPE_CHECKING:  # mypy would accept any misspelled name otherwise
    __getattr__, __dir__ = _get, _names


def _bundle(report: Any) -> Any:
    from .export.notebook import reports_bundle

    return reports_bundle([report])


show_reports_with(_bundle)


def load_ipython_extension(shell: Any) -> None:
    """Show reports of arrays and trees as the output of cells, and explanations of errors before tracebacks.

    Reports are shown of JAX arrays, of trees of JAX arrays and of lists of reports. Errors are those of
    ``explain_errors``. IPython calls it for ``%load_ext jax_array_info``.

    Args:
        shell: The IPython shell.
    """
    from .verbs.extension import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Show arrays, trees and errors as before. IPython calls it for ``%unload_ext jax_array_info``.

    Args:
        shell: The IPython shell.
    """
    from .verbs.extension import unload

    unload(shell)
