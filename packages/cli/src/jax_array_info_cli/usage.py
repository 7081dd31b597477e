"""Usage errors of a command, collected and reported together before anything is printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

_T = TypeVar("_T")
_MOST = 20
"""Maximum number of problems that are printed: a tree may have many."""


class Problems:
    """Collects the problems in a command's arguments."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def add(self, problems: Iterable[str]) -> None:
        """Add problems. Duplicates are reported once."""
        self._found |= dict.fromkeys(problems)

    def catch(self, argument: str, function: Callable[..., _T], *args: Any) -> _T | None:
        """Return the result of a function, or None if it rejects its input.

        Args:
            argument: Name of the argument or option, printed before the error message.
            function: Parser or check that raises ValueError for invalid input.
            *args: Arguments of the function.
        """
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


def in_shell(message: str) -> str:
    """Return a message with ``dcn={"data": 2}`` written as the option ``--dcn data=2``."""

    def option(found: re.Match[str]) -> str:
        return "--dcn " + found[1].replace('"', "").replace(": ", "=").replace(", ", ",")

    return re.sub(r"dcn=\{([^}]*)\}", option, message)


class Refusal(click.ClickException):
    """Invalid input: ends the command with a one-line error and exit code 2."""

    exit_code = 2
