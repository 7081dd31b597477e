"""Errors of a command's words and environment, reported together before anything is printed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

_T = TypeVar("_T")


class Problems:
    """Gathers what is wrong with the words of a command."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def add(self, problems: Iterable[str]) -> None:
        """Remember problems, each once however often it comes up."""
        self._found |= dict.fromkeys(problems)

    def catch(self, where: str, function: Callable[..., _T], *args: Any) -> _T | None:
        """Return what a function returns, None where it refuses its input.

        Args:
            where: The word of the command that it reads, named before what it says.
            function: Raises ValueError for what it refuses.
            *args: What it is called with.
        """
        from jax_array_info_core import SpecError

        try:
            return function(*args)
        except SpecError as error:
            self.add(error.problems)
        except ValueError as error:
            self.add([f"{where} {error}".strip()])
        return None

    def refuse(self) -> None:
        """End the command with click's error, exit 2, where anything is wrong."""
        if self._found:
            raise click.UsageError("\n".join(self._found), click.get_current_context())


class Refusal(click.ClickException):
    """Ends the command with one line, and exit 2: what it was given is not what it takes."""

    exit_code = 2


def require_at_most(most: int, *, devices: int, processes: int) -> None:
    """End the command where all processes together have more fake devices than that."""
    if (total := devices * processes) > most:
        raise click.UsageError(
            f"{devices} devices in each of {processes} processes are {total}, more than {most}"
        )


def require_fork() -> None:
    """End the command with exit 1 where the system cannot fork: what is started could not be ended there."""
    if not hasattr(os, "fork"):
        raise click.ClickException("several processes, and those of jai-cli run, need Linux or macOS")
