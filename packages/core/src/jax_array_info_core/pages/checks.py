"""The page of a check: the answer, what was checked, and the findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..quantities import counted
from ..reports import CheckReport
from ..reports.checks import HostUnit
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
        min_share: Part of the bytes per device, from 0 to 1, below which the leaves of a finding are summed
            in one line.

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


_UNITS: dict[HostUnit, str] = {"process": "the devices of a process", "all devices": "all devices"}
"""What host memory is summed over where hosts are not known, in words."""


def _summary(report: CheckReport) -> Iterator[str]:
    """Yield the bytes per device, and the leaves to which some of the checks do not apply."""
    if report.plan_words:
        yield report.plan_words
    if not report.is_unchecked:
        verb = "takes" if report.placed_count == 1 else "take"
        nbytes = both_memories(report.fullest_device_nbytes, report.hosted_nbytes, report.host_memory_kinds)
        yield f"{report.subject} {verb} {nbytes} per device"
        if report.hbm_nbytes is None:
            option = "--hbm 95GiB" if report.syntax == "shell" else 'hbm_nbytes="95GiB"'
            yield f"does it fit? pass {option}; gradients and activations are not included"
        if report.hosted_nbytes and report.host_nbytes is None:
            option = "--host-memory 512GiB" if report.syntax == "shell" else 'host_nbytes="512GiB"'
            yield f"does the host memory fit? pass {option}, of one host"
        if report.host_nbytes is not None and report.host_unit != "host":
            option = "--hosts" if report.syntax == "shell" else "hosts="
            known = "several may be on one host" if report.host_unit == "process" else "hosts are not known"
            yield f"host memory: summed over {_UNITS[report.host_unit]}, {known}: pass {option}"
        if report.is_uncompared and report.device_count > 1:
            option = Option("expect").written(report.syntax)
            yield f"shardings were not compared: pass {option}{'' if report.syntax == 'shell' else '='}"
    # The finding on memory has the same words.
    if report.optimizer_words and not any(report.optimizer_words in one.problem for one in report.findings):
        nbytes = both_memories(
            report.optimizer_nbytes, report.optimizer_hosted_nbytes, report.host_memory_kinds
        )
        yield f"optimizer: {nbytes} per device ({report.optimizer_words})"
    if report.unsharded_count:
        leaves = counted(report.unsharded_count, "leaf without a sharding", "leaves without a sharding")
        yield f"counted in full on each device: {leaves}"
    if report.uncounted_count:
        yield f"not counted: {counted(report.uncounted_count, 'leaf', 'leaves')} of unknown size per device"
    for place in report.elsewhere:
        yield f"{place} in {counted(place.leaf_count, 'leaf', 'leaves')}"
    if report.other_count and report.leaf_count:
        yield f"not arrays: {other_leaves_words(report.other_count, report.other_paths)}"
    if report.unknown_count:
        leaves = counted(report.unknown_count, "leaf with unknown sharding", "leaves with unknown shardings")
        yield f"not checked: {leaves}"
    if report.shorter_count:
        yield shorter_leaves_words(report.shorter_count)
    if report.expected_shorter_count:
        yield f"expect: {shorter_leaves_words(report.expected_shorter_count)}"
    yield from report.accepted
    if report.unmatched_axes is not None:
        yield from unmatched_lines(report.unmatched_axes)


def _sizes(report: CheckReport) -> dict[str, int]:
    """Return the sizes of the mesh axes by name, except those that differ between meshes."""
    pairs = {pair for mesh in report.meshes for pair in mesh.shape.items()}
    counts = Counter(name for name, _ in pairs)
    return {name: size for name, size in pairs if counts[name] == 1}
