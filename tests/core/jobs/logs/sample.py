"""A sample of a log, with what a report must say of it."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[3] / "data" / "logs"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Sample(NamedTuple):
    """A log of one process, and the line in it that ended the process."""

    kind: str
    text: str
    """Text, or the name of a file in ``tests/data/logs/kinds``."""
    numbers: Mapping[str, Any] = MappingProxyType({})
    """All numbers that the line says, written by hand."""
    line: int = 1
    """Number of the first line of the failure."""

    @property
    def log(self):
        """The content of the log."""
        if self.text.endswith(".log"):
            return (FOLDER / "kinds" / self.text).read_text(encoding="utf-8")
        return self.text + "\n"

    @property
    def named(self):
        """The rank that a launcher names; None in other lines."""
        numbers = self.numbers if self.kind == "process ended" else {}
        return next((str(numbers[name])[0] for name in ("rank", "ranks") if name in numbers), None)

    @property
    def role(self):
        return ROLES.get(self.kind, "root")

    @property
    def is_fatal(self):
        return self.role != "warning" and self.kind != "preemption poller"


ROLES = {
    "rematerialization limit": "warning",
    "unused donation": "warning",
    "nan loss": "warning",
    "cpu fallback": "warning",
    "slow compilation": "warning",
    "captured constants": "warning",
    "compilation cache": "warning",
    "full rematerialization": "warning",
    "stack": "warning",
    "never registered": "consequence",
    "restarted rank": "consequence",
    "barrier": "consequence",
    "missed heartbeats": "consequence",
    "preemption poller": "consequence",
    "coordinator gone": "consequence",
    "peer closed": "consequence",
    "serving wrapper": "consequence",
    "scheduler": "consequence",
    "abort": "consequence",
    "megascale topology": "stall",
    "tpu start": "stall",
}
"""Roles of the kinds that are not roots."""
