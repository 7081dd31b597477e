"""A tree as ShapeDtypeStructs with shardings."""

from __future__ import annotations

import os
from typing import Any

from ..arrays.paths import key_path_keys, path_text
from ..compat.propagation import mesh_of_jax, sharded_struct
from ..compat.values import is_array_type
from ..errors import UnsupportedValueError
from ..reports.tree import TreeReport
from .plan import plan_tree
from .tree_report import spec_error


def sharded_structs(tree: Any, *, mesh: Any, specs: Any) -> Any:
    """Return a tree of ShapeDtypeStructs, each with its sharding, to plan a function without devices.

    Args:
        tree: A tree of arrays or ShapeDtypeStructs, such as the result of ``jax.eval_shape``. Leaves that are
            not arrays stay as they are. What is in host memory stays there.
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name, such as ``{"data": 256}``. Of a
            mapping, XLA chooses the shardings that are not requested (axes of type Auto).
        specs: A tree or prefix of PartitionSpecs, one spec for all leaves, or ``PathRules``. Leaves with
            fewer axes than a spec for all of them are replicated, as in ``tree_report``.

    Raises:
        SpecError: (a ValueError) If a spec does not fit its leaf or the mesh, or ``specs`` does not fit the
            tree.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh, or ``tree`` a path or a report.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> params = {"w": jax.ShapeDtypeStruct((8192, 1024), jnp.float32)}
    >>> sharded_structs(params, mesh={"fsdp": 8}, specs=P("fsdp"))["w"].sharding.spec
    P('fsdp',)
    """
    import jax

    if isinstance(tree, str | os.PathLike | TreeReport):
        raise UnsupportedValueError(
            f"expected a tree of arrays or ShapeDtypeStructs, got {type(tree)}: a file or a report has rows, "
            "and not the tree that a function takes"
        )
    planned = plan_tree(tree, mesh=mesh, specs=specs)
    if planned.problems:
        raise spec_error(planned.problems)
    on = mesh_of_jax(mesh)
    found = {row.full_path or row.path: row for row in planned.report.rows}

    def struct(keys: Any, leaf: Any) -> Any:
        path = path_text(key_path_keys(keys))
        row = found.get(path)
        spec = None if row is None else row.spec
        if spec is None and is_array_type(leaf):
            raise UnsupportedValueError(
                f"the leaf {path or '(root)'} has no spec: pass a tree of plain arrays"
            )
        if row is None or spec is None:
            return leaf
        return sharded_struct(leaf, on, spec, row.memory_kind if row.is_in_host_memory else None)

    return jax.tree_util.tree_map_with_path(struct, tree)
