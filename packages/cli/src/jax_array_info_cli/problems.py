"""All that is wrong with one call, together: said on stderr before anything is printed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

import click

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Problems:
    """Gathers what is wrong with the words of a command."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def add(self, problem: str) -> None:
        """Remember a problem, once however often it comes up."""
        self._found[problem] = None

    def check(self, found: Iterable[str]) -> None:
        """Remember every problem that a check has found."""
        for problem in found:
            self.add(problem)

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
            self.check(error.problems)
        except ValueError as error:
            self.add(f"{where} {error}".strip())
        return None

    def refuse(self) -> None:
        """End the command with click's error, exit 2, where anything is wrong."""
        if self._found:
            raise click.UsageError("\n".join(self._found), click.get_current_context())


class Refusal(click.ClickException):
    """Ends the command with one line, and exit 2: what it was given is not what it takes."""

    exit_code = 2


def environment_or_refusal(devices: int) -> dict[str, str]:
    """Return this environment, changed so that JAX starts on so many fake devices.

    Ends the command with exit 1 where the environment names a file that cannot be read.
    """
    from .fake_devices import fake_device_environment

    try:
        return fake_device_environment(os.environ, devices)
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"XLA_FLAGS names a file that cannot be read: {error}") from error


def require_fork() -> None:
    """End the command with exit 1 where the system cannot fork: what is started could not be ended there."""
    if not hasattr(os, "fork"):
        raise click.ClickException("several processes, and those of jai-cli run, need Linux or macOS")
