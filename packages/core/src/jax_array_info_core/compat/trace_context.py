"""Settings of JAX and contexts that are part of the key of a compiled program."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from ..text import plain_text
from .meshes import mesh_placement
from .private import private

SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_default_prng_impl",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
    "jax_threefry_gpu_kernel_lowering",
    "jax_random_seed_offset",
    "jax_enable_custom_prng",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_debug_key_reuse",
    "jax_check_tracer_leaks",
    "jax_softmax_custom_jvp",
    "jax_high_dynamic_range_gumbel",
    "jax_use_shardy_partitioner",
    "jax_use_direct_linearize",
    "jax_allow_f16_reductions",
    "jax_dynamic_shapes",
    "jax_disable_jit",
    "jax_no_execution",
    "jax_enable_pgle",
    "jax_pgle_profiling_runs",
    "jax_error_checking_behavior_nan",
    "jax_error_checking_behavior_divide",
    "jax_error_checking_behavior_oob",
    "jax_xla_profile_version",
    "jax_hlo_source_file_canonicalization_regex",
)


class ContextValue(NamedTuple):
    """One setting or context."""

    text: str
    key: Hashable = None
    """A value that differs where two values have the same text."""


def trace_context() -> dict[str, ContextValue]:
    """Return the settings and the meshes in effect in this thread, by name. Unknown settings are left out."""
    import jax

    found = {}
    for name in SETTINGS:
        value = getattr(jax.config, name, None)
        if value is not None:
            found[name] = ContextValue(plain_text(value))
    mesh = _context_mesh()
    if mesh is not None:
        axes, ids, *_ = mesh_placement(mesh)
        text = ", ".join(f"{name}={size}" for name, size in axes.shape.items())
        types = set(axes.types) - {"Auto"}
        text += f" ({', '.join(axes.types)})" if types else ""
        found["mesh"] = ContextValue(text, None if ids is None else hash(ids.tobytes()))
    return found


def _context_mesh() -> Any:
    """Return the mesh of ``jax.set_mesh``, ``use_mesh`` or ``with mesh``; None if there is none."""
    meshes = private("mesh")
    environment = getattr(getattr(meshes, "thread_resources", None), "env", None)
    candidates = [
        getattr(meshes, "get_concrete_mesh", lambda: None)(),
        getattr(environment, "physical_mesh", None),
        getattr(meshes, "get_abstract_mesh", lambda: None)(),
    ]
    for mesh in candidates:
        if mesh is not None and hasattr(mesh, "empty") and not mesh.empty:
            return mesh
    return None
