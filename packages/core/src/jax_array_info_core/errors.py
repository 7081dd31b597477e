"""Exceptions of the package. Each also derives from a builtin exception, such as ValueError."""

from __future__ import annotations

from collections.abc import Sequence

from .text import printable


class ArrayInfoError(Exception):
    """Base class of all exceptions that this project raises on purpose."""


class LayoutError(ArrayInfoError, ValueError):
    """Raised when a shape and a sharding do not form a layout, or a layout has no such shard or device."""


class UnsupportedValueError(ArrayInfoError, ValueError):
    """Raised for a value of an unsupported type."""


class ReportFormatError(ArrayInfoError, ValueError):
    """Raised for a text that is not the JSON of a report."""


class LabelError(ArrayInfoError, TypeError):
    """Raised for a label that is not a str, and for an object that cannot have a label."""


class ConfigError(ArrayInfoError, ValueError):
    """Raised for an invalid value of a setting."""


class SearchError(ArrayInfoError, ValueError):
    """Raised for an invalid search limit, such as a negative ``max_seconds``."""


class ProfileError(ArrayInfoError, ValueError):
    """Raised for bytes that are not a device memory profile of JAX, and for a backend without profiles."""


class FunctionNameError(ArrayInfoError, LookupError):
    """Raised for a name that no live jitted function has."""


class ProcessError(ArrayInfoError, RuntimeError):
    """Raised for several processes that are not connected by ``jax.distributed.initialize``."""


class ProcessTimeoutError(ArrayInfoError, TimeoutError):
    """Raised when processes did not call ``gather_reports`` within the timeout."""

    def __init__(self, missing: Sequence[int], count: int, timeout: float) -> None:
        names = f"process{'es' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        super().__init__(
            f"{names} of {count} did not call gather_reports within {timeout:g} s: every process must call it"
        )
        self.missing = tuple(missing)
        """Indices of the missing processes."""


class TrackerError(ArrayInfoError, RuntimeError):
    """Raised by a tracker that was not entered, and has no snapshot to compare with."""


class SpecError(LayoutError):
    """Raised when a shape, a mesh and a spec do not match; the error lists every problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        """The problems, each with a fix where there is one."""


class NotationError(ArrayInfoError, ValueError):
    """Raised for a text that cannot be parsed. The message marks the position of the problem with a caret."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        shown = printable(text)
        caret = " " * len(printable(text[:position])) + "^"
        super().__init__(f"cannot be read: {problem}\n  {shown}\n  {caret}")
        self.text = text
        """The text."""
        self.position = position
        """Index in the text at which the problem is."""
        self.problem = problem
        """Description of the problem."""
