"""The report on a tree: ``tree_report``."""

from __future__ import annotations

from typing import Any

from ..reports.tree import TreeReport
from .leaf_problems import spec_error
from .logical_axes import LogicalAxes
from .plan import plan_tree
from .statistics import with_statistics


def tree_report(
    tree: Any,
    name: str | None = None,
    *,
    mesh: Any = None,
    specs: Any = None,
    logical_axes: LogicalAxes | None = None,
    statistics: bool = False,
) -> TreeReport:
    """Return the report of a tree: shape, sharding and bytes per device of each leaf, and totals.

    A tree is any container that ``jax.tree_util`` flattens (a dict, a list, a dataclass, the state of Flax,
    Equinox or Optax) of JAX arrays, NumPy arrays and ShapeDtypeStructs. Other leaves are counted in
    ``others``. No array is created, read or waited for, unless you ask for ``statistics``.

    With ``mesh``, ``specs`` or ``logical_axes``, the report describes the tree as it would be sharded. No
    devices are needed. An array axis that is not divisible by its number of shards is padded, as XLA does,
    and listed in ``uneven``.

    Args:
        tree: The tree, or a TreeReport.
        name: Name of the tree in the report.
        mesh: Mesh to plan for: a Mesh, an AbstractMesh, or the size of each mesh axis by name. Without
            ``specs`` and ``logical_axes``, each leaf keeps its spec; a leaf without one is replicated. None
            is the mesh of each leaf.
        specs: A tree or prefix of PartitionSpecs and Shardings, as ``in_shardings`` of ``jax.jit`` takes, or
            ``PathRules``. None in it leaves a leaf as it is.
        logical_axes: Rules for logical axis names, as Flax has them: pairs of a name and its mesh axis, mesh
            axes or None, in order of precedence. A mapping is the list of its items. The names are those in
            ``specs``, or those that the leaves have: boxes of Flax, variables of nnx, NamedArrays of haliax
            and penzai. A name takes the mesh axes of its first rule whose axes are all free in that leaf; a
            later rule for the same name is a fallback. Mesh axes that the mesh lacks are left out of a
            rule. A name without a rule is replicated. ``TreeReport.unmatched_axes`` lists the rules
            without a leaf, and the names without a rule.
        statistics: Whether to compute the mean, the standard deviation, the extremes and the numbers of
            zeros, NaN and infinities of each leaf. This runs a computation on the devices of the leaves and
            waits for it; if arrays span processes, every process must make the call.

    Raises:
        SpecError: (a ValueError) If a spec does not fit its leaf or the mesh, ``specs`` does not fit the
            tree, or a pattern or all rules of ``logical_axes`` match no leaf. The message lists every
            problem, with the paths of some of its leaves, and the ``problems`` of the error list every leaf.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> params = {"w": jax.ShapeDtypeStruct((8192, 1024), jnp.float32)}
    >>> report = tree_report(params, mesh={"fsdp": 8}, specs={"w": P("fsdp")})
    >>> report.nbytes, report.fullest_device_nbytes, report.rows[0].shard_shape
    (33554432, 4194304, (1024, 1024))
    """
    planned = plan_tree(tree, name, mesh=mesh, specs=specs, logical_axes=logical_axes)
    if planned.problems:
        raise spec_error(planned.problems)
    return with_statistics(planned.report, tree) if statistics else planned.report
