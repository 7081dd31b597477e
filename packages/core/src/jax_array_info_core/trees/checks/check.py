"""Checks of a tree: sharded as meant, and small enough for a device."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable
from typing import Any, TypedDict, Unpack

from ...base.errors import CheckError, UnsupportedValueError
from ...base.grouping import by_key
from ...base.options import takes
from ...compat.jax_stack import context_mesh
from ...compat.shardings import mesh_placement
from ...compat.topology_names import DEVICE_NBYTES
from ...facts.reports.checks import CheckReport
from ...facts.reports.codes import known_codes
from ...facts.reports.findings import MIN_NBYTES, Limits, reported
from ...facts.reports.tree import TreeMesh, TreeReport, TreeRow, elsewhere_bytes
from ...geometry.layouts.notation import as_nbytes
from ..leaves import require_tree
from ..plan import opened, plan_tree
from ..rows import PlannedTree
from ..same_sharding import same_sharding
from ..specs import LogicalAxes
from .arguments import (
    checked_devices,
    checked_limit,
    checked_moment_dtype,
    checked_nbytes,
    checked_optimizer,
    ignored_paths,
    known_axes,
    opaque_leaves,
)
from .differing import expectation
from .findings import has_known_sharding, unused_axes
from .memory import moments_of, required_memory
from .rules import UNPLACED, Question, answers_to, wasteful_leaves


class CheckOptions(TypedDict, total=False):
    """Options of a check of a tree.

    Args:
        mesh: Mesh to plan for: a mapping from axis names to sizes, a Mesh or an AbstractMesh.
        specs: Specs to plan with, in place of those that arrays have (``expect`` compares these): a tree or a
            prefix of PartitionSpecs or Shardings, or ``PathRules``.
        logical_axes: Rules for logical axis names, as in ``tree_report``: Flax's list of pairs, or a mapping
            such as ``{"embed": "fsdp"}``.
        expect: Expected spec or sharding of each leaf, in the forms of ``specs``. None in it matches any
            sharding. Equivalent specs are equal: with or without a trailing None, mesh axes of size 1, or
            tuples of one name. Leaves with fewer axes than a spec for all leaves are expected to be
            replicated.
        max_replicated: Bytes of all avoidable replicas that are accepted, as a fraction from 0 to 1 of the
            bytes of the fullest device.
        min_nbytes: Bytes per device, or a size such as ``"1MiB"``, below which replicas and leaves on fewer
            devices are no finding. 0 accepts none.
        replicated_over: Mesh axes over which replication is intended, such as ``("data",)``.
        devices: Least number of devices of each leaf, other than scalars and keys. ``devices=1`` accepts
            leaves, and a whole tree, on one device. None is the number of devices of ``mesh``, or of the
            largest mesh of the tree, and accepts NamedShardings on other meshes.
        ignore: Path patterns of leaves that no finding is about, as in ``PathRules``. Their bytes still count
            as memory.
        ignore_codes: Codes of findings to leave out, such as ``"JAI101"``.
        allow_empty: Whether to accept a tree without arrays, such as the state of ``optax.sgd``. Objects with
            arrays in them are still a finding, and so is a TreeReport with leaves that are not arrays.
        hbm_nbytes: Memory of a device in bytes, a size such as ``"16GiB"``, or a chip such as ``"v5p"``.
            Gradients and activations are not counted, and leaves in host memory neither.
        host_nbytes: Memory of one host for leaves in host memory, in bytes, or a size such as ``"512GiB"``.
            They are summed over the devices of a process, which is a host of TPUs; where it is not known,
            over all devices.
        hosts: Number of hosts, each with the same number of devices of consecutive ids, in place of
            processes.
        optimizer: Optimizer whose state will be added, sharded like the parameters: ``"adam"`` and
            ``"adamw"`` add two moments of each parameter, ``"lion"`` and ``"momentum"`` one. Nothing is
            added if the tree already has them: below ``mu`` and ``nu``, ``mu``, or ``trace``, as in optax.
            Parameters are the floating-point leaves below ``params``; in a tree without this key, those in
            an ``nnx.Param``, else all but the state of another optimizer, which counts as it is.
        moment_dtype: Dtype of all moments that ``optimizer`` adds, such as ``"float32"``. None is that of
            each parameter, as in optax.
    """

    mesh: Any
    specs: Any
    logical_axes: LogicalAxes | None
    expect: Any
    max_replicated: float
    min_nbytes: int | str
    replicated_over: str | Iterable[str]
    devices: int | None
    ignore: str | Iterable[str]
    ignore_codes: str | Iterable[str]
    allow_empty: bool
    hbm_nbytes: int | str | None
    host_nbytes: int | str | None
    hosts: int | None
    optimizer: str | None
    moment_dtype: Any


takes_check_options = takes(
    CheckOptions,
    max_replicated=0.02,
    min_nbytes=MIN_NBYTES,
    replicated_over=(),
    ignore=(),
    ignore_codes=(),
    allow_empty=False,
)
"""Decorator of the functions that take the options of a check."""


@takes_check_options
def check_report(tree: Any, **options: Unpack[CheckOptions]) -> CheckReport:
    """Return the findings about the sharding of a tree: replicas, padding, optimizer state, memory.

    The findings are, each with its code:

    - JAI109, not checked: a tree without arrays, objects with arrays in them that JAX does not flatten, or
      a tree of unknown shardings only. Functions, and objects without arrays, are accepted in a tree with
      arrays;
    - JAI101, avoidable replication: leaves that could be sharded over mesh axes that they are replicated
      over, if this would save more than ``max_replicated`` of the bytes of the fullest device, and at least
      ``min_nbytes`` and a thousandth of ``hbm_nbytes``. Not leaves whose shards would hold fewer than 1,024
      elements, nor leaves with a sharding in ``expect``;
    - JAI102, fewer devices: leaves on fewer devices than ``mesh``, or than the largest mesh of the tree, such
      as an array that was never sharded, of at least ``min_nbytes``; of a tree on one of several devices,
      than the mesh that is set, or from 1 GiB on. Not scalars, keys, and leaves with a NamedSharding on
      another mesh;
    - JAI103, padding: array axes that are not divisible by their number of shards;
    - JAI104, invalid specs: unknown and repeated mesh axes, and more entries than the array has axes;
    - JAI105, unused mesh axes: those of size 2 or more that shard no leaf;
    - JAI106, unexpected shardings: leaves with another sharding than in ``expect``;
    - JAI107, moments: leaves with the shape of a parameter, and a path that ends with the path of that
      parameter below ``params``, but another sharding, unless it is over more mesh axes than that of the
      parameter, as in ZeRO-1. In a tree without ``params``, the leaves below ``mu``, ``nu`` and ``trace`` are
      compared with the leaves of the same path elsewhere;
    - JAI108, memory: more bytes per device than ``hbm_nbytes``, or more bytes in host memory than
      ``host_nbytes``;
    - JAI110, not finite: elements that are NaN or infinite, in a TreeReport with statistics;
    - JAI111, odd one out: of at least four leaves of equal shape whose paths differ only in numbers, at most
      a quarter, if all others are sharded alike. Not those that alternate, such as every fourth layer.

    No array is created, read or waited for, and no devices are needed. NumPy arrays, and array-like objects
    that JAX does not hold, such as datasets in files, take no device memory, and are compared with ``expect``
    only. Leaves in host memory, such as ``pinned_host``, have figures of their own. An
    abstract leaf without a sharding counts in full on each device, as if it were replicated. No finding is
    about a leaf whose sharding is unknown, such as a traced value.

    Args:
        tree: The tree, a TreeReport, or the path of a file or a directory, as for ``load_tree``.
        **options: The options of a check.

    Raises:
        SpecError: (a ValueError) If ``specs`` or ``expect`` does not fit the tree, or a pattern or all
            rules of ``logical_axes`` match no leaf.
        FileFormatError: (a ValueError) If ``tree`` is a path, and the file cannot be read.
        FileNotFoundError: (an OSError) If ``tree`` is a path, and there is no such file.
        UnsupportedValueError: (a ValueError) If another argument has an invalid value.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> experts = {"w": jax.ShapeDtypeStruct((2048, 26, 64), jnp.float32)}
    >>> report = check_report(experts, mesh={"fsdp": 4, "expert": 2}, specs=P(), replicated_over="fsdp")
    >>> [finding.kind for finding in report.findings], report.avoidable_nbytes
    (['avoidable replication', 'unused mesh axis'], 6815744)
    >>> report.findings[0].leaves[0].remedy
    "shard axis 0 over 'expert'"
    """
    tree = opened(tree)
    return _report(tree, options, _question(tree, options))


@takes_check_options
def assert_tree(tree: Any, **options: Unpack[CheckOptions]) -> None:
    """Raise CheckError if a tree is not sharded as meant, or does not fit a device.

    The arguments and the findings are those of ``check_report``. The message of the error lists every finding
    with every leaf.

    To check the shardings that arrays have, pass ``expect``. ``specs`` plans others instead: if arrays are
    sharded otherwise on the same mesh now, that is an error too, unless ``expect`` is passed. To check such a
    plan, pass ``tree_report(tree, specs=specs)``.

    Args:
        tree: The tree, a TreeReport, or the path of a file or a directory, as for ``load_tree``.
        **options: The options of a check.

    Raises:
        CheckError: (an AssertionError) If there are findings, or ``specs`` is not what arrays have, without
            ``expect``. Its ``report`` is the ``CheckReport``.
        SpecError: (a ValueError) If ``specs`` or ``expect`` does not fit the tree, or a pattern or all
            rules of ``logical_axes`` match no leaf.
        FileFormatError: (a ValueError) If ``tree`` is a path, and the file cannot be read.
        FileNotFoundError: (an OSError) If ``tree`` is a path, and there is no such file.
        UnsupportedValueError: (a ValueError) If another argument has an invalid value, or ``tree`` is
            neither an array nor a container.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> params = {"w": jax.ShapeDtypeStruct((8192, 1024), jnp.float32)}
    >>> assert_tree(params, mesh={"fsdp": 8}, specs=P("fsdp"), hbm_nbytes=16 * 2**30)
    >>> assert_tree(params, mesh={"fsdp": 6}, specs=P("fsdp"))
    Traceback (most recent call last):
        ...
    jax_array_info_core.errors.CheckError: ...
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    tree = opened(tree)
    report = check_report(tree, **options)
    if not report.leaf_count and not (options["allow_empty"] and tree is None):
        require_tree(tree)
    if report.findings or (report.replanned_count and options["expect"] is None):
        raise CheckError(str(report), report)


