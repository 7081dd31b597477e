"""Codes of findings, and the severity of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from ...base.errors import UnsupportedValueError
from ...base.text import plain_text

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
    "repeated work",
    "conflict",
    "lost mesh axis",
    "replicated value",
    "lost batch",
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

        file = files(__package__.rpartition(".")[0]) / "explained" / f"{self.code}.md"
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
        "Outputs or gradients are replicated over mesh axes that shard their arguments.",
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
    "repeated work": Code(
        "JAI213",
        "repeated-work",
        "warning",
        "Devices repeat heavy work of others in place of a share of it.",
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
    "lost batch": Code(
        "JAI304",
        "lost-batch",
        "warning",
        "A mesh axis stops sharding the batch inside a program, although its dimension lives on.",
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
