"""What each version of jax calls things.

The only modules that compare versions, tolerate what a version lacks, or touch what jax keeps private.
jax is imported by the first function that needs it, so that importing the core does not.
"""

from .arrays import (
    array_like,
    attribute,
    host_copy,
    label_carrier,
    shard_place,
    shard_views,
    tells_tracebacks,
    traceback_lines,
    traceback_of,
)
from .compilation import call_when_compiled, call_when_lowered, compilation_of, kept_with_module
from .inspection import (
    ask_as_jax_does,
    emit_inspection,
    forget_asking,
    inspection_primitive,
    withdraw_inspections,
)
from .jitted import (
    CompiledPrograms,
    cache_entries,
    empty_cache,
    is_pmapped,
    jitted_kinds,
    live_jitted_functions,
)
from .meshes import mesh_axes, mesh_axis_types
from .partition_specs import is_unconstrained, spec_entries
from .processes import Peers, has_backends, keep_collectives_on_loopback, peers, process_index
from .referents import module_names, referents, referents_of_each
from .shardings import device_assignment, xla_text
from .tracers import batch_of, called_under, is_decided, is_ref, type_mesh, typed_sharding, varying_axes
from .transformation_rules import register_for_refs, register_where_used, returned_key
from .transforms import (
    blind_spot,
    compiling_thread,
    is_compiling,
    is_exporting,
    is_staging,
    lowering_place,
    will_not_compile,
)

__all__ = [
    "CompiledPrograms",
    "Peers",
    "array_like",
    "ask_as_jax_does",
    "attribute",
    "batch_of",
    "blind_spot",
    "cache_entries",
    "call_when_compiled",
    "call_when_lowered",
    "called_under",
    "compilation_of",
    "compiling_thread",
    "device_assignment",
    "emit_inspection",
    "empty_cache",
    "forget_asking",
    "has_backends",
    "host_copy",
    "inspection_primitive",
    "is_compiling",
    "is_decided",
    "is_exporting",
    "is_pmapped",
    "is_ref",
    "is_staging",
    "is_unconstrained",
    "jitted_kinds",
    "keep_collectives_on_loopback",
    "kept_with_module",
    "label_carrier",
    "live_jitted_functions",
    "lowering_place",
    "mesh_axes",
    "mesh_axis_types",
    "module_names",
    "peers",
    "process_index",
    "referents",
    "referents_of_each",
    "register_for_refs",
    "register_where_used",
    "returned_key",
    "shard_place",
    "shard_views",
    "spec_entries",
    "tells_tracebacks",
    "traceback_lines",
    "traceback_of",
    "type_mesh",
    "typed_sharding",
    "varying_axes",
    "will_not_compile",
    "withdraw_inspections",
    "xla_text",
]
