"""The report on a check of a tree, with its findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..layouts.spec import MeshAxes, Spec

FindingKind = Literal[
    "avoidable replication",
    "padding",
    "invalid spec",
    "unused mesh axis",
    "unexpected sharding",
    "moments",
    "memory",
]
"""Category of a finding.

- ``avoidable replication``: leaves that could be sharded further;
- ``padding``: array axes that are not divisible by their number of shards;
- ``invalid spec``: specs with unknown, repeated or too many mesh axes;
- ``unused mesh axis``: mesh axes that shard no leaf;
- ``unexpected sharding``: leaves that differ from the expected specs;
- ``moments``: optimizer state that is sharded differently from its parameter;
- ``memory``: the tree does not fit the memory of a device.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLeaf:
    """A leaf that a finding is about."""

    path: str
    """Path of the leaf, as in ``TreeRow``."""

    shape: tuple[int | str, ...]
    """Global shape."""

    dtype: str
    """Name of the dtype."""

    nbytes: int | None = None
    """Bytes per device that the finding is about, such as those that sharding would save."""

    spec: Spec | None = None
    """Partition spec of the leaf."""

    expected: Spec | None = None
    """Expected spec: that of ``expect``, or of the parameter of a moment."""

    remedy: str = ""
    """The fix for this leaf, such as ``shard axis 0 over 'expert'``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding of a check. ``str()`` is the text that ``CheckError`` prints."""

    kind: FindingKind
    """Category of the finding."""

    problem: str
    """The problem with its numbers, as one sentence."""

    remedy: str
    """The fix, as one sentence."""

    nbytes: int | None = None
    """Bytes per device that the finding is about; None if bytes do not apply."""

    leaves: tuple[FindingLeaf, ...] = ()
    """The leaves, the most bytes first."""

    mesh_axes: tuple[str, ...] = ()
    """Mesh axes that the finding is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """Findings about the sharding of a tree. Returned by ``check_report``."""

    name: str | None
    """Name of the tree's report, if it has one."""

    findings: tuple[Finding, ...]
    """The findings; empty if the tree is sharded as meant and fits."""

    meshes: tuple[MeshAxes, ...] = ()
    """Axes of the meshes of the leaves."""

    leaf_count: int = 0
    """Number of leaves that were checked."""

    device_count: int = 1
    """Number of devices of all leaves together."""

    fullest_device_nbytes: int = 0
    """Bytes of the leaves on the device that holds the most."""

    avoidable_nbytes: int = 0
    """Bytes that further sharding could save on the fullest device, not over axes in ``replicated_over``."""

    optimizer_nbytes: int = 0
    """Bytes per device of the moments that ``optimizer`` adds; 0 if the tree already has them."""

    required_nbytes: int = 0
    """Bytes per device that were compared with ``hbm_nbytes``: leaves and optimizer, without activations."""

    hbm_nbytes: int | None = None
    """Memory of a device, as passed; None if it was not passed."""

    @property
    def passed(self) -> bool:
        """Whether there are no findings."""
        return not self.findings
