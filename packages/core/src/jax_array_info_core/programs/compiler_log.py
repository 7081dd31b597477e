"""Warnings of the compiler and errors of its memory in a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from ..arrays.origins.origins import UserLines
from ..facts.reports.logs import UnusableDonation
from ..geometry.layouts.spec import MeshAxes
from ..xla.hlo.messages import ArrayShape
from ..xla.hlo.oom_logs import Refusal
from ..xla.hlo.warnings import DonationWarning, LogFinding, LogScanner, RematerializationWarning
from .compiled import logged_errors
from .full_replication import ranked, rematerialization

_MOST = 10_000
"""Number of different warnings of each kind that are listed, so that the memory is bounded."""
_MOST_ERRORS = 100
_MOST_UNREAD = 100
_TRIED = "fake_parameter"
"""Beginning of the names of values on which XLA only tries a partitioning, to compare costs."""

_K = TypeVar("_K", RematerializationWarning, ArrayShape, Refusal, str)


class CompilerLog:
    """Numbers of equal warnings and errors, for a limited number of different ones."""

    def __init__(self) -> None:
        self._scanner = LogScanner()
        self._rematerializations: Counter[RematerializationWarning] = Counter()
        self._buffers: Counter[ArrayShape] = Counter()
        self._errors: Counter[Refusal] = Counter()
        self._unread: Counter[str] = Counter()
        self._unlisted_count = 0

    def feed(self, data: bytes) -> None:
        """Read the next piece of the log."""
        self._add(self._scanner.feed(data))

    def rows(self, mesh: MeshAxes | None) -> dict[str, Any]:
        """Return the fields of a ``LogReport`` at the end of the log.

        Args:
            mesh: Mesh of the run, for specs.
        """
        self._add(self._scanner.end())
        sizes = mesh.shape if mesh else None
        lines = UserLines()
        rows = (
            replace(rematerialization(warning, sizes, lines.origin(warning.frames)), count=count)
            for warning, count in self._rematerializations.items()
        )
        donations = [
            UnusableDonation(
                shape=buffer.dims,
                dtype=buffer.dtype,
                nbytes=None if buffer.nbytes < 0 else buffer.nbytes,
                count=count,
            )
            for buffer, count in self._buffers.items()
        ]
        return {
            "line_count": self._scanner.line_count,
            "rematerializations": ranked(rows),
            "donations": tuple(sorted(donations, key=_rank)),
            "out_of_memory": logged_errors(self._errors, lines),
            "unread": tuple(self._unread),
            "unlisted_count": self._unlisted_count + self._scanner.unlisted_count,
        }

    def _add(self, found: Iterable[LogFinding]) -> None:
        """Count warnings and errors."""
        for warning in found:
            if isinstance(warning, Refusal):
                self._count(self._errors, warning, _MOST_ERRORS)
            elif isinstance(warning, RematerializationWarning):
                if (warning.name or "").startswith(_TRIED):
                    continue
                # The numbers of instructions differ between programs.
                name = None if warning.op_name else warning.name
                self._count(self._rematerializations, warning._replace(name=name), _MOST)
            elif isinstance(warning, DonationWarning):
                for buffer in warning.buffers:
                    self._count(self._buffers, buffer, _MOST)
                if warning.unread:
                    self._count(self._unread, warning.unread, _MOST_UNREAD)
            else:
                self._count(self._unread, warning.text, _MOST_UNREAD)

    def _count(self, counts: Counter[_K], key: _K, most: int) -> None:
        if key in counts or len(counts) < most:
            counts[key] += 1
        else:
            self._unlisted_count += 1


def _rank(one: UnusableDonation) -> tuple[bool, int, int]:
    """Return a key that sorts by bytes, the most first, and unknown ones last."""
    return one.nbytes is None, -(one.nbytes or 0), -one.count
