"""Functions that print trees of arrays, their differences, their findings and the traffic of a resharding."""

from __future__ import annotations

import functools
from typing import Any, Unpack

from jax_array_info_core import check_report, reshard_report, tree_diff_report, tree_report
from jax_array_info_core.arrays.delivery import deliver
from jax_array_info_core.facts.pages.findings import MIN_SHARE, check_share
from jax_array_info_core.facts.pages.folds import MaxRows
from jax_array_info_core.facts.pages.tree_rows import Sort, check_view
from jax_array_info_core.reports import CheckReport, ReshardReport, TreeDiff, TreeReport
from jax_array_info_core.trees.checks.check import CheckOptions, takes_check_options
from jax_array_info_core.trees.specs import LogicalAxes
from jax_array_info_core.trees.tree_report import report_tree_when_known

from .show import print_table, report_of, report_on_two, show_table, verb


@verb
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
    max_rows: MaxRows = "fit",
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
    per device 1.5 MiB; evenly sharded 640.0 KiB; replication costs 896.0 KiB
    sharding could save 896.0 KiB per device: see print_check
                                     state: dict
    ┏━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┓
    ┃ path                   ┃ array              ┃ per device ┃ replicated over ┃
    ┡━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━┩
    │ params/head            │ float32[512,512]   │    1.0 MiB │ data, model (8) │
    │                        │ P()                │            │                 │
    │ params/layers/0-3/w ×4 │ float32[512,512]   │  512.0 KiB │                 │
    │                        │ P('data', 'model') │            │                 │
    └────────────────────────┴────────────────────┴────────────┴─────────────────┘
                      not shown at this width: would save, shard
    global size 5.0 MiB, 5 leaves, 1,310,720 elements, 1,310,720 parameters
    cost on the fullest device: 896.0 KiB fully replicated in 1 leaf
    mesh: data=4, model=2, 8 CPU devices
    ×n: n paths that differ only in their indices; the bytes are the sum

    ``array`` is the dtype and the global shape of a leaf; its partition spec, without mesh axes of size 1, is
    below it or in the column ``spec``. ``replicated over`` has the mesh axes that do not shard it, and the
    number of replicas. Wider terminals also show ``shard``, the shape on one device, and ``would save``: what
    a device would save if the leaf were also sharded over the mesh axes that it is replicated over, as far as
    they divide its shard.

    - Leaves that differ only in the indices of their paths, as in ``layers/0-3/w ×4``, share a row. Its bytes
      are the sum.
    - The totals per device do not include arrays in host memory, NumPy arrays (``on the host``) and objects
      that JAX does not hold, such as datasets in files (``not in device memory``).
    - Inside ``jax.jit``, the table is printed when the sharding of every leaf is known, with its source.
    - Paths of up to 2,000 characters are never truncated. They wrap after a ``/``, and other columns give
      way to them.

    Args:
        tree: A tree that ``jax.tree_util`` flattens, of arrays, NumPy arrays and ShapeDtypeStructs, a
            ``TreeReport``, or the path of a file or a directory, as for ``load_tree``.
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
        sort: Order of the rows: ``"tree"``, ``"waste"`` for the most avoidable bytes first, or ``"nan"`` for
            leaves with NaN or infinities first.
        max_rows: Maximum number of rows. One more row sums the others. None shows all.

    Raises:
        SpecError: (a ValueError) If specs do not fit the tree or the mesh. The message has every path.
        TypeError: If ``depth`` or ``max_rows`` is neither an integer nor None.
        ValueError: If ``depth`` is less than 1, ``max_rows`` is negative, or ``sort`` is not one of
            these orders.
    """
    check_view(depth, sort)
    show = functools.partial(show_table, depth=depth, sort=sort, max_rows=max_rows)
    is_plan = not (mesh is None and specs is None and logical_axes is None)
    if is_plan or statistics or isinstance(tree, TreeReport):
        report = tree_report(
            tree, name, mesh=mesh, specs=specs, logical_axes=logical_axes, statistics=statistics
        )
        deliver(report, show)
    else:
        report_tree_when_known(tree, name, show)


@verb
def print_tree_diff(
    before: Any, after: Any = None, *, values: bool = False, max_rows: MaxRows = "fit"
) -> None:
    """Print the leaves that were added, removed or changed between two trees.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> from jax_array_info import print_tree_diff, tree_report
    >>> def planned(**specs):
    ...     params = {name: jax.ShapeDtypeStruct((8192, 1024), jnp.float32) for name in specs}
    ...     return tree_report({"params": params}, mesh={"fsdp": 8}, specs={"params": specs})
    >>> print_tree_diff(planned(wi=P("fsdp"), wo=P("fsdp")), planned(wi=P("fsdp"), wo=P()))
    1 of 2 leaves differ: 1 changed; values are not compared
                     differences
    ┏━━━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━┓
    ┃ leaf      ┃ change ┃ before     ┃ after    ┃
    ┡━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━┩
    │ params/wo │ spec   │ P('fsdp',) │ P()      │
    │           │        │ 4.0 MiB    │ 32.0 MiB │
    └───────────┴────────┴────────────┴──────────┘
          Sizes in the table are per device.
    shape, dtype, spec, memory kind: 1 leaf changed, 1 equal
    per device: 8.0 MiB before, 36.0 MiB after (28.0 MiB more)
    global size: 64.0 MiB before and after

    Leaves are matched by path. ``change`` names what changed: the shape, the dtype, the partition spec or the
    memory kind. Equivalent specs are equal: trailing None, tuples of one name and mesh axes of size 1 make no
    difference. Values are not compared. The lines below the table compare the bytes on the fullest device,
    and those of all leaves without replicas.

    Args:
        before: A tree of arrays or ShapeDtypeStructs, a ``TreeReport``, or the path of a file or a directory,
            as for ``load_tree``; or a ``TreeDiff``, alone.
        after: The tree to compare it with.
        values: Is refused if it is true: compare the values of loaded arrays with ``numpy.testing``.
        max_rows: Maximum number of leaves. One more row has the number of the others. None shows all.

    Raises:
        ValueError: If ``max_rows`` is negative, or as for ``tree_diff_report``.
    """
    report = report_on_two(
        before, after, TreeDiff, lambda first, second: tree_diff_report(first, second, values=values)
    )
    print_table(report, max_rows=max_rows)


@verb
def print_reshard(
    tree: Any,
    target: Any = None,
    *,
    compiled: bool = False,
    hbm_nbytes: int | str | None = None,
    max_rows: MaxRows = "fit",
) -> None:
    """Print the memory that a tree needs while it is resharded, and the bytes that devices must receive.

    Nothing is moved.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> from jax_array_info import print_reshard, tree_report
    >>> w = jax.ShapeDtypeStruct((8192, 8192), jnp.float32)
    >>> planned = tree_report({"w": w}, mesh={"d": 8}, specs={"w": P("d")})
    >>> print_reshard(planned, P(None, "d"))
    leaf by leaf needs at least 64.0 MiB on the fullest device, at once at least
    64.0 MiB
    each device receives at most 28.0 MiB, then holds up to 32.0 MiB; all 8 devices
    receive 224.0 MiB
               memory while it moves
    ┏━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━┓
    ┃ way          ┃    fullest device ┃ host ┃
    ┡━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━┩
    │ at once      │ at least 64.0 MiB │    ? │
    │ leaf by leaf │ at least 64.0 MiB │    ? │
    │ jit, donated │ at least 32.0 MiB │    ? │
    │ from files   │          32.0 MiB │    ? │
    └──────────────┴───────────────────┴──────┘
                                    bytes to receive
    ┏━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┓
    ┃                      ┃         ┃              ┃            ┃        sum over ┃
    ┃ leaf                 ┃ before  ┃ after        ┃ per device ┃         devices ┃
    ┡━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━┩
    │ w                    │ P('d',) │ P(None, 'd') │   28.0 MiB │       224.0 MiB │
    │   float32[8192,8192] │         │              │            │                 │
    ├──────────────────────┼─────────┼──────────────┼────────────┼─────────────────┤
    │ all leaves           │         │              │   28.0 MiB │       224.0 MiB │
    └──────────────────────┴─────────┴──────────────┴────────────┴─────────────────┘
    mesh: d=8

    The first table has the most memory that the tree needs on one device, and on the host, for each way that
    JAX has to move it: ``jax.device_put`` of the whole tree, while the old one lives; of one leaf after
    another, where each new leaf replaces the old one; a jitted identity with donation; and a restore from
    files. What depends on a compiled program is a bound. If devices differ, another table has the memory of
    each.

    A device receives the slices of its target shard that it does not already hold. ``per device`` is what the
    device that receives the most must receive. ``other processes`` is the part of the sum over devices that
    no device of the receiver's process holds. The last row has the sums over all leaves. For another mesh,
    pass ``tree_report(tree, mesh=…)`` as the target.

    Args:
        tree: A tree of arrays or ShapeDtypeStructs, a ``TreeReport``, or a path, as for ``load_tree``; or a
            ``ReshardReport``, alone.
        target: A sharding or PartitionSpec, a tree or prefix of these, ``PathRules``, or a tree, a
            ``TreeReport`` or a path whose leaves have shardings, as in ``reshard_report``.
        compiled: Whether to compile a jitted identity with donation, for its temporary values and the bytes
            that it sends. It needs leaves on devices.
        hbm_nbytes: Memory of a device in bytes, a size such as ``"16GiB"``, or a chip such as ``"v5p"``, to
            compare the peaks with.
        max_rows: Maximum number of leaves. One more row has the sum of the others. None shows all.

    Raises:
        SpecError: (a ValueError) If the target does not fit the tree. The message lists every problem.
        ValueError: If ``max_rows`` is negative.
    """
    options = {"compiled": compiled, "hbm_nbytes": hbm_nbytes}
    print_table(report_on_two(tree, target, ReshardReport, reshard_report, **options), max_rows=max_rows)


@verb
@takes_check_options
def print_check(
    tree: Any,
    *,
    min_share: float = MIN_SHARE,
    max_rows: MaxRows = "fit",
    **options: Unpack[CheckOptions],
) -> None:
    """Print whether a tree is sharded as meant and fits the memory of a device.

    The findings are those of ``check_report``: arrays that are not checked, avoidable replication, leaves on
    fewer devices than the mesh, padding, invalid specs, unused mesh axes, unexpected shardings, leaves that
    are the odd one out of many, optimizer state that is sharded differently from its parameter, and too
    little memory. Each finding lists the leaves with the most bytes; the error of ``assert_tree`` lists all.
    The first line is the answer.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> from jax_array_info import print_check
    >>> w = jax.ShapeDtypeStruct((8192, 1024), jnp.float32)
    >>> state = {"params": {"w": w}, "opt_state": {"mu": {"w": w}, "nu": {"w": w}}}
    >>> specs = {"params": P("fsdp"), "opt_state": P()}
    >>> print_check(state, mesh={"fsdp": 8}, specs=specs)
    2 findings: JAI101 replicated-leaf, JAI107 moment-sharding
    3 leaves on 8 devices (fsdp=8) take 68.0 MiB per device
    does it fit? pass hbm_nbytes="95GiB"; gradients and activations are not included
    ── JAI101 replicated-leaf: 56.0 MiB per device ─────── jai-cli explain JAI101 ──
    Sharding 2 leaves further would save 56.0 MiB of 68.0 MiB per device: 82.35%,
    more than the accepted 2.00%.
    Shard the leaves as listed, or pass replicated_over=('fsdp',) if replication
    over 'fsdp' is intended.
      28.0 MiB  opt_state/mu/w  float32[8192,1024]  P()  shard axis 0 over 'fsdp'
      28.0 MiB  opt_state/nu/w  float32[8192,1024]  P()  shard axis 0 over 'fsdp'
    ── JAI107 moment-sharding: 64.0 MiB per device ─────── jai-cli explain JAI107 ──
    2 leaves are sharded differently from the parameter with the same path: 64.0 MiB
    per device, 8.0 MiB if sharded like it.
    Create the optimizer state inside jit with out_shardings, or with device_put. If
    the difference is intended, list the paths in ignore.
      32.0 MiB  opt_state/mu/w  float32[8192,1024]  P()  expected P('fsdp',)
      32.0 MiB  opt_state/nu/w  float32[8192,1024]  P()  expected P('fsdp',)
    >>> print_check(state, mesh={"fsdp": 8}, specs=P("fsdp"), hbm_nbytes=16 * 2**30)
    fits: needs 12.0 MiB of 16.0 GiB per device, without gradients and activations; no
    findings
    3 leaves on 8 devices (fsdp=8) take 12.0 MiB per device

    The bytes in front of a path are those that sharding the leaf would save, those of its padding, or else
    its bytes per device. Leaves that differ only in the indices of their paths share a row, such as
    ``layers/0-31/w ×32``, with the sum of their bytes. Specs are shown without mesh axes of size 1.

    Args:
        tree: The tree, a ``TreeReport``, the path of a file or a directory, as for ``load_tree``, or a
            ``CheckReport``, which is printed as it is.
        **options: The options of ``check_report``.
        min_share: Part of the bytes per device, from 0 to 1. The smallest leaves of a finding that take less
            together share one line.
        max_rows: Maximum number of rows of each finding; None for all.

    Raises:
        SpecError: (a ValueError) If ``specs`` or ``expect`` does not fit the tree, or a pattern matches
            no leaf.
        UnsupportedValueError: (a ValueError) If another argument has an invalid value.
        ValueError: If ``min_share`` is not from 0 to 1, or ``max_rows`` is negative.
    """
    check_share(min_share)
    print_table(report_of(tree, CheckReport, check_report, **options), min_share=min_share, max_rows=max_rows)
