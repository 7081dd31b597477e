"""Functions that print the differences of two trees, and the traffic of a resharding."""

from __future__ import annotations

from typing import Any

from jax_array_info.tables.folds import check_max_rows
from jax_array_info_core import reshard_report, tree_diff_report
from jax_array_info_core.reports import ReshardReport, TreeDiff

from ..tables.tree_changes import reshard_table, tree_diff_table
from .show import print_table, silent_at_exit


@silent_at_exit
def print_tree_diff(before: Any, after: Any = None, *, max_rows: int | None = 100) -> None:
    """Print the leaves that were added, removed or changed between two trees.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> from jax_array_info import print_tree_diff, tree_report
    >>> def planned(**specs):
    ...     params = {name: jax.ShapeDtypeStruct((8192, 1024), jnp.float32) for name in specs}
    ...     return tree_report({"params": params}, mesh={"fsdp": 8}, specs={"params": specs})
    >>> print_tree_diff(planned(wi=P("fsdp"), wo=P("fsdp")), planned(wi=P("fsdp"), wo=P()))
                     differences
    ┏━━━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━┓
    ┃ leaf      ┃ change ┃ before     ┃ after    ┃
    ┡━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━┩
    │ params/wo │ spec   │ P('fsdp',) │ P()      │
    │           │        │ 4.0 MiB    │ 32.0 MiB │
    └───────────┴────────┴────────────┴──────────┘
          Sizes in the table are per device.
    leaves: 1 changed, 1 equal
    values: not compared
    per device: 8.0 MiB before, 36.0 MiB after (28.0 MiB more)
    in total: 64.0 MiB before and after

    Leaves are matched by path. ``change`` names what changed: the shape, the dtype, the partition spec or the
    memory kind. Equivalent specs are equal: trailing None, tuples of one name and mesh axes of size 1 make no
    difference. Values are not compared. The lines below the table compare the bytes on the fullest device,
    and those of all leaves without replicas.

    Args:
        before: A tree of arrays or ShapeDtypeStructs, or a ``TreeReport``, such as one that ``load_tree``
            returned; or a ``TreeDiff``, alone.
        after: The tree to compare it with.
        max_rows: Maximum number of leaves. One more row has the number of the others. None shows all.

    Raises:
        ValueError: If ``max_rows`` is negative.
    """
    check_max_rows(max_rows)
    report = before if isinstance(before, TreeDiff) else tree_diff_report(before, after)
    print_table(report, lambda report, _: tree_diff_table(report, max_rows=max_rows))


@silent_at_exit
def print_reshard(tree: Any, target: Any = None, *, max_rows: int | None = 100) -> None:
    """Print the bytes that devices must receive to reshard a tree. Nothing is moved.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> from jax_array_info import print_reshard, tree_report
    >>> w = jax.ShapeDtypeStruct((8192, 8192), jnp.float32)
    >>> planned = tree_report({"w": w}, mesh={"d": 8}, specs={"w": P("d")})
    >>> print_reshard(planned, P(None, "d"))
                                 bytes to receive
    ┏━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━┓
    ┃ leaf                 ┃ before  ┃ after        ┃ per device ┃  in total ┃
    ┡━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━┩
    │ w                    │ P('d',) │ P(None, 'd') │   28.0 MiB │ 224.0 MiB │
    │   float32[8192,8192] │         │              │            │           │
    ├──────────────────────┼─────────┼──────────────┼────────────┼───────────┤
    │ all leaves           │         │              │   28.0 MiB │ 224.0 MiB │
    └──────────────────────┴─────────┴──────────────┴────────────┴───────────┘
    per device: on the one of 8 devices that receives the most

    A device receives the slices of its target shard that it does not already hold. ``per device`` is what the
    device that receives the most must receive, ``in total`` the sum over all devices. ``other processes`` is
    the part that no device of the receiver's process holds. The last row has the sums over all leaves.

    Args:
        tree: A tree of arrays or ShapeDtypeStructs, or a ``TreeReport``; or a ``ReshardReport``, alone.
        target: A sharding or PartitionSpec, a tree or prefix of these, ``PathRules``, or a tree or a
            ``TreeReport`` whose leaves have shardings, as in ``reshard_report``.
        max_rows: Maximum number of leaves. One more row has the sum of the others. None shows all.

    Raises:
        SpecError: (a ValueError) If the target does not fit the tree. The message lists every problem.
        ValueError: If ``max_rows`` is negative.
    """
    check_max_rows(max_rows)
    report = tree if isinstance(tree, ReshardReport) else reshard_report(tree, target)
    print_table(report, lambda report, _: reshard_table(report, max_rows=max_rows))
