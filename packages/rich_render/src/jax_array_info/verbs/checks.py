"""Function that prints the findings about the sharding of a tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jax_array_info_core import check_report
from jax_array_info_core.reports import CheckReport
from jax_array_info_core.trees.logical_axes import LogicalAxes

from ..tables.checks import check_table
from .show import print_table, silent_at_exit


@silent_at_exit
def print_check(
    tree: Any,
    *,
    mesh: Any = None,
    specs: Any = None,
    logical_axes: LogicalAxes | None = None,
    expect: Any = None,
    max_replicated: float = 0.02,
    replicated_over: str | Iterable[str] = (),
    devices: int | None = None,
    ignore: str | Iterable[str] = (),
    allow_empty: bool = False,
    hbm_nbytes: int | None = None,
    optimizer: str | None = None,
) -> None:
    """Print whether a tree is sharded as meant and fits the memory of a device.

    The findings are those of ``check_report``: arrays that are not checked, avoidable replication, leaves on
    fewer devices than the mesh, padding, invalid specs, unused mesh axes, unexpected shardings, optimizer
    state that is sharded differently from its parameter, and too little memory. Each finding lists its leaves
    in at most 10 rows; the error of ``assert_tree`` lists all.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> from jax_array_info import print_check
    >>> w = jax.ShapeDtypeStruct((8192, 1024), jnp.float32)
    >>> state = {"params": {"w": w}, "opt_state": {"mu": {"w": w}, "nu": {"w": w}}}
    >>> specs = {"params": P("fsdp"), "opt_state": P()}
    >>> print_check(state, mesh={"fsdp": 8}, specs=specs)
    2 findings in 3 leaves on 8 devices (fsdp=8)
    leaves: 68.0 MiB per device, 56.0 MiB (82.35%) of it avoidable replicas
    ── avoidable replication ───────────────────────────────────────────────────────
    Sharding 2 leaves further would save 56.0 MiB of 68.0 MiB per device: 82.35%,
    more than max_replicated, 2.00%.
    Shard the leaves as listed, or pass replicated_over=('fsdp',) if replication
    over 'fsdp' is intended.
      28.0 MiB  opt_state/mu/w  float32[8192,1024]  P()  shard axis 0 over 'fsdp'
      28.0 MiB  opt_state/nu/w  float32[8192,1024]  P()  shard axis 0 over 'fsdp'
    ── moments ─────────────────────────────────────────────────────────────────────
    2 leaves are sharded differently from the parameter with the same path: 64.0 MiB
    per device, 8.0 MiB if sharded like it.
    Create the optimizer state inside jit with out_shardings, or with device_put. If
    the difference is intended, list the paths in ignore.
      32.0 MiB  opt_state/mu/w  float32[8192,1024]  P()  expected P('fsdp',)
      32.0 MiB  opt_state/nu/w  float32[8192,1024]  P()  expected P('fsdp',)
    >>> print_check(state, mesh={"fsdp": 8}, specs=P("fsdp"), hbm_nbytes=16 * 2**30)
    no findings in 3 leaves on 8 devices (fsdp=8)
    leaves: 12.0 MiB per device
    memory: 12.0 MiB of 16.0 GiB per device, activations not counted

    The bytes in front of a path are those that sharding the leaf would save, those of its padding, or else
    its bytes per device. Leaves that differ only in the indices of their paths share a row, such as
    ``layers/0-31/w ×32``, with the sum of their bytes. Specs are shown without mesh axes of size 1.

    Args:
        tree: The tree, a ``TreeReport``, or a ``CheckReport``, which is printed as it is.
        mesh: Mesh to plan for: a mapping from axis names to sizes, a Mesh or an AbstractMesh.
        specs: Specs to plan with: a tree or a prefix of PartitionSpecs or Shardings, or ``PathRules``.
        logical_axes: Rules for logical axis names, as in ``tree_report``: Flax's list of pairs, or a mapping
            such as ``{"embed": "fsdp"}``.
        expect: Expected spec or sharding of each leaf, in the forms of ``specs``.
        max_replicated: Bytes of all avoidable replicas that are accepted, as a fraction from 0 to 1 of the
            bytes of the fullest device.
        replicated_over: Mesh axes over which replication is intended, such as ``("data",)``.
        devices: Least number of devices of each leaf, other than scalars and keys. ``devices=1`` accepts
            leaves, and a whole tree, on one device. None is the number of devices of ``mesh``, or of the
            largest mesh of the tree, and accepts NamedShardings on other meshes.
        ignore: Path patterns of leaves that no finding is about. Their bytes still count as memory.
        allow_empty: Whether to accept a tree without arrays, such as the state of ``optax.sgd``. Objects with
            arrays in them are still a finding.
        hbm_nbytes: Memory of a device in bytes. Activations are not counted.
        optimizer: Optimizer whose state will be added, in float32 and sharded like the parameters: ``"adam"``
            and ``"adamw"`` add two moments of each parameter, ``"lion"`` and ``"momentum"`` one.

    Raises:
        SpecError: (a ValueError) If ``specs`` or ``expect`` does not fit the tree, or a pattern matches
            no leaf.
        UnsupportedValueError: (a ValueError) If another argument has an invalid value.
    """
    report = (
        tree
        if isinstance(tree, CheckReport)
        else check_report(
            tree,
            mesh=mesh,
            specs=specs,
            logical_axes=logical_axes,
            expect=expect,
            max_replicated=max_replicated,
            replicated_over=replicated_over,
            devices=devices,
            ignore=ignore,
            allow_empty=allow_empty,
            hbm_nbytes=hbm_nbytes,
            optimizer=optimizer,
        )
    )
    print_table(report, lambda report, width: check_table(report, width=width))