def _question(tree: Any, options: CheckOptions) -> Question:
    """Return what a check asks, or raise the error of the first option that is not valid."""
    limit, least = checked_limit(options["max_replicated"]), as_nbytes("min_nbytes", options["min_nbytes"])
    hbm = checked_nbytes("hbm_nbytes", options["hbm_nbytes"], DEVICE_NBYTES)
    host_nbytes = checked_nbytes("host_nbytes", options["host_nbytes"])
    if options["hosts"] is not None and host_nbytes is None:
        raise UnsupportedValueError("hosts needs host_nbytes, the memory of one")
    optimizer = checked_optimizer(options["optimizer"])
    moment_dtype = checked_moment_dtype(options["moment_dtype"], optimizer)
    devices, codes = checked_devices(options["devices"]), known_codes(options["ignore_codes"])
    mesh, specs, logical_axes = options["mesh"], options["specs"], options["logical_axes"]
    if devices == 1 and specs is None and logical_axes is None and _is_on_one_device(tree):
        mesh = None
    planned = plan_tree(tree, mesh=mesh, specs=specs, logical_axes=logical_axes)
    report = planned.report
    intended = known_axes(options["replicated_over"], report.meshes)
    opaque, ignore = opaque_leaves(planned.objects), options["ignore"]
    all_paths = [row.paths for row in report.rows] + [(leaf.path,) for leaf in opaque] if ignore else []
    ignored = ignored_paths(ignore, all_paths)
    has_others = bool(report.others) and type(tree) is TreeReport
    moments = moments_of(report.rows)
    return Question(
        planned=planned,
        rows=[row for row in report.rows if row.path not in ignored] if ignored else report.rows,
        opaque=[leaf for leaf in opaque if leaf.path not in ignored],
        is_empty_accepted=bool(ignored) or (options["allow_empty"] and not has_others),
        expected=None if options["expect"] is None else expectation(options["expect"], planned),
        devices=devices,
        around=_around(planned) if devices is None else None,
        intended=intended,
        unused=unused_axes(report, intended),
        ignored_codes=codes,
        limits=Limits(
            min_nbytes=least,
            max_replicated=limit,
            total_nbytes=report.fullest_device_nbytes,
            memory_nbytes=hbm or 0,
        ),
        hbm_nbytes=hbm,
        host_nbytes=host_nbytes,
        moments=moments,
        required=required_memory(planned, moments, optimizer, moment_dtype, options["hosts"]),
    )


