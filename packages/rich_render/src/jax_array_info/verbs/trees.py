"""Function that prints trees of arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jax_array_info.tables.tree_rows import Sort, check_view
from jax_array_info_core import tree_report
from jax_array_info_core.delivery import deliver
from jax_array_info_core.reports import TreeReport
from jax_array_info_core.trees.logical_axes import LogicalAxes
from jax_array_info_core.trees.tree_report import report_tree_when_known

from ..style import ForConsole
from ..tables.trees import tree_table
from .show import show_rendered, silent_at_exit

if TYPE_CHECKING:
    from ..export.document import Part


@silent_at_exit
def print_tree(
    tree: Any,
    name: str | None = None,
    *,
    mesh: Any = None,
    specs: Any = None,
    logical_axes: LogicalAxes | None = None,
    statistics: bool = False,
    depth: int | None = None,
    sort: Sort = "tree",
    max_rows: int | None = 100,
) -> None:
    """Print the leaves of a tree of arrays, with their shardings and their bytes per device.

    On 8 CPU devices:

    >>> import jax, jax.numpy as jnp, numpy as np
    >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    >>> from jax_array_info import print_tree
    >>> mesh = Mesh(np.reshape(jax.devices(), (4, 2)), ("data", "model"))
    >>> def sharded(shape, *spec):
    ...     return jax.device_put(np.zeros(shape, np.float32), NamedSharding(mesh, P(*spec)))
    >>> layers = [{"w": sharded((512, 512), "data", "model")} for _ in range(4)]
    >>> print_tree({"params": {"layers": layers, "head": sharded((512, 512))}}, "state")
                                  state: dict
    ┏━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━┓
    ┃ path                   ┃ array              ┃ per device ┃ replicas ┃
    ┡━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━┩
    │ params/head            │ float32[512,512]   │    1.0 MiB │  8 (all) │
    │                        │ P()                │            │          │
    │ params/layers/0-3/w ×4 │ float32[512,512]   │  512.0 KiB │          │
    │                        │ P('data', 'model') │            │          │
    └────────────────────────┴────────────────────┴────────────┴──────────┘
    5 leaves, 1,310,720 elements, 1,310,720 parameters
    5.0 MiB in total; per device: fullest 1.5 MiB, emptiest 1.5 MiB, ideal 640.0 KiB
    fullest minus ideal: 896.0 KiB (896.0 KiB fully replicated in 1 leaf)
    avoidable: 896.0 KiB per device
    mesh: data=4, model=2, 8 CPU devices
    ×n: n paths that differ only in their indices; the bytes are the sum

    ``array`` is the dtype and the global shape of a leaf; its partition spec, without mesh axes of size 1, is
    below it or in the column ``spec``. ``(all)`` means that every device of the mesh holds the whole array.
    Wider terminals also show ``shard``, the shape on one device, and ``avoidable``: what a device would save
    if the leaf were also sharded over the mesh axes that it is replicated over, as far as they divide its
    shard.

    - Leaves that differ only in the indices of their paths, as in ``layers/0-3/w ×4``, share a row. Its bytes
      are the sum.
    - The totals per device do not include NumPy arrays and arrays in host memory.
    - Inside ``jax.jit``, the table is printed when the sharding of every leaf is known, with its source.
    - Paths of up to 2,000 characters are never truncated. They wrap after a ``/``, and other columns give
      way to them.

    Args:
        tree: A tree that ``jax.tree_util`` flattens, of arrays, NumPy arrays and ShapeDtypeStructs, or a
            ``TreeReport``.
        name: Name for the title.
        mesh: Mesh of another sharding to plan: a mapping from axis names to sizes, a Mesh or an AbstractMesh.
        specs: Specs of the planned sharding: a tree or a prefix of PartitionSpecs or Shardings, in which None
            leaves a leaf as it is, or ``PathRules``.
        logical_axes: Rules for logical axis names, as in ``tree_report``: Flax's list of pairs, or a mapping
            such as ``{"embed": "fsdp"}``.
        statistics: Whether to compute and show mean, standard deviation, extremes and zeros of each leaf.
            This waits for the arrays.
        depth: Maximum number of keys in a path. Deeper leaves are summed in a row for their prefix. None
            shows all leaves.
        sort: Order of the rows: ``"tree"``, or ``"waste"`` for leaves with NaN or infinities first, then
            the most avoidable bytes.
        max_rows: Maximum number of rows. One more row sums the others. None shows all.

    Raises:
        SpecError: (a ValueError) If specs do not fit the tree or the mesh. The message has every path.
        TypeError: If ``depth`` or ``max_rows`` is neither an integer nor None.
        ValueError: If ``depth`` is less than 1, ``max_rows`` is negative, or ``sort`` is neither ``"tree"``
            nor ``"waste"``.
    """
    check_view(depth, sort, max_rows)  # before anything is computed

    def show(report: TreeReport) -> None:
        show_tree(report, depth=depth, sort=sort, max_rows=max_rows)

    is_plan = not (mesh is None and specs is None and logical_axes is None)
    if is_plan or statistics or isinstance(tree, TreeReport):
        report = tree_report(
            tree, name, mesh=mesh, specs=specs, logical_axes=logical_axes, statistics=statistics
        )
        deliver(report, show)
    else:
        report_tree_when_known(tree, name, show)


def show_tree(
    report: TreeReport, *, depth: int | None = None, sort: Sort = "tree", max_rows: int | None = 100
) -> None:
    """Print the report of a tree, if this process prints. The arguments are those of ``print_tree``."""
    table = ForConsole(
        lambda _, options: tree_table(
            report, depth=depth, sort=sort, max_rows=max_rows, width=options.max_width
        )
    )

    def parts() -> list[Part]:
        from ..export.tree_html import TreePart

        # Only the order of the tree can be folded by prefix.
        return [table] if sort == "waste" else [TreePart(report, depth=depth, max_rows=max_rows)]

    show_rendered(table, parts=parts)
