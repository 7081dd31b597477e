"""The page of a check: the answer, what was checked, and the findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...base.quantities import counted
from ...base.text import that_apply
from ..reports import CheckReport
from ..reports.findings import Option
from ..reports.tree import both_memories, other_leaves_words, shorter_leaves_words
from .blocks import Listing, Sentence, said
from .findings import MIN_SHARE, check_share, finding_blocks
from .tree_words import unmatched_lines


def check_page(report: CheckReport, *, min_share: float = MIN_SHARE) -> Iterator[Listing]:
    """Yield the answer and what was checked, then each finding with its leaves.

    Leaves that differ only in the indices of their paths share a row. Paths are never truncated.

    Args:
        report: The check.
        min_share: Part of the bytes per device, from 0 to 1. The smallest leaves of a finding that take less
            together share one line.

    Raises:
        ValueError: If ``min_share`` is not from 0 to 1.
    """
    check_share(min_share)
    yield Sentence(report.answer, "answer", hang=0)
    yield from said(_summary(report), hang=0)
    yield from finding_blocks(
        report.findings,
        total=report.fullest_device_nbytes,
        syntax="shell" if report.syntax == "shell" else "python",
        sizes=_sizes(report),
        min_share=min_share,
    )


def _summary(report: CheckReport) -> Iterator[str]:
    """Yield the bytes per device, and the leaves to which some of the checks do not apply."""
    yield from that_apply((report.plan_words, report.plan_words))
    if not report.is_unchecked:
        yield from _memory_lines(report)
    optimizer = both_memories(
        report.optimizer_nbytes, report.optimizer_hosted_nbytes, report.host_memory_kinds
    )
    # The finding on memory has the same words.
    is_told = any(report.optimizer_words in finding.problem for finding in report.findings)
    unsharded = counted(report.unsharded_count, "leaf without a sharding", "leaves without a sharding")
    uncounted = counted(report.uncounted_count, "leaf", "leaves")
    unknown = counted(report.unknown_count, "leaf with unknown sharding", "leaves with unknown shardings")
    others = other_leaves_words(report.other_count, report.other_paths)
    yield from that_apply(
        (
            report.optimizer_words and not is_told,
            f"optimizer: {optimizer} per device ({report.optimizer_words})",
        ),
        (report.unsharded_count, f"counted in full on each device: {unsharded}"),
        (report.uncounted_count, f"not counted: {uncounted} of unknown size per device"),
        *((True, f"{place} in {counted(place.leaf_count, 'leaf', 'leaves')}") for place in report.elsewhere),
        (report.other_count and report.leaf_count, f"not arrays: {others}"),
        (report.unknown_count, f"not checked: {unknown}"),
        (report.shorter_count, shorter_leaves_words(report.shorter_count)),
        (report.expected_shorter_count, f"expect: {shorter_leaves_words(report.expected_shorter_count)}"),
    )
    yield from report.accepted
    if report.unmatched_axes is not None:
        yield from unmatched_lines(report.unmatched_axes)


def _memory_lines(report: CheckReport) -> list[str]:
    """Return the bytes per device, and the options that more checks of the memory need."""
    is_shell = report.syntax == "shell"
    verb = "takes" if report.placed_count == 1 else "take"
    nbytes = both_memories(report.fullest_device_nbytes, report.hosted_nbytes, report.host_memory_kinds)
    hbm = "--hbm 95GiB" if is_shell else 'hbm_nbytes="95GiB"'
    host = "--host-memory 512GiB" if is_shell else 'host_nbytes="512GiB"'
    over = "the devices of a process" if report.host_unit == "process" else "all devices"
    known = "several may be on one host" if report.host_unit == "process" else "hosts are not known"
    expect = Option("expect").written(report.syntax) + ("" if is_shell else "=")
    return that_apply(
        (True, f"{report.subject} {verb} {nbytes} per device"),
        (
            report.hbm_nbytes is None,
            f"does it fit? pass {hbm}; gradients and activations are not included",
        ),
        (
            report.hosted_nbytes and report.host_nbytes is None,
            f"does the host memory fit? pass {host}, of one host",
        ),
        (
            report.host_nbytes is not None and report.host_unit != "host",
            f"host memory: summed over {over}, {known}: pass {'--hosts' if is_shell else 'hosts='}",
        ),
        (
            report.is_uncompared and report.device_count > 1,
            f"shardings were not compared: pass {expect}",
        ),
    )


def _sizes(report: CheckReport) -> dict[str, int]:
    """Return the sizes of the mesh axes by name, except those that differ between meshes."""
    pairs = {pair for mesh in report.meshes for pair in mesh.shape.items()}
    counts = Counter(name for name, _ in pairs)
    return {name: size for name, size in pairs if counts[name] == 1}