def _report(tree: Any, options: CheckOptions, question: Question) -> CheckReport:
    """Return the report with the answers to a question, and the figures of the tree that it is about."""
    report, rows, required, limits = question.report, question.rows, question.required, question.limits
    answers = answers_to(question)
    by_kind = {answer.rule.kind: answer for answer in answers}
    fewer = by_kind["fewer devices"].finding
    wasteful = wasteful_leaves(by_kind["avoidable replication"].rows, question, question.intended)
    checked = {row.path for row in rows}
    shorter = () if question.expected is None else question.expected.shorter
    return CheckReport(
        name=report.name,
        findings=reported((answer.finding for answer in answers), question.ignored_codes, limits),
        meshes=tuple(dict.fromkeys(mesh.axes for mesh in report.meshes if mesh.axes is not None)),
        leaf_count=len(rows),
        ignored_count=len(report.rows) - len(rows),
        elsewhere=elsewhere_bytes(rows),
        unsharded_count=sum(
            row.sharding is None and row.mesh is None and row.kind in UNPLACED for row in rows
        ),
        unknown_count=sum(not has_known_sharding(row) for row in rows),
        replanned_count=_replanned_count(tree, question.planned, checked),
        uncounted_count=len(required.uncounted),
        other_count=report.others,
        other_paths=report.other_paths,
        device_count=report.device_count,
        visible_devices=_visible_devices(question.planned),
        fullest_device_nbytes=report.fullest_device_nbytes,
        # The devices of several meshes in a file are not known: each mesh may hold the fullest.
        avoidable_nbytes=min(sum(saving.nbytes for _, saving in wasteful), report.fullest_device_nbytes),
        small_shard_nbytes=min(
            sum(saving.nbytes - saving.advised_nbytes for _, saving in wasteful),
            report.fullest_device_nbytes,
        ),
        fewer_devices_nbytes=0 if fewer is None else fewer.nbytes or 0,
        optimizer_nbytes=required.tree.fullest_device_nbytes - report.fullest_device_nbytes,
        optimizer_words=required.words,
        required_nbytes=required.tree.fullest_device_nbytes,
        hbm_nbytes=question.hbm_nbytes,
        hosted_nbytes=report.host_nbytes,
        host_memory_kinds=report.host_memory_kinds,
        optimizer_hosted_nbytes=required.tree.host_nbytes - report.host_nbytes,
        required_host_nbytes=required.on_host.nbytes,
        host_unit=required.on_host.unit,
        host_device_count=required.on_host.device_count,
        host_nbytes=question.host_nbytes,
        unmatched_axes=report.unmatched_axes,
        shared=_shared(rows),
        shorter_count=report.shorter_count,
        expected_shorter_count=len(checked.intersection(shorter)),
        ignored_codes=question.ignored_codes,
        max_replicated=limits.max_replicated,
        min_nbytes=limits.min_nbytes,
        is_uncompared=options["expect"] is options["specs"] is options["logical_axes"] is None,
    )


