"""All that is wrong with one call, together: said on stderr before anything is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import click

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Problems:
    """Gathers what is wrong with the words of a command."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def add(self, problem: str) -> None:
        """Remember a problem, once however often it comes up."""
        if problem not in self._found:
            self._found.append(problem)

    def catch(self, where: str, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        """Return what a function returns, None where it refuses its input.

        Args:
            where: The word of the command that it reads, named before what it says.
            function: Raises ValueError for what it refuses.
            *args: What it is called with.
            **kwargs: What it is called with by name.
        """
        from jax_array_info_core import SpecError

        try:
            return function(*args, **kwargs)
        except SpecError as error:
            for problem in error.problems:
                self.add(problem)
        except ValueError as error:
            self.add(f"{where} {error}".strip())
        return None

    def refuse(self) -> None:
        """End the command with click's error, exit 2, where anything is wrong."""
        if self._found:
            raise click.UsageError("\n".join(self._found), click.get_current_context())
