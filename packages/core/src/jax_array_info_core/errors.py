"""Exceptions of the package. Each is also the builtin exception that a caller would expect."""

from __future__ import annotations

from collections.abc import Sequence

from .text import printable


class ArrayInfoError(Exception):
    """Base class of all exceptions that this project raises on purpose."""


class LayoutError(ArrayInfoError, ValueError):
    """A shape and a sharding do not form a layout, or a layout has no such shard or device."""


class UnsupportedValueError(ArrayInfoError, ValueError):
    """A value of a type that the function does not support."""


class ReportFormatError(ArrayInfoError, ValueError):
    """A text that is not the JSON form of a report."""


class LabelError(ArrayInfoError, TypeError):
    """A label that is not a str, or a label for an object that cannot have one."""


class ConfigError(ArrayInfoError, ValueError):
    """An invalid value for a setting."""


class SearchError(ArrayInfoError, ValueError):
    """An invalid limit for a search, such as a negative ``max_seconds``."""


class ProfileError(ArrayInfoError, ValueError):
    """Bytes that are not a device memory profile of JAX, or a backend without memory profiles."""


class FunctionNameError(ArrayInfoError, LookupError):
    """A name that no live jitted function has."""


class ProcessError(ArrayInfoError, RuntimeError):
    """Several processes that are not connected by ``jax.distributed.initialize``."""


class ProcessTimeoutError(ArrayInfoError, TimeoutError):
    """Processes that did not call ``gather_reports`` within the timeout."""

    def __init__(self, missing: Sequence[int], count: int, timeout: float) -> None:
        names = f"process{'es' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        super().__init__(
            f"{names} of {count} did not call gather_reports within {timeout:g} s: every process must call it"
        )
        self.missing = tuple(missing)
        """Indices of the missing processes."""


class TrackerError(ArrayInfoError, RuntimeError):
    """A tracker that was not entered, and has no snapshot to compare with."""


class SpecError(LayoutError):
    """A shape, a mesh and a spec that do not match; the error lists every problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        """The problems, each with a fix where there is one."""


class NotationError(ArrayInfoError, ValueError):
    """A text that cannot be parsed. The message shows it with a caret under the position of the problem."""

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
