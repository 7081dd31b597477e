"""The report on a check of a tree, with its findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .. import quantities
from ..layouts.notation import format_mesh
from ..layouts.spec import MeshAxes, Spec
from ..notebooks import Displayed
from ..quantities import counted, format_bytes
from ..text import printable
from .array import Leaf
from .tree import UnmatchedAxes

FindingKind = Literal[
    "not checked",
    "avoidable replication",
    "fewer devices",
    "padding",
    "invalid spec",
    "unused mesh axis",
    "unexpected sharding",
    "moments",
    "memory",
]
"""Category of a finding.

- ``not checked``: a tree without arrays, objects with arrays that JAX does not flatten, or a tree of unknown
  shardings only;
- ``avoidable replication``: leaves that could be sharded further;
- ``fewer devices``: leaves on fewer devices than the mesh of the tree, such as arrays that were never
  sharded;
- ``padding``: array axes that are not divisible by their number of shards;
- ``invalid spec``: specs with unknown, repeated or too many mesh axes;
- ``unused mesh axis``: mesh axes that shard no leaf;
- ``unexpected sharding``: leaves that differ from the expected specs;
- ``moments``: optimizer state that is sharded differently from its parameter;
- ``memory``: the tree does not fit the memory of a device.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLeaf(Leaf):
    """A leaf that a finding is about. The dtype of an object is empty."""

    nbytes: quantities.Total | None = None
    """Bytes per device that the finding is about, such as those that sharding would save."""

    nbytes_after: quantities.Total | None = None
    """Bytes per device of a leaf on fewer devices, if it were sharded like the mesh could; else None."""

    spec: Spec | None = None
    """Partition spec of the leaf."""

    expected: Spec | None = None
    """Expected spec: that of ``expect``, or of the parameter of a moment."""

    remedy: str = ""
    """The fix for this leaf, such as ``shard axis 0 over 'expert'``. For padding and invalid specs, the
    problem and the fix."""

    type_name: str = ""
    """Name of the class of an object that JAX does not flatten; empty for an array."""

    @property
    def array(self) -> str:
        """Dtype and shape, such as ``float32[4,4]``, or the class of an object."""
        return self.type_name or self.type

    @property
    def facts(self) -> tuple[str, ...]:
        """Dtype and shape, or the class of an object, then the spec and the expected spec if known."""
        facts = [self.array]
        if self.spec is not None:
            facts.append(str(self.spec))
        if self.expected is not None:
            facts.append(f"expected {self.expected}")
        return tuple(facts)

    def __str__(self) -> str:
        size = "" if self.nbytes is None else f", {format_bytes(self.nbytes)}"
        remedy = f": {self.remedy}" if self.remedy else ""
        remedy += "" if self.nbytes_after is None else f": {format_bytes(self.nbytes_after)}"
        return printable(f"{self.path or '(root)'}: {', '.join(self.facts)}{size}{remedy}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a check. ``str()`` is the text that ``CheckError`` prints."""

    kind: FindingKind
    """Category of the finding."""

    problem: str
    """The problem with its numbers, as one sentence."""

    remedy: str
    """The fix, as one sentence."""

    nbytes: quantities.Total | None = None
    """Bytes per device that the finding is about; None if bytes do not apply."""

    nbytes_after: quantities.Total | None = None
    """Bytes per device of leaves on fewer devices, if they were sharded like the mesh could; else None."""

    leaves: tuple[FindingLeaf, ...] = ()
    """The leaves, the most bytes first."""

    mesh_axes: tuple[str, ...] = ()
    """Mesh axes that the finding is about."""

    def __str__(self) -> str:
        heading = printable(f"{self.kind}: {self.problem} {self.remedy}")
        return "\n".join([heading, *(f"  {leaf}" for leaf in self.leaves)])


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

    numpy_count: quantities.Size = 0
    """Number of checked leaves that are NumPy arrays. They have no sharding and take no device memory."""

    unsharded_count: quantities.Size = 0
    """Number of checked leaves that are abstract and have no sharding. They count in full on each device."""

    unknown_count: quantities.Size = 0
    """Number of checked leaves whose sharding is unknown, such as traced values. No finding is about them."""

    uncounted_count: quantities.Size = 0
    """Number of leaves with a known sharding whose bytes per device are not known, such as those above
    2^63 - 1. No sum includes them."""

    other_count: quantities.Size = 0
    """Number of leaves that are not arrays, such as None, Python numbers and functions."""

    device_count: quantities.Count = 1
    """Number of devices of all leaves together."""

    fullest_device_nbytes: quantities.Total = 0
    """Bytes of the leaves on the device that holds the most."""

    avoidable_nbytes: quantities.Total = 0
    """Bytes that further sharding could save on the fullest device, not over axes in ``replicated_over``."""

    optimizer_nbytes: quantities.Total = 0
    """Bytes per device of the moments that ``optimizer`` adds; 0 if the tree already has them."""

    optimizer_words: str = ""
    """The moments that ``optimizer`` adds, and their parameters, in words; empty without ``optimizer``."""

    required_nbytes: quantities.Total = 0
    """Bytes per device that were compared with ``hbm_nbytes``: leaves and optimizer, without activations."""

    hbm_nbytes: quantities.Size | None = None
    """Memory of a device, as passed; None if it was not passed."""

    unmatched_axes: UnmatchedAxes | None = None
    """Logical axes and rules that did not match, as in ``TreeReport``."""

    @property
    def passed(self) -> bool:
        """Whether there are no findings."""
        return not self.findings

    @property
    def subject(self) -> str:
        """Leaves and devices: ``84 leaves on 16 devices (fsdp=8,expert=2)``, without mesh axes of size 1."""
        leaves, devices = (
            counted(self.leaf_count, "leaf", "leaves"),
            counted(self.device_count, "device", "devices"),
        )
        sizes = ({name: size for name, size in mesh.shape.items() if size > 1} for mesh in self.meshes)
        meshes = "; ".join(dict.fromkeys(format_mesh(mesh) for mesh in sizes if mesh))
        return f"{leaves} on {devices}" + (f" ({meshes})" if meshes else "")

    @property
    def heading(self) -> str:
        """Number of findings, or that nothing was checked, with the subject."""
        name = f"{self.name}: " if self.name else ""
        is_unchecked = self.leaf_count == self.unknown_count and not self.ignored_count
        if is_unchecked and {finding.kind for finding in self.findings} <= {"not checked"}:
            others = counted(self.other_count, "leaf that is not an array", "leaves that are not arrays")
            none = others if self.other_count else "the tree has no leaves"
            return f"{name}nothing checked: {self.subject if self.leaf_count else none}"
        count = counted(len(self.findings), "finding", "findings") if self.findings else "no findings"
        return f"{name}{count} in {self.subject}"

    def __str__(self) -> str:
        return "\n".join([printable(self.heading), *map(str, self.findings)])
