"""The findings of a tree as one table of rules, each with the leaves that it leaves to others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ...facts.reports.codes import FindingKind
from ...facts.reports.findings import Finding, FindingLeaf, Limits, reported
from ...facts.reports.tree import TreeMesh, TreeReport, TreeRow
from ...geometry.layouts.spec import Spec
from ..further import Avoidable, avoidable, is_cache
from ..rows import PlannedTree
from ..totals import holds_fullest
from .arguments import not_checked
from .differing import (
    Expectation,
    differing_moments,
    incompatible_devices,
    odd_one_out,
    odd_ones,
    unexpected_shardings,
)
from .findings import (
    avoidable_replication,
    fewer_devices,
    invalid_specs,
    not_finite,
    padded_leaves,
    unused_mesh_axes,
)
from .memory import Moment, Required, exceeded_host_memory, exceeded_memory

UNPLACED = ("abstract", "planned")
"""Kinds of leaves that count in full on each device if they have no sharding."""
_UNSHARDED = Spec(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a check of a tree asks: its options, after they were checked, and the planned tree."""

    planned: PlannedTree
    """The tree."""

    rows: Sequence[TreeRow]
    """The leaves that findings may be about: all that are not ignored."""

    opaque: Sequence[FindingLeaf]
    """Objects with arrays in them that JAX does not flatten, if they are not ignored."""

    is_empty_accepted: bool
    """Whether a tree without arrays is accepted."""

    expected: Expectation | None
    """The leaves with their expected shardings, if some are expected."""

    devices: int | None
    """Least number of devices of each leaf; None for that of the mesh."""

    around: TreeMesh | None
    """The mesh that is set, or all devices, around a tree on one device; None if that may be intended."""

    intended: tuple[str, ...]
    """Mesh axes over which replication is intended."""

    unused: Mapping[str, int]
    """Size of each mesh axis that shards no leaf, and over which replication is not intended."""

    ignored_codes: tuple[str, ...]
    """Codes of findings to leave out."""

    limits: Limits
    """Costs that are accepted."""

    hbm_nbytes: int | None
    """Memory of a device."""

    host_nbytes: int | None
    """Memory of a host."""

    moments: Sequence[Moment[TreeRow]]
    """The optimizer state in the tree."""

    required: Required
    """The memory that the tree takes with the optimizer state that will be added."""

    @property
    def report(self) -> TreeReport:
        """The tree, as planned."""
        return self.planned.report

    @property
    def parameter_specs(self) -> dict[str, Spec | None]:
        """Spec of the parameter of each moment, by the path of the moment."""
        return {moment.row.path: moment.parameter.spec for moment in self.moments}

    @property
    def meshes(self) -> Sequence[TreeMesh]:
        """The meshes of the leaves."""
        return self.planned.report.meshes


Extent = Literal["found", "not ignored", "reported"]
"""Which leaves of a finding belong to it alone: those of each, unless its code is ignored, or only if it is
reported, since it is not ignored and costs more than is accepted."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one finding is made, and about which leaves it may be."""

    kind: FindingKind
    """The category of the finding, with its code in ``CODES``."""

    find: Callable[[Sequence[TreeRow], Question], Finding | None]
    """Returns the finding about some of the leaves that it may be about."""

    without: tuple[tuple[FindingKind, Extent], ...] = ()
    """Findings whose leaves it is not about."""

    expected: Literal["changed", "named"] | None = None
    """Leaves that it is not about since an expectation is: those that it changes, or all that it names."""


def _device_memory(rows: Sequence[TreeRow], question: Question) -> Finding | None:
    limit, required = question.hbm_nbytes, question.required
    if limit is None:
        return None
    return exceeded_memory(question.report, required.tree, required.uncounted, limit, required.words)


def _host_memory(rows: Sequence[TreeRow], question: Question) -> Finding | None:
    limit, required = question.host_nbytes, question.required
    if limit is None:
        return None
    words = required.words if required.tree.host_nbytes > question.report.host_nbytes else ""
    uncounted = required.uncounted if question.hbm_nbytes is None else ()
    return exceeded_host_memory(required.on_host, limit, words, uncounted)


def _avoidable_replication(rows: Sequence[TreeRow], question: Question) -> Finding | None:
    return avoidable_replication(
        wasteful_leaves(rows, question, question.intended),
        lambda axes: wasteful_leaves(rows, question, axes),
        question.limits,
        question.unused,
        question.intended,
    )


