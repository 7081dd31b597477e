"""Findings, with their codes: one form for trees, compiled programs and logs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict, get_args

from .. import quantities
from ..errors import UnsupportedValueError
from ..layouts.spec import Spec
from ..quantities import counted, format_bytes
from ..text import plain_text, printable
from .array import Leaf
from .floors import Limits
from .origin import Origin

FindingKind = Literal[
    "not checked",
    "not finite",
    "odd one out",
    "incompatible devices",
    "avoidable replication",
    "fewer devices",
    "padding",
    "invalid spec",
    "unused mesh axis",
    "unexpected sharding",
    "moments",
    "memory",
    "lost mesh axes",
    "not as requested",
    "padded constraint",
    "unknown constraint",
    "changed sharding",
    "unused donation",
    "missing donation",
    "full replication",
    "program memory",
    "unread lines",
    "shared donation",
    "repeated value",
    "conflict",
    "lost mesh axis",
    "replicated value",
    "axis across hosts",
    "missing process",
    "different arrays",
    "unread host",
    "fatal error",
    "consequence",
    "stall",
    "not interpreted",
    "log warning",
    "other memory",
]
"""Category of a finding. ``CODES`` has the code and the meaning of each."""

Severity = Literal["error", "warning", "advice"]
"""``error``: the tree or the program is wrong or does not fit. ``warning``: it takes bytes or time without
need. ``advice``: it could take less."""

Syntax = Literal["python", "shell"]
"""Language in which the text of a finding names arguments: those of Python, or options of ``jai-cli``."""


class Code(NamedTuple):
    """The code of a category of findings."""

    code: str
    """Code, such as ``JAI101``: 1xx for trees, 2xx for programs and logs, 3xx for propagation, 40x for
    meshes, 41x for the processes of a job, 5xx for the logs of a job."""

    name: str
    """Name, such as ``replicated-leaf``."""

    severity: Severity
    """Severity: ``error``, ``warning`` or ``advice``."""

    meaning: str
    """Meaning, as one sentence."""

    @property
    def page(self) -> str:
        """Path of the page about it, in the documentation."""
        return f"findings/{self.code}.md"

    @property
    def text(self) -> str:
        """The page in Markdown: its title and its meaning, then the file about it."""
        from importlib.resources import files

        file = files(__package__.partition(".")[0]) / "explained" / f"{self.code}.md"
        return f"# {self}\n\n{self.meaning} Severity: {self.severity}.\n\n{file.read_text('utf-8')}"

    def __str__(self) -> str:
        return f"{self.code} {self.name}"


CODES: dict[FindingKind, Code] = {
    "avoidable replication": Code(
        "JAI101",
        "replicated-leaf",
        "warning",
        "Leaves are replicated over mesh axes that could shard them.",
    ),
    "fewer devices": Code(
        "JAI102",
        "fewer-devices",
        "warning",
        "Leaves are on fewer devices than the mesh, such as arrays that were never sharded.",
    ),
    "padding": Code(
        "JAI103",
        "padded-leaf",
        "warning",
        "Array axes are not divisible by their number of shards, so that devices hold padding.",
    ),
    "invalid spec": Code(
        "JAI104", "invalid-spec", "error", "Specs have unknown, repeated or too many mesh axes."
    ),
    "unused mesh axis": Code("JAI105", "unused-mesh-axis", "warning", "A mesh axis shards no leaf."),
    "unexpected sharding": Code(
        "JAI106", "unexpected-sharding", "error", "Leaves have another sharding than the expected one."
    ),
    "moments": Code(
        "JAI107",
        "moment-sharding",
        "warning",
        "Optimizer state is sharded differently from its parameter.",
    ),
    "memory": Code(
        "JAI108", "tree-memory", "error", "The tree does not fit the memory of a device or a host."
    ),
    "not checked": Code(
        "JAI109",
        "not-checked",
        "error",
        "The tree has no arrays, only unknown shardings, or objects with arrays that JAX does not flatten.",
    ),
    "not finite": Code("JAI110", "not-finite", "error", "Leaves have elements that are NaN or infinite."),
    "odd one out": Code(
        "JAI111",
        "odd-one-out",
        "warning",
        "Leaves are sharded differently from leaves of equal shape whose paths differ only in numbers.",
    ),
    "incompatible devices": Code(
        "JAI112",
        "incompatible-devices",
        "error",
        "Leaves are committed to different sets of devices, so that a jitted call with them fails.",
    ),
    "lost mesh axes": Code(
        "JAI201",
        "lost-mesh-axes",
        "warning",
        "Outputs are replicated over mesh axes that shard the arguments they replace.",
    ),
    "not as requested": Code(
        "JAI202", "not-as-requested", "warning", "A value has another sharding than the requested one."
    ),
    "padded constraint": Code(
        "JAI203", "padded-constraint", "warning", "XLA pads a value inside the program to shard it."
    ),
    "unknown constraint": Code(
        "JAI204",
        "unknown-constraint",
        "warning",
        "The program does not show whether a sharding constraint is applied.",
    ),
    "changed sharding": Code(
        "JAI205",
        "changed-sharding",
        "warning",
        "An argument returns with another sharding, so that the next call compiles again.",
    ),
    "unused donation": Code(
        "JAI206", "unused-donation", "warning", "The memory of a donated argument is not reused."
    ),
    "missing donation": Code(
        "JAI207", "missing-donation", "advice", "An output could reuse the memory of an argument."
    ),
    "full replication": Code(
        "JAI208",
        "full-replication",
        "warning",
        "XLA reshards a value by full replication (its involuntary full rematerialization).",
    ),
    "program memory": Code(
        "JAI209", "program-memory", "error", "The program does not fit the memory of a device."
    ),
    "unread lines": Code(
        "JAI210",
        "unread-lines",
        "warning",
        "Lines of the program or the log could not be read, so that the figures are incomplete.",
    ),
    "shared donation": Code(
        "JAI211", "shared-donation", "error", "A donated buffer is passed twice, so that a call fails."
    ),
    "repeated value": Code(
        "JAI212",
        "repeated-value",
        "warning",
        "Every device computes or holds the whole of a value that is sharded before or after.",
    ),
    "conflict": Code(
        "JAI301",
        "conflicting-shardings",
        "advice",
        "Operands of an operation are sharded in ways that exclude each other, so that data moves.",
    ),
    "lost mesh axis": Code(
        "JAI302", "lost-mesh-axis", "warning", "The result of an operation lacks a mesh axis of an operand."
    ),
    "replicated value": Code(
        "JAI303",
        "replicated-value",
        "advice",
        "Values inside a program are replicated over mesh axes that could shard them.",
    ),
    "axis across hosts": Code(
        "JAI401",
        "axis-across-hosts",
        "warning",
        "A mesh axis crosses hosts, slices or processes, and would not in the order of jax.make_mesh.",
    ),
    "missing process": Code(
        "JAI411", "missing-process", "error", "Processes of the job did not answer or left no file."
    ),
    "different arrays": Code(
        "JAI412",
        "different-arrays",
        "warning",
        "The set of arrays of a process differs from that of most processes.",
    ),
    "unread host": Code(
        "JAI413",
        "unread-host",
        "warning",
        "The file or the answer of a process could not be read, so that the figures are incomplete.",
    ),
    "fatal error": Code("JAI501", "fatal-error", "error", "An error ended a process of the job."),
    "consequence": Code(
        "JAI502", "consequence", "warning", "A process ended because another process of the job did."
    ),
    "stall": Code("JAI503", "stall", "error", "A process stood still, or never started."),
    "not interpreted": Code(
        "JAI504", "not-interpreted", "error", "A line is fatal, and no known kind of failure explains it."
    ),
    "log warning": Code(
        "JAI505", "log-warning", "warning", "The run went on, but slower or with wrong numbers."
    ),
    "other memory": Code(
        "JAI506",
        "other-memory",
        "error",
        "A memory other than that of the device is full: a core's, the host's, or pinned host memory.",
    ),
}
"""The code of each category of findings."""


def code_of(text: str) -> Code | None:
    """Return a code by its text or its name, in any case; None for a text that is neither of their forms.

    Raises:
        UnsupportedValueError: If the text is a word, but not the code or the name of a finding.
    """
    import difflib

    if not re.fullmatch(r"[\w-]+", text, re.ASCII):
        return None
    names, codes = zip(*((found.name, found.code) for found in CODES.values()), strict=True)
    if text.lower() not in names and text.upper() not in codes:
        close = difflib.get_close_matches(text.lower(), names) or codes
        raise UnsupportedValueError(
            f"{text!r} is neither the code nor the name of a finding: use {', '.join(close)}"
        )
    return next(found for found in CODES.values() if found.name == text.lower() or found.code == text.upper())


def known_codes(ignore_codes: str | Iterable[str]) -> tuple[str, ...]:
    """Return codes of findings.

    Raises:
        UnsupportedValueError: If one does not exist.
    """
    try:
        codes = (ignore_codes,) if isinstance(ignore_codes, str) else tuple(ignore_codes)
    except TypeError:
        codes = (ignore_codes,)  # type: ignore[assignment]
    known = [found.code for found in CODES.values()]
    for code in codes:
        if code not in known:
            raise UnsupportedValueError(
                f"{plain_text(code, repr)} is not the code of a finding: use {', '.join(known)}"
            )
    return codes


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
        facts = [self.array] if self.array else []
        if self.spec is not None:
            facts.append(str(self.spec))
        if self.expected is not None:
            facts.append(f"expected {self.expected}")
        if self.change:
            facts.append(self.change)
        if self.origin is not None and self.path:
            facts.append(str(self.origin))
        return tuple(facts)

    @property
    def place(self) -> str:
        """The path, or the line of a value without one; ``(root)`` for a tree of one leaf."""
        return self.path or ("(root)" if self.origin is None else str(self.origin))

    def __str__(self) -> str:
        each = "" if self.count == 1 else " each"
        size = () if self.nbytes is None else (f"{format_bytes(self.nbytes)}{each}",)
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
    """The fix, in a sentence or two, with arguments of Python."""

    shell_remedy: str = ""
    """The fix with options of ``jai-cli``; empty if it names none."""

    nbytes: quantities.Total | None = None
    """Bytes per device that the finding is about; None if bytes do not apply."""

    nbytes_after: quantities.Total | None = None
    """Bytes per device of leaves on fewer devices, if they were sharded like the mesh could; else None."""

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
        heading = printable(f"{self.full_code}: {self.problem} {self.remedy_in(syntax)}")
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
        one
        for one in findings
        if one is not None
        and one.code not in ignored_codes
        and not (limits is not None and limits.accept(one.kind, one.nbytes))
    )
    return tuple(sorted(kept, key=lambda one: order.index(one.severity)))


def accepted_words(
    findings: Iterable[Finding], ignored_codes: Collection[str], limits: Limits
) -> Iterator[str]:
    """Yield what the findings of a report pass over: costs that are accepted, and ignored codes."""
    for one in findings:
        if one.nbytes and one.code not in ignored_codes and limits.accept(one.kind, one.nbytes):
            yield limits.words(one.kind, one.nbytes)
    if ignored_codes:
        yield f"ignored codes: {', '.join(ignored_codes)}"


def findings_words(findings: Iterable[Finding]) -> str:
    """Return the number of findings and their codes: ``1 finding: JAI101 replicated-leaf``."""
    codes = [str(finding.full_code) for finding in findings]
    words = ", ".join(dict.fromkeys(codes))
    return f"{counted(len(codes), 'finding', 'findings')}: {words}" if codes else "no findings"
