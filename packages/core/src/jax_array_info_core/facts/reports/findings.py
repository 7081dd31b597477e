"""Findings, with their codes, in one form for trees, compiled programs and logs; costs that are accepted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, get_args

from ...base import quantities
from ...base.quantities import bytes_apart, counted, format_bytes, shares_apart
from ...base.text import printable, that_apply
from ...geometry.layouts.spec import Spec
from .array import Leaf
from .codes import CODES, Code, FindingKind, Severity
from .origin import Origin

if TYPE_CHECKING:
    from .codes import FindingKind


MIN_NBYTES = 64 * 2**10
"""Bytes per device below which a finding about bytes is left out, unless another limit is passed."""


class Floor(NamedTuple):
    """What a finding of a category costs at least."""

    cost: str
    """The cost in words, with braces for the bytes."""

    has_share: bool = False
    """Whether it also needs more than ``max_replicated`` of the bytes of the fullest device."""

    nbytes: int | None = None
    """Least bytes per device that no argument changes; None for those of ``min_nbytes``."""


FLOORS: dict[FindingKind, Floor] = {
    "avoidable replication": Floor("avoidable replicas of {}", has_share=True),
    "fewer devices": Floor("{} of leaves on fewer devices"),
    "missing donation": Floor("{} per device not donated", nbytes=2**20),
    "repeated value": Floor("{} per device of repeated values"),
    "replicated value": Floor("{} per device of replicated values"),
    "lost batch": Floor("{} per device that follow a lost batch"),
}
"""The floors of the findings whose cost is bytes that are held or repeated. Findings about correctness, such
as unexpected shardings and invalid specs, have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a report below which costs are accepted."""

    min_nbytes: int = 0
    """Least bytes per device of a finding that has a floor."""

    max_replicated: float = 0
    """Share of ``total_nbytes`` that is accepted by the findings that need one."""

    total_nbytes: int = 0
    """Bytes of the fullest device."""

    memory_nbytes: int = 0
    """Memory of a device; 0 if it is not known. A thousandth of it is accepted by findings that need a share,
    unless ``min_nbytes`` is 0."""

    def accept(self, kind: FindingKind, nbytes: int | None) -> bool:
        """Return whether a cost in bytes per device is accepted; not if it is unknown."""
        if kind not in FLOORS or nbytes is None:
            return False
        return self._is_small_share(FLOORS[kind], nbytes) or nbytes < self._least(FLOORS[kind])

    def words(self, kind: FindingKind, nbytes: int) -> str:
        """Return a cost that is accepted, with the limit that it does not exceed if there is one."""
        floor, size, part, reason = FLOORS[kind], format_bytes(nbytes), "", ""
        if floor.has_share:
            share, most = shares_apart(nbytes, max(self.total_nbytes, 1), self.max_replicated)
            part = f" ({share})" if self.total_nbytes else ""
            reason = f", within the limit of {most}" if self._is_small_share(floor, nbytes) else ""
        if not reason and nbytes < (least := self._least(floor)):
            size, limit = bytes_apart(nbytes, least)
            reason = f", below the limit of {limit}"
        return f"accepted: {floor.cost.format(size)}{part}{reason}"

    def _is_small_share(self, floor: Floor, nbytes: int) -> bool:
        return floor.has_share and nbytes <= self.max_replicated * self.total_nbytes

    def _least(self, floor: Floor) -> int:
        if floor.nbytes is not None:
            return floor.nbytes
        share = self.memory_nbytes // 1000 if floor.has_share and self.min_nbytes else 0
        return max(self.min_nbytes, share)


Syntax = Literal["python", "shell"]
"""Language in which the text of a finding names arguments: those of Python, or options of ``jai-cli``."""


class Option(NamedTuple):
    """An argument in the text of a finding, with the values to pass."""

    name: str
    """Name in Python."""

    values: Any = None
    """Values to pass: a tuple of strings, another value, or None for the name alone."""

    def written(self, syntax: Syntax) -> str:
        """Return ``replicated_over=('data',)`` for Python, ``--replicated-over data`` for a shell."""
        name = self.name if syntax == "python" else f"--{self.name.replace('_', '-')}"
        if self.values is None or (self.values is True and syntax == "shell"):
            return name
        if syntax == "python":
            return f"{name}={self.values!r}"
        return f"{name} {','.join(self.values) if isinstance(self.values, tuple) else self.values}"


class Fix(TypedDict):
    """The fix of a finding, as keyword arguments of ``Finding``."""

    remedy: str
    shell_remedy: str


def remedies(text: str, **parts: Option | str) -> Fix:
    """Return the fields ``remedy`` and ``shell_remedy`` of a finding.

    Args:
        text: The fix, with names of parts in braces.
        **parts: Arguments, each written for Python and for a shell, and other words.
    """

    def written(syntax: Syntax) -> str:
        words = {
            name: part.written(syntax) if isinstance(part, Option) else part for name, part in parts.items()
        }
        return text.format(**words)

    return {"remedy": written("python"), "shell_remedy": written("shell")}


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLeaf(Leaf):
    """A leaf or a value of a program that a finding is about. The dtype of an object is empty."""

    nbytes: quantities.Total | None = None
    """Bytes per device that the finding is about, such as those that sharding would save."""

    nbytes_after: quantities.Total | None = None
    """Bytes per device of a leaf on fewer devices, if it were sharded like the mesh could; else None."""

    spec: Spec | None = None
    """Partition spec of the leaf."""

    expected: Spec | None = None
    """Expected spec: that of ``expect``, or of the parameter of a moment."""

    remedy: str = ""
    """The fix for this leaf, such as ``shard axis 0 over 'expert'``. For padding, invalid specs and values of
    programs, the reason."""

    type_name: str = ""
    """Name of the class of an object that JAX does not flatten; empty for an array."""

    change: str = ""
    """For a value of a program: its shardings, such as ``requested P('data',), got P()``."""

    origin: Origin | None = None
    """Line of the operation, for a value inside a program."""

    count: quantities.Count = 1
    """Number of equal values; ``nbytes`` is that of one."""

    @property
    def array(self) -> str:
        """Dtype and shape, such as ``float32[4,4]``, or the class of an object."""
        return self.type_name or (self.type if self.dtype else "")

    @property
    def facts(self) -> tuple[str, ...]:
        """Dtype and shape, or the class of an object, then the spec and the expected spec if known."""
        facts = that_apply(
            (self.array, self.array),
            (self.spec is not None, str(self.spec)),
            (self.expected is not None, f"expected {self.expected}"),
            (self.change, self.change),
            (self.origin is not None and self.path, str(self.origin)),
        )
        return tuple(facts)

    @property
    def place(self) -> str:
        """The path, or the line of a value without one; ``(root)`` for a tree of one leaf."""
        return self.path or ("(root)" if self.origin is None else str(self.origin))

    def __str__(self) -> str:
        suffix = "" if self.count == 1 else " each"
        size = () if self.nbytes is None else (f"{format_bytes(self.nbytes)}{suffix}",)
        remedy = f": {self.remedy}" if self.remedy else ""
        remedy += "" if self.nbytes_after is None else f": {format_bytes(self.nbytes_after)}"
        times = "" if self.count == 1 else f" ×{self.count}"
        return printable(f"{self.place}{times}: {', '.join((*self.facts, *size))}{remedy}")


def most_first(leaves: Iterable[FindingLeaf]) -> tuple[FindingLeaf, ...]:
    """Return leaves in the order of their bytes, the most first."""
    return tuple(sorted(leaves, key=lambda leaf: -(leaf.nbytes or 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding about a tree, a program or a log. ``str()`` is the text that ``CheckError`` prints."""

    kind: FindingKind
    """Category of the finding."""

    problem: str
    """The problem with its numbers, as one sentence."""

    remedy: str
    """The fix, in a sentence or two, with arguments of Python; empty if none is known."""

    shell_remedy: str = ""
    """The fix with options of ``jai-cli``; empty if it names none."""

    nbytes: quantities.Total | None = None
    """Bytes per device that the finding is about; None if bytes do not apply."""

    sent_nbytes: quantities.Total | None = None
    """Bytes that a device sends in one call because of it; None if they are not known, or do not apply."""

    flops: quantities.Total | None = None
    """Operations that a device repeats in one call; None if they are not known, or do not apply."""

    leaves: tuple[FindingLeaf, ...] = ()
    """The leaves, the most bytes first."""

    mesh_axes: tuple[str, ...] = ()
    """Mesh axes that the finding is about."""

    code: str = ""
    """Code of the category, such as ``JAI101``."""

    page: str = ""
    """Path of the page about the code, in the documentation."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", self.full_code.code)
        object.__setattr__(self, "page", self.full_code.page)

    @property
    def full_code(self) -> Code:
        """Code of the category, with its name and severity."""
        return CODES[self.kind]

    @property
    def name(self) -> str:
        """Name of the code, such as ``replicated-leaf``."""
        return self.full_code.name

    @property
    def severity(self) -> Severity:
        """Severity of the category."""
        return self.full_code.severity

    def remedy_in(self, syntax: Syntax) -> str:
        """Return the fix with arguments of Python or options of a shell."""
        return self.shell_remedy if syntax == "shell" and self.shell_remedy else self.remedy

    def text(self, syntax: Syntax = "python") -> str:
        """Return the code, the problem and the fix, then every leaf on a line of its own."""
        heading = printable(f"{self.full_code}: {self.problem} {self.remedy_in(syntax)}".rstrip())
        return "\n".join([heading, *(f"  {leaf}" for leaf in self.leaves)])

    def __str__(self) -> str:
        return self.text()


def reported(
    findings: Iterable[Finding | None], ignored_codes: Collection[str], limits: Limits | None = None
) -> tuple[Finding, ...]:
    """Return the findings of a report: without ignored codes and accepted costs, errors first, advice last.

    Args:
        findings: All findings.
        ignored_codes: Codes to leave out.
        limits: Limits of the findings that have a floor; None if none of them has one.
    """
    order = get_args(Severity)
    kept = (
        finding
        for finding in findings
        if finding is not None
        and finding.code not in ignored_codes
        and not (limits is not None and limits.accept(finding.kind, finding.nbytes))
    )
    return tuple(sorted(kept, key=lambda finding: order.index(finding.severity)))


def accepted_words(
    findings: Iterable[Finding], ignored_codes: Collection[str], limits: Limits
) -> Iterator[str]:
    """Yield what the findings of a report pass over: costs that are accepted, and ignored codes."""
    yield from (
        limits.words(finding.kind, finding.nbytes)
        for finding in findings
        if finding.nbytes
        and finding.code not in ignored_codes
        and limits.accept(finding.kind, finding.nbytes)
    )
    if ignored_codes:
        yield f"ignored codes: {', '.join(ignored_codes)}"


def findings_words(findings: Iterable[Finding]) -> str:
    """Return the number of findings and their codes: ``1 finding: JAI101 replicated-leaf``."""
    codes = [str(finding.full_code) for finding in findings]
    words = ", ".join(dict.fromkeys(codes))
    return f"{counted(len(codes), 'finding', 'findings')}: {words}" if codes else "no findings"
