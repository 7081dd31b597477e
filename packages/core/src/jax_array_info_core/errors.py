"""What can go wrong when a user asks: each error is also the builtin that a caller would expect."""

from __future__ import annotations

from collections.abc import Sequence

from .text import printable


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


class ConfigError(ArrayInfoError, ValueError):
    """A setting that was given a value which makes no sense."""


class SearchError(ArrayInfoError, ValueError):
    """A search that was given bounds which make no sense."""


class ProfileError(ArrayInfoError, ValueError):
    """Bytes that are no memory profile of JAX's; what they are instead."""


class FunctionNameError(ArrayInfoError, LookupError):
    """Names of jitted functions that no live one has."""


class ProcessError(ArrayInfoError, RuntimeError):
    """A question to processes that nothing connects."""


class ProcessTimeoutError(ArrayInfoError, TimeoutError):
    """Processes that did not come in time, named."""

    def __init__(self, missing: Sequence[int], count: int, timeout: float) -> None:
        names = f"process{'es' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        super().__init__(
            f"{names} of {count} did not call gather_reports within {timeout:g} s: every process must call it"
        )
        self.missing = tuple(missing)
        """Indices of these processes."""


class TrackerError(ArrayInfoError, RuntimeError):
    """A question to a tracker that has not been entered: it knows no moment to compare with."""


class SpecError(LayoutError):
    """A shape, a mesh and a spec that do not fit each other; all that is wrong, together."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        """Each thing that is wrong, with its remedy."""


class NotationError(ArrayInfoError, ValueError):
    """A text that cannot be read; it is shown with a caret under the place."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        shown = printable(text)
        caret = " " * len(printable(text[:position])) + "^"
        super().__init__(f"cannot be read: {problem}\n  {shown}\n  {caret}")
        self.text = text
        self.position = position
        self.problem = problem
