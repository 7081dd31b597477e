"""Compatibility with every supported version of JAX.

Only these modules compare versions, fall back where a version lacks a feature, or use JAX's private
modules. The first function that needs JAX imports it, so importing the core does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..names import import_on_demand

if TYPE_CHECKING:
    from .arrays import (
        has_tracebacks as has_tracebacks,
        is_ref as is_ref,
        label_carrier as label_carrier,
        shard_place as shard_place,
        shard_views as shard_views,
        traceback_lines as traceback_lines,
        traceback_of as traceback_of,
    )
    from .compiled_calls import (
        ModuleListener as ModuleListener,
        compilations_are_heard as compilations_are_heard,
        module_listener as module_listener,
    )
    from .devices import (
        Peers as Peers,
        has_backends as has_backends,
        keep_collectives_on_loopback as keep_collectives_on_loopback,
        local_devices as local_devices,
        peers as peers,
        process_count as process_count,
        process_index as process_index,
    )
    from .inspection import (
        drop_inspection_effect as drop_inspection_effect,
        emit_inspection as emit_inspection,
        inspection_primitive as inspection_primitive,
        register_for_refs as register_for_refs,
        register_where_used as register_where_used,
        returned_key as returned_key,
        strip_unpartitioned_inspections as strip_unpartitioned_inspections,
    )
    from .jax_stack import (
        compilation_target as compilation_target,
        compiling_thread as compiling_thread,
        is_compiling as is_compiling,
        is_only_analyzed as is_only_analyzed,
        is_staging as is_staging,
        lowering_place as lowering_place,
        will_not_compile as will_not_compile,
    )
    from .jitted import (
        CompiledPrograms as CompiledPrograms,
        cache_entries as cache_entries,
        empty_cache as empty_cache,
        is_pmapped as is_pmapped,
        jitted_types as jitted_types,
        live_jitted_functions as live_jitted_functions,
        module_names as module_names,
        referents as referents,
        referents_of_each as referents_of_each,
    )

_PLACES = {
    ".arrays": "has_tracebacks is_ref label_carrier shard_place shard_views traceback_lines traceback_of",
    ".compiled_calls": "ModuleListener compilations_are_heard module_listener",
    ".devices": (
        "Peers has_backends keep_collectives_on_loopback local_devices peers process_count process_index"
    ),
    ".inspection": (
        "drop_inspection_effect emit_inspection inspection_primitive register_for_refs "
        "register_where_used returned_key strip_unpartitioned_inspections"
    ),
    ".jax_stack": (
        "compilation_target compiling_thread is_compiling is_only_analyzed is_staging lowering_place "
        "will_not_compile"
    ),
    ".jitted": (
        "CompiledPrograms cache_entries empty_cache is_pmapped jitted_types live_jitted_functions "
        "module_names referents referents_of_each"
    ),
}
"""Names by the module from which each is imported at first use."""

if not TYPE_CHECKING:
    __all__, __getattr__, __dir__ = import_on_demand(__name__, _PLACES, rooms=())
