"""Exceptions of the package. Each also derives from a builtin exception, such as ValueError."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .text import printable, printable_lines


class ArrayInfoError(Exception):
    """Base class of all exceptions that this package defines. Each line of a message is printable."""

    def __init__(self, message: str = "") -> None:
        super().__init__(printable_lines(message))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the message and the attributes: the arguments of ``__init__`` are other values."""
        return _restored, (type(self), self.args), self.__dict__


def _restored(error_type: type[ArrayInfoError], args: tuple[Any, ...]) -> ArrayInfoError:
    """Return an error without calling ``__init__``."""
    error = error_type.__new__(error_type)
    error.args = args
    return error


class LayoutError(ArrayInfoError, ValueError):
    """Raised when a sharding does not fit a shape, or a shard or device is not in the layout."""


class UnsupportedValueError(ArrayInfoError, ValueError):
    """Raised for an unsupported value, such as an object that is not an array or an unknown file suffix.

    ``save_picture`` also raises it if a PNG needs a package or a font that is not installed.
    """


def require(value: Any, kinds: type | tuple[type, ...], expected: str) -> None:
    """Raise UnsupportedValueError for a value of another type than the given ones.

    Args:
        value: The value.
        kinds: Its types.
        expected: Description of such values, with the function that returns one, if there is one.
    """
    if not isinstance(value, kinds):
        raise UnsupportedValueError(f"expected {expected}, got {type(value)}")


def require_report(value: Any, kind: type) -> None:
    """Raise UnsupportedValueError, with the function that returns a report of a kind, for any other value.

    A function has the name of its class: ``program_report`` returns a ``ProgramReport``.
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        function = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
        raise UnsupportedValueError(
            f"expected {article} {kind.__name__}, got {type(value)}: {function} returns one"
        )


class ReportFormatError(ArrayInfoError, ValueError):
    """Raised for text that is not a report in JSON."""


class LabelError(ArrayInfoError, TypeError):
    """Raised for a label that is not a string, and for an object that cannot be labeled."""


class ConfigError(ArrayInfoError, ValueError):
    """Raised when a setting is assigned an invalid value."""


class SearchError(ArrayInfoError, ValueError):
    """Raised for an invalid search limit, such as a negative ``max_seconds``."""


class ProfileError(ArrayInfoError, ValueError):
    """Raised for bytes that are not a device memory profile, and for a backend without memory profiles."""


class FunctionNameError(ArrayInfoError, LookupError):
    """Raised for a name that is not the name of a live jitted function."""


class ProcessError(ArrayInfoError, RuntimeError):
    """Raised when there are several processes, but ``jax.distributed.initialize`` was not called."""


class ProcessTimeoutError(ArrayInfoError, TimeoutError):
    """Raised when not all processes called ``gather_reports`` within the timeout."""

    def __init__(self, missing: Sequence[int], count: int, timeout: float) -> None:
        names = f"process{'es' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        super().__init__(
            f"{names} of {count} did not call gather_reports within {timeout:g} s: every process must call it"
        )
        self.missing = tuple(missing)
        """Indices of the missing processes."""


class TrackerError(ArrayInfoError, RuntimeError):
    """Raised when a tracker is used before its ``with`` block is entered, or a watch inside its own."""


class TopologyError(ArrayInfoError, ValueError):
    """Raised for a topology that does not exist, does not fit the mesh or needs a compiler not installed."""


class SpecError(LayoutError):
    """Raised when a shape, a mesh and a spec do not match.

    The message groups leaves with problems of the same kind. ``problems`` has each of them.
    """

    def __init__(self, problems: Sequence[str], groups: Sequence[str] | None = None) -> None:
        self.problems = tuple(problems)
        """The problems, each with a fix if there is one."""
        self.groups = self.problems if groups is None else tuple(groups)
        """The lines of the message: one for all leaves with a problem of the same kind."""
        super().__init__("\n".join(self.groups))


class CheckError(ArrayInfoError, AssertionError):
    """Raised by assertions about trees, programs and compilations. The message lists every finding."""

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report
        """The report with the findings: a ``CheckReport``, the ``ProgramReport`` of an assertion, or the
        ``CompilationsReport`` of a watch."""


class FileFormatError(ArrayInfoError, ValueError):
    """Raised for a file or a directory that ``load_tree`` cannot read.

    It is also raised if the file needs a library that is not installed.
    """


class NotationError(ArrayInfoError, ValueError):
    """Raised for text that cannot be parsed. The message marks the position of the problem with a caret."""

    def __init__(self, text: str, position: int, problem: str) -> None:
        shown = printable(text)
        caret = " " * len(printable(text[:position])) + "^"
        super().__init__(f"cannot be read: {problem}\n  {shown}\n  {caret}")
        self.text = text
        """Text that cannot be parsed."""
        self.position = position
        """Position of the problem: an index into ``text``."""
        self.problem = problem
        """Description of the problem."""


if not TYPE_CHECKING:  # mypy exports nothing from a module whose list of names is computed
    __all__ = sorted(name for name in globals() if name.endswith("Error"))
    for _name in __all__:  # tracebacks and pickles have the documented place
        globals()[_name].__module__ = "jax_array_info_core.errors"
