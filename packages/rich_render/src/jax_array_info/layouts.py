"""Layouts of shards, and the notation for specs, meshes and shapes."""

from jax_array_info_core import (
    dtype_bits as dtype_bits,
    spec_problems as spec_problems,
    uneven_axes as uneven_axes,
)
from jax_array_info_core.layouts import (
    LocalPart as LocalPart,
    MeshAxes as MeshAxes,
    ShardingLayout as ShardingLayout,
    Spec as Spec,
    UnevenAxis as UnevenAxis,
    XlaSharding as XlaSharding,
    describe_pattern as describe_pattern,
    format_mesh as format_mesh,
    format_spec as format_spec,
    parse_mesh as parse_mesh,
    parse_shape as parse_shape,
    parse_spec as parse_spec,
    parse_xla_sharding as parse_xla_sharding,
    spec_of_xla as spec_of_xla,
)

__all__ = sorted(name for name in globals() if not name.startswith("_"))
