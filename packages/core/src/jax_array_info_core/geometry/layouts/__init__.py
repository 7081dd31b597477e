"""Layouts of shards, computed with numpy and without JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.names import import_on_demand

if TYPE_CHECKING:
    from .grid import (
        Grids as Grids,
        describe_pattern as describe_pattern,
        flat_grids as flat_grids,
    )
    from .layout import (
        LocalPart as LocalPart,
        ShardingLayout as ShardingLayout,
    )
    from .notation import (
        format_mesh as format_mesh,
        format_spec as format_spec,
        parse_mesh as parse_mesh,
        parse_shape as parse_shape,
        parse_spec as parse_spec,
    )
    from .spec import (
        MeshAxes as MeshAxes,
        Spec as Spec,
        UnevenAxis as UnevenAxis,
    )
    from .xla import (
        parse_xla_sharding as parse_xla_sharding,
        spec_of_xla as spec_of_xla,
    )
    from .xla_sharding import (
        XlaSharding as XlaSharding,
    )

_PLACES = {
    ".grid": "Grids describe_pattern flat_grids",
    ".layout": "LocalPart ShardingLayout",
    ".notation": "format_mesh format_spec parse_mesh parse_shape parse_spec",
    ".spec": "MeshAxes Spec UnevenAxis",
    ".xla": "parse_xla_sharding spec_of_xla",
    ".xla_sharding": "XlaSharding",
}
"""Public names by the module from which each is imported at first use."""

if not TYPE_CHECKING:
    __all__, __getattr__, __dir__ = import_on_demand(__name__, _PLACES, rooms=())
