"""What can go wrong when a user asks: each error is also the builtin that a caller would expect."""

from __future__ import annotations


class ArrayInfoError(Exception):
    """The root of every error that this project raises on purpose."""


class LayoutError(ArrayInfoError, ValueError):
    """A shape and a sharding do not make a layout, or a layout does not hold what was asked of it."""


class UnsupportedValueError(ArrayInfoError, ValueError):
    """A value of a type about which the question makes no sense."""


class ReportFormatError(ArrayInfoError, ValueError):
    """A text that is not the JSON form of a report."""


class LabelError(ArrayInfoError, TypeError):
    """A label for something that cannot carry one, or a label that is no text."""
