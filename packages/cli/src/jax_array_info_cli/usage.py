"""Usage errors of a command, reported together before anything is printed, and refusals of its input."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jax_array_info_core.text import printable

if TYPE_CHECKING:
    from jax_array_info_core.reports import Report

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
_MOST = 20
"""Maximum number of problems that are printed: a tree may have many."""
_HEAD = 64


def with_options(*options: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """Return a decorator that adds arguments and options to a command, in this order."""

    def added(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return added


class Problems:
    """Collects the problems in a command's arguments."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def add(self, problems: Iterable[str]) -> None:
        """Add problems. Duplicates are reported once."""
        self._found |= dict.fromkeys(problems)

    def catch(self, argument: str, function: Callable[..., _T], *args: Any) -> _T | None:
        """Return the result of a function, or None if it rejects its input, or if the option is not given.

        Args:
            argument: Name of the argument or option, printed before the error message.
            function: Parser or check that raises ValueError for invalid input.
            *args: Arguments of the function; None for an option that is not given.
        """
        if args == (None,):
            return None
        from jax_array_info_core.errors import SpecError

        try:
            return function(*args)
        except SpecError as error:
            self.add(error.groups)
        except ValueError as error:
            self.add([f"{argument} {error}".strip()])
        return None

    def refuse(self) -> None:
        """Raise a usage error (exit code 2) if there are any problems."""
        if self._found:
            lines = list(self._found)
            more = [f"and {len(lines) - _MOST} more problems"] if len(lines) > _MOST else []
            raise click.UsageError("\n".join(lines[:_MOST] + more), click.get_current_context())


class Refusal(click.ClickException):
    """Invalid input: ends the command with a one-line error and exit code 2."""

    exit_code = 2


@contextlib.contextmanager
def refused(*kinds: type[Exception], prefix: str = "", is_invalid: bool = True) -> Iterator[None]:
    """End the command with one line if one of these exceptions is raised.

    Args:
        *kinds: The exceptions.
        prefix: The part of the message before theirs, such as ``--at: ``.
        is_invalid: Whether the input is invalid: exit code 2. Otherwise 1, as for a full disk.
    """
    try:
        yield
    except kinds as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise (Refusal if is_invalid else click.ClickException)(f"{prefix}{problem}") from error


_TAKEN = {
    "TreeReport": "jai-cli tree, check and diff take it",
    "ProgramReport": "jai-cli diff takes it",
    "LiveArrayReport": "jai-cli hosts takes a folder with that of each process, written by save_report",
    "DevicesReport": "jai-cli hosts takes a folder with that of each process, written by save_report",
}
"""Commands that take a saved report, by its class."""


def refusal_of_report(path: str, report: Report, problem: str) -> Refusal:
    """Return the error for a saved report that a command does not take, with the command that does.

    Args:
        path: Path of the file.
        report: The report in it.
        problem: What the report is not, in words.
    """
    kind = type(report).__name__
    taken = _TAKEN.get(kind, "no command takes it, but load_report in Python does")
    return Refusal(f"{printable(path)}: the report is a {kind}, {problem}: {taken}")


def refuse_reports(path: str, problem: str) -> None:
    """End the command with one line if a file has a saved report, in any of its forms.

    Args:
        path: Path of anything.
        problem: What the report is not, in words.
    """
    from pathlib import Path  # not for each command

    from jax_array_info_core import load_report
    from jax_array_info_core.stored.reading import open_regular

    try:
        with open_regular(Path(path)) as file:
            is_json = file.read(_HEAD).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")
        report = load_report(path) if is_json else None
    except (OSError, ValueError):
        return  # the command says why it cannot read the path
    if report is not None:
        raise refusal_of_report(path, report, problem)