RULES = (
    Rule("memory", _device_memory),
    Rule("memory", _host_memory),
    Rule(
        "not checked",
        lambda rows, question: not_checked(
            rows, question.opaque, others=question.report.others, is_empty=question.is_empty_accepted
        ),
    ),
    Rule(
        "avoidable replication",
        _avoidable_replication,
        without=(("incompatible devices", "not ignored"), ("fewer devices", "found")),
        expected="named",
    ),
    Rule(
        "incompatible devices",
        lambda rows, question: incompatible_devices(rows, question.planned, question.devices),
        expected="changed",
    ),
    Rule(
        "fewer devices",
        lambda rows, question: fewer_devices(
            rows,
            question.planned,
            question.devices,
            question.intended,
            question.around,
            question.parameter_specs,
        ),
        without=(("incompatible devices", "not ignored"),),
        expected="changed",
    ),
    Rule("padding", lambda rows, question: padded_leaves(rows, question.meshes)),
    Rule("invalid spec", lambda rows, question: invalid_specs(rows, question.planned.problems)),
    Rule(
        "unused mesh axis",
        lambda rows, question: unused_mesh_axes(rows, question.unused, question.intended),
    ),
    Rule("not finite", lambda rows, question: not_finite(rows)),
    Rule(
        "unexpected sharding",
        lambda rows, question: unexpected_shardings(rows, question.meshes, question.expected),
    ),
    Rule(
        "odd one out",
        lambda rows, question: odd_one_out(odd_ones(question.report.rows, question.meshes), rows),
        without=(("incompatible devices", "not ignored"), ("fewer devices", "reported")),
        expected="named",
    ),
    Rule(
        "moments",
        lambda rows, question: differing_moments(question.moments, rows, question.meshes),
        without=(("incompatible devices", "not ignored"), ("fewer devices", "not ignored")),
    ),
)
"""Every finding of a tree, in the order in which findings of equal severity are listed."""


class Answer(NamedTuple):
    """What a rule found."""

    rule: Rule
    rows: Sequence[TreeRow]
    """The leaves that the finding may be about."""

    finding: Finding | None


def answers_to(question: Question) -> list[Answer]:
    """Return the answer of each rule, in the order of the rules."""
    by_kind = {rule.kind: rule for rule in RULES}

    @functools.cache
    def answer(rule: Rule) -> Answer:
        paths: set[str] = set()
        for kind, extent in rule.without:
            finding = answer(by_kind[kind]).finding
            codes = () if extent == "found" else question.ignored_codes
            kept = reported([finding], codes, question.limits if extent == "reported" else None)
            paths.update(leaf.path for finding in kept for leaf in finding.leaves)
        if rule.expected and question.expected is not None:
            paths |= question.expected.named if rule.expected == "named" else question.expected.changed
        rows = [row for row in question.rows if row.path not in paths] if paths else question.rows
        return Answer(rule, rows, rule.find(rows, question))

    return [answer(rule) for rule in RULES]


def wasteful_leaves(
    rows: Iterable[TreeRow], question: Question, intended: Collection[str]
) -> list[tuple[TreeRow, Avoidable]]:
    """Return the leaves on the fullest device that could be sharded further, with what this would save.

    An abstract leaf without a sharding counts as replicated over the mesh of the other leaves.
    """
    meshes, specs = question.meshes, question.parameter_specs
    is_full = holds_fullest(question.report.rows, question.planned.devices) if len(meshes) > 1 else [True]
    savings: dict[tuple[object, ...], Avoidable] = {}
    wasteful = []
    for row in rows:
        if row.mesh is None and row.kind in UNPLACED and len(meshes) == 1:
            row = replace(row, mesh=0, spec=_UNSHARDED, replicas=meshes[0].device_count)
        elif not row.avoidable_nbytes:
            continue
        if row.mesh is not None and is_full[row.mesh] and row.same_as is None and row.is_on_devices:
            # Leaves that are alike share their spec object.
            like = specs.get(row.path)
            shared = id(row.spec), id(like), row.shape, row.shard_shape
            key = row.mesh, *shared, row.dtype, row.replicas, is_cache(row)
            saving = savings.get(key)
            if saving is None:
                saving = savings[key] = avoidable(row, meshes[row.mesh], intended, like)
            if saving.nbytes:
                wasteful.append((row, saving))
    return wasteful
