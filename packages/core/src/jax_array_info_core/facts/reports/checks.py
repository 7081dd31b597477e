"""The report on a check of a tree, with its findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...base import quantities
from ...base.notebooks import Displayed
from ...base.quantities import bytes_apart, counted, format_bytes, percent_words
from ...base.text import printable, that_apply
from ...geometry.layouts.notation import format_mesh
from ...geometry.layouts.spec import MIN_SHARD_ELEMENTS, MeshAxes
from .codes import FindingKind
from .findings import Finding, Limits, Syntax, findings_words
from .tree import ElsewhereBytes, UnmatchedAxes

HostUnit = Literal["host", "process", "all devices"]
"""What host memory is summed over: the devices of a host; those of a process, where several processes may be
on a host; or all devices, where neither is known."""
_MOST_SHARED = 3
"""Maximum number of shared buffers that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport(Displayed):
    """Findings about the sharding of a tree. Returned by ``check_report``.

    ``str()`` is the message of ``CheckError``: every finding with every leaf.
    """

    name: str | None
    """Name of the tree's report, if it has one."""

    findings: tuple[Finding, ...]
    """The findings; empty if the tree is sharded as meant and fits."""

    meshes: tuple[MeshAxes, ...] = ()
    """Axes of the meshes of the leaves."""

    leaf_count: quantities.Size = 0
    """Number of leaves that were checked: all but those in ``ignore``."""

    ignored_count: quantities.Size = 0
    """Number of leaves in ``ignore``. Their bytes count as memory."""

    elsewhere: tuple[ElsewhereBytes, ...] = ()
    """Checked leaves that take no memory of JAX's devices, by place, as in ``TreeReport``."""

    unsharded_count: quantities.Size = 0
    """Number of checked leaves that are abstract and have no sharding. They count in full on each device."""

    unknown_count: quantities.Size = 0
    """Number of checked leaves whose sharding is unknown, such as traced values. No finding is about them."""

    replanned_count: quantities.Size = 0
    """Number of checked arrays that ``specs`` or ``logical_axes`` shard otherwise than they are sharded now,
    on the same mesh. The findings are about the plan."""

    uncounted_count: quantities.Size = 0
    """Number of leaves with a known sharding whose bytes per device are not known, such as those above
    2^63 - 1. No sum includes them."""

    other_count: quantities.Size = 0
    """Number of leaves that are not arrays, such as Python numbers and functions, but not None."""

    other_paths: tuple[str, ...] = ()
    """Paths of the first of them, as in ``TreeReport``."""

    device_count: quantities.Count = 1
    """Number of devices of all leaves together."""

    visible_devices: quantities.Count | None = None
    """Number of devices of the platform, if all leaves are on one of several; else None."""

    fullest_device_nbytes: quantities.Total = 0
    """Bytes of the leaves on the device that holds the most."""

    avoidable_nbytes: quantities.Total = 0
    """Bytes that further sharding could save on the fullest device, not over axes in ``replicated_over``."""

    small_shard_nbytes: quantities.Total = 0
    """Those of ``avoidable_nbytes`` in leaves whose shards would hold fewer than 1,024 elements. No finding
    is about them."""

    fewer_devices_nbytes: quantities.Total = 0
    """Bytes of the leaves on fewer devices than the mesh of the tree."""

    optimizer_nbytes: quantities.Total = 0
    """Bytes per device of the moments that ``optimizer`` adds; 0 if the tree already has them."""

    optimizer_words: str = ""
    """The moments that ``optimizer`` adds, and their parameters, in words; empty without ``optimizer``."""

    required_nbytes: quantities.Total = 0
    """Bytes per device that were compared with ``hbm_nbytes``: leaves and optimizer, without gradients and
    activations."""

    hbm_nbytes: quantities.Size | None = None
    """Memory of a device, as passed; None if it was not passed."""

    hosted_nbytes: quantities.Total = 0
    """Bytes per device of the leaves in host memory: the maximum over the devices. No other figure of a
    device includes them."""

    host_memory_kinds: tuple[str, ...] = ()
    """Memory kinds of these leaves, such as ``pinned_host``."""

    optimizer_hosted_nbytes: quantities.Total = 0
    """Bytes per device in host memory of the moments that ``optimizer`` adds."""

    required_host_nbytes: quantities.Total = 0
    """Bytes of the leaves in host memory and of such moments, summed over the devices of ``host_unit``."""

    host_unit: HostUnit = "all devices"
    """What ``required_host_nbytes`` is summed over: the devices of the fullest host or process, or all."""

    host_device_count: quantities.Count = 1
    """Number of these devices."""

    host_nbytes: quantities.Size | None = None
    """Memory of a host, as passed, with which ``required_host_nbytes`` was compared; None if it was not
    passed."""

    unmatched_axes: UnmatchedAxes | None = None
    """Logical axes and rules that did not match, as in ``TreeReport``."""

    shared: tuple[tuple[str, ...], ...] = ()
    """Paths of the leaves that are one array, for each array that is several leaves, such as tied weights."""

    shorter_count: quantities.Size = 0
    """Number of leaves with fewer axes than a spec for all leaves, which are planned as replicated, as in
    ``TreeReport``."""

    expected_shorter_count: quantities.Size = 0
    """Number of checked leaves with fewer axes than a spec of ``expect`` for all leaves: they are expected to
    be replicated."""

    ignored_codes: tuple[str, ...] = ()
    """Codes in ``ignore_codes``: no finding has one of them."""

    max_replicated: float | None = None
    """Fraction of the bytes of the fullest device up to which avoidable replicas are accepted."""

    min_nbytes: quantities.Size = 0
    """Bytes per device below which replicas and leaves on fewer devices are accepted; also replicas below a
    thousandth of ``hbm_nbytes``, unless it is 0."""

    is_uncompared: bool = False
    """Whether shardings are neither compared with ``expect`` nor planned by ``specs`` or ``logical_axes``."""

    syntax: Syntax = "python"
    """Language in which the printed report names arguments."""

    def __post_init__(self) -> None:
        if self.avoidable_nbytes > self.fullest_device_nbytes:
            raise ValueError("avoidable_nbytes is more than fullest_device_nbytes")
        if self.small_shard_nbytes > self.avoidable_nbytes:
            raise ValueError("small_shard_nbytes is more than avoidable_nbytes")

    @property
    def passed(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @property
    def is_unchecked(self) -> bool:
        """Whether the tree has nothing to check: no arrays, or unknown shardings only."""
        has_leaves = self.leaf_count > self.unknown_count or self.ignored_count
        return not has_leaves and {finding.kind for finding in self.findings} <= {"not checked"}

    @property
    def placed_count(self) -> int:
        """Number of checked leaves that take memory of JAX's devices, or would take it."""
        return self.leaf_count - sum(place.leaf_count for place in self.elsewhere)

    @property
    def subject(self) -> str:
        """Leaves and devices: ``84 leaves on 16 devices (fsdp=8,expert=2)``, without mesh axes of size 1."""
        leaves = counted(self.placed_count, "leaf", "leaves")
        devices = self._one_of_several or counted(self.device_count, "device", "devices")
        sizes = ({name: size for name, size in mesh.shape.items() if size > 1} for mesh in self.meshes)
        meshes = "; ".join(dict.fromkeys(format_mesh(mesh) for mesh in sizes if mesh))
        return f"{leaves} on {devices}" + (f" ({meshes})" if meshes else "")

    @property
    def answer(self) -> str:
        """Whether the tree fits, if this was asked, and the findings; or that nothing was checked."""
        name = f"{self.name}: " if self.name else ""
        if self.is_unchecked:
            others = counted(self.other_count, "leaf that is not an array", "leaves that are not arrays")
            none = f"the tree has no arrays{f', only {others}' if self.other_count else ''}"
            unknown = f"{self.subject}, of unknown sharding"
            return f"{name}nothing checked: {unknown if self.leaf_count else none}"
        plan = ""
        if self.replanned_count:
            leaves = counted(self.replanned_count, "leaf is", "leaves are")
            plan = f"a plan: {leaves} sharded otherwise now"
        one = f"on {self._one_of_several}" if self._one_of_several else ""
        return name + "; ".join(filter(None, (self._fit, findings_words(self.findings), one, plan)))

    @property
    def _one_of_several(self) -> str:
        return f"1 of {self.visible_devices} devices" if self.visible_devices else ""

    @property
    def plan_words(self) -> str:
        """What compares the shardings that arrays have, if a plan differs from them; else empty."""
        if not self.replanned_count:
            return ""
        return "specs= plans other shardings: pass expect= to compare those that the leaves have"

    @property
    def accepted(self) -> tuple[str, ...]:
        """What the check passes over, in words: costs within the limits, ignored leaves and codes."""
        limits = Limits(
            min_nbytes=self.min_nbytes,
            max_replicated=self.max_replicated or 0,
            total_nbytes=self.fullest_device_nbytes,
            memory_nbytes=self.hbm_nbytes or 0,
        )
        small = self.small_shard_nbytes
        costs: dict[FindingKind, int] = {
            "avoidable replication": self.avoidable_nbytes - small,
            "fewer devices": self.fewer_devices_nbytes,
        }
        kinds = {finding.kind for finding in self.findings}
        words = [limits.words(kind, cost) for kind, cost in costs.items() if cost and kind not in kinds]
        if small:
            share = f"{format_bytes(small)} ({percent_words(small, self.fullest_device_nbytes, decimals=2)})"
            words.append(
                f"accepted: avoidable replicas of {share}, in leaves whose shards would hold fewer than "
                f"{MIN_SHARD_ELEMENTS:,} elements"
            )
        for paths in self.shared[:_MOST_SHARED]:
            which = "both" if len(paths) == 2 else "more than one of them"
            names = " and ".join(filter(None, (", ".join(paths[:-1]), *paths[-1:])))
            words.append(f"{names} share a buffer: donating {which} fails")
        more = len(self.shared) - _MOST_SHARED
        words += that_apply(
            (more > 0, f"and {counted(more, 'more buffer is', 'more buffers are')} shared by leaves"),
            (self.ignored_count, f"ignored: {counted(self.ignored_count, 'leaf', 'leaves')}"),
            (self.ignored_codes, f"ignored codes: {', '.join(self.ignored_codes)}"),
        )
        return tuple(words)

    @property
    def _fit(self) -> str:
        """Whether the tree fits a device and a host, in words; empty if neither was asked."""
        devices = counted(self.host_device_count, "device", "devices")
        place = (
            f"for all {devices}" if self.host_unit == "all devices" else f"per {self.host_unit} of {devices}"
        )
        on_device = self._fit_of("", self.required_nbytes, self.hbm_nbytes, "per device")
        on_host = self._fit_of("host memory ", self.required_host_nbytes, self.host_nbytes, place)
        without = ", without gradients and activations" if on_device.startswith("fits") else ""
        return "; ".join(filter(None, (on_device + without, on_host)))

    def _fit_of(self, memory: str, required: int, limit: int | None, place: str) -> str:
        """Return whether the tree fits a memory, in words; empty if this was not asked."""
        if limit is None:
            return ""
        needs, has = bytes_apart(required, limit)
        if any(finding.kind == "invalid spec" for finding in self.findings):
            return f"{memory}fit unknown: without the invalid specs, needs {needs} of {has} {place}"
        if required > limit:
            return f"{memory}does not fit: needs {needs}, has {has} {place}"
        if self.uncounted_count:
            return f"{memory}may not fit: needs more than {needs}, has {has} {place}"
        return f"{memory}fits: needs {needs} of {has} {place}"

    def __str__(self) -> str:
        texts = (finding.text(self.syntax) for finding in self.findings)
        plan = [self.plan_words] if self.plan_words else []
        return "\n".join([printable(self.answer), *plan, *texts, *self.accepted])
