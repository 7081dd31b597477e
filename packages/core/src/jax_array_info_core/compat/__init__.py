"""Compatibility with every supported version of JAX.

Only these modules compare versions, fall back where a version lacks a feature, or use JAX's private
modules. The first function that needs JAX imports it, so importing the core does not.
"""

from .arrays import has_tracebacks, label_carrier, shard_place, shard_views, traceback_lines, traceback_of
from .compiled_calls import ModuleListener, compilations_are_heard, module_listener
from .inspection import (
    drop_inspection_effect,
    emit_inspection,
    inspection_primitive,
    strip_unpartitioned_inspections,
)
from .jax_stack import (
    compilation_target,
    compiling_thread,
    is_compiling,
    is_only_analyzed,
    is_staging,
    will_not_compile,
)
from .jitted import (
    CompiledPrograms,
    cache_entries,
    empty_cache,
    is_pmapped,
    jitted_types,
    live_jitted_functions,
)
from .jax_stack import lowering_place
from .devices import (
    Peers,
    has_backends,
    keep_collectives_on_loopback,
    local_devices,
    peers,
    process_count,
    process_index,
)
from .jitted import module_names, referents, referents_of_each
from .arrays import is_ref
from .inspection import register_for_refs, register_where_used, returned_key

__all__ = [
    "CompiledPrograms",
    "ModuleListener",
    "Peers",
    "cache_entries",
    "compilation_target",
    "compilations_are_heard",
    "compiling_thread",
    "drop_inspection_effect",
    "emit_inspection",
    "empty_cache",
    "has_backends",
    "has_tracebacks",
    "inspection_primitive",
    "is_compiling",
    "is_only_analyzed",
    "is_pmapped",
    "is_ref",
    "is_staging",
    "jitted_types",
    "keep_collectives_on_loopback",
    "label_carrier",
    "live_jitted_functions",
    "local_devices",
    "lowering_place",
    "module_listener",
    "module_names",
    "peers",
    "process_count",
    "process_index",
    "referents",
    "referents_of_each",
    "register_for_refs",
    "register_where_used",
    "returned_key",
    "shard_place",
    "shard_views",
    "strip_unpartitioned_inspections",
    "traceback_lines",
    "traceback_of",
    "will_not_compile",
]
