"""Layouts of shards, computed with numpy and without JAX."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # name by name: griffe finds none by a star in a module without a written __all__
    from .geometry.layouts import (
        Grids as Grids,
        LocalPart as LocalPart,
        MeshAxes as MeshAxes,
        ShardingLayout as ShardingLayout,
        Spec as Spec,
        UnevenAxis as UnevenAxis,
        XlaSharding as XlaSharding,
        describe_pattern as describe_pattern,
        flat_grids as flat_grids,
        format_mesh as format_mesh,
        format_spec as format_spec,
        parse_mesh as parse_mesh,
        parse_shape as parse_shape,
        parse_spec as parse_spec,
        parse_xla_sharding as parse_xla_sharding,
        spec_of_xla as spec_of_xla,
    )
else:  # each name is still imported at first use
    from .geometry.layouts import __all__, __dir__, __getattr__  # noqa: F401
