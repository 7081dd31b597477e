"""Requests of the program to the thread of its recorder."""

from __future__ import annotations

import threading
from typing import NamedTuple, TypeAlias

from ..reports.record import EndReason
from .in_use import InUse


class Moment(NamedTuple):
    """A mark, on its way to the thread."""

    time: float
    name: str
    step: int | None
    is_end: bool
    bytes: InUse | None = InUse()
    """Bytes in use at this moment; None before JAX has devices."""
    begin: float | None = None
    """Time at which the part began that ends here."""


class Failure(NamedTuple):
    """An allocation that failed, on its way to the thread."""

    time: float
    message: str
    requested_nbytes: int | None
    written: threading.Event
    """Set when the arrays that were alive have been recorded."""


class End(NamedTuple):
    """The end of the recorder, on its way to the thread."""

    reason: EndReason
    message: str


Request: TypeAlias = "Moment | Failure | End"