def _shared(rows: Iterable[TreeRow]) -> tuple[tuple[str, ...], ...]:
    """Return the paths of each array that is at several of them. A plan has no arrays yet."""
    paths = by_key(
        (row.same_as or row.path, row.path or "(root)")
        for row in rows
        if row.kind == "array" and not row.is_deleted
    )
    return tuple(tuple(group) for group in paths.values() if len(group) > 1)


def _replanned_count(tree: Any, planned: PlannedTree, checked: Collection[str]) -> int:
    """Return the number of arrays that a plan shards otherwise on the mesh that they are on.

    A plan for another mesh, and of arrays that are not on a mesh yet, says nothing about the arrays in any
    case. Of a TreeReport, no array is at hand.
    """
    if type(tree) is TreeReport or planned.as_is is None:
        return 0
    rows, sets = planned.as_is
    own_meshes, meshes = [devices.mesh for devices in sets], planned.report.meshes
    return sum(
        row.kind == "array"
        and row.path in checked
        and row.mesh is not None
        and new.mesh is not None
        and own_meshes[row.mesh].axes == meshes[new.mesh].axes
        and not same_sharding(row, own_meshes, new, meshes)
        for row, new in zip(rows, planned.report.rows, strict=True)
    )


_LARGE = 2**30
"""Bytes from which a tree on one of several devices is a finding without a mesh."""


def _around(planned: PlannedTree) -> TreeMesh | None:
    """Return the mesh that is set, or all devices, around a tree on one device that may be meant for them."""
    visible = _visible_devices(planned)
    if visible is None:
        return None
    # A file is checked without JAX.
    if "jax" in sys.modules and (mesh := context_mesh()) is not None:
        axes = mesh_placement(mesh)[0]
        return TreeMesh(axes=axes, device_count=math.prod(axes.sizes))
    is_large = planned.report.fullest_device_nbytes >= _LARGE
    return TreeMesh(axes=None, device_count=visible) if is_large else None


def _visible_devices(planned: PlannedTree) -> int | None:
    """Return the number of devices of the platform, if a tree is on one of several; else None."""
    report = planned.report
    visible = max((mesh.visible_devices or 1 for mesh in report.meshes), default=1)
    return visible if visible > 1 and report.device_count == 1 and planned.mesh is None else None


def _is_on_one_device(tree: Any) -> bool:
    """Return whether all arrays of a tree are on the same device."""
    report = plan_tree(tree).report
    return report.device_count == 1 and bool(report.meshes)
