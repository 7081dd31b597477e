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
from ..xla.hlo.oom_logs import ErrorReader, Refusal
from ..xla.hlo.warnings import DonationWarning, LogWarning, RematerializationWarning, WarningReader
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
        self._warnings = WarningReader()
        self._refusals = ErrorReader()
        self.readers = self._warnings, self._refusals
        """What reads them in the lines of logs, one log after the other."""
        self._rematerializations: Counter[RematerializationWarning] = Counter()
        self._buffers: Counter[ArrayShape] = Counter()
        self._errors: Counter[Refusal] = Counter()
        self._unread: Counter[str] = Counter()
        self._unlisted_count = 0

    def end_log(self) -> dict[int, Refusal]:
        """Count what was read in a log, and return its errors by the number of their first line."""
        self._add(self._warnings.end())
        refusals = self._refusals.end()
        for refusal in refusals.values():
            self._count(self._errors, refusal, _MOST_ERRORS)
        return refusals

    def rows(self, mesh: MeshAxes | None) -> tuple[dict[str, Any], dict[Refusal, int]]:
        """Return the fields of a ``LogReport`` on all logs, and the places of errors in ``out_of_memory``.

        Args:
            mesh: Mesh of the run, for specs.
        """
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
        errors, places = logged_errors(self._errors, lines)
        unlisted = self._warnings.unlisted_count + self._refusals.unlisted_count
        fields = {
            "rematerializations": ranked(rows),
            "donations": tuple(sorted(donations, key=_rank)),
            "out_of_memory": errors,
            "unread": tuple(self._unread),
            "unlisted_count": self._unlisted_count + unlisted,
        }
        return fields, places

    def _add(self, warnings: Iterable[LogWarning]) -> None:
        """Count warnings."""
        for warning in warnings:
            if isinstance(warning, RematerializationWarning):
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


def _rank(donation: UnusableDonation) -> tuple[bool, int, int]:
    """Return a key that sorts by bytes, the most first, and unknown ones last."""
    return donation.nbytes is None, -(donation.nbytes or 0), -donation.count
