"""What each version of jax calls things.

The only modules that compare versions, tolerate what a version lacks, or touch what jax keeps private.
jax is imported by the first function that needs it, so that importing the core does not.
"""

from .arrays import (
    array_like,
    attribute,
    host_copy,
    label_carrier,
    tells_tracebacks,
    traceback_lines,
    traceback_of,
)
from .asking import ask_as_jax_does, emit_inspection, forget_asking, inspection_primitive, register_for_refs
from .compilation import call_when_compiled, compilation_of, kept_with_module
from .jitted import (
    CompiledPrograms,
    cache_entries,
    empty_cache,
    is_pmapped,
    jitted_kinds,
    live_jitted_functions,
)
from .meshes import (
    batch_of,
    device_assignment,
    is_decided,
    is_ref,
    is_unconstrained,
    mesh_axes,
    mesh_axis_types,
    spec_entries,
    type_mesh,
    typed_sharding,
    varying_axes,
    xla_text,
)
from .processes import Peers, has_backends, keep_collectives_on_loopback, peers, process_index
from .traces import (
    compiling_thread,
    is_compiling,
    is_exporting,
    is_in_pallas,
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
    "cache_entries",
    "call_when_compiled",
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
    "is_in_pallas",
    "is_pmapped",
    "is_ref",
    "is_unconstrained",
    "jitted_kinds",
    "keep_collectives_on_loopback",
    "kept_with_module",
    "label_carrier",
    "live_jitted_functions",
    "lowering_place",
    "mesh_axes",
    "mesh_axis_types",
    "peers",
    "process_index",
    "register_for_refs",
    "spec_entries",
    "tells_tracebacks",
    "traceback_lines",
    "traceback_of",
    "type_mesh",
    "typed_sharding",
    "varying_axes",
    "will_not_compile",
    "xla_text",
]
