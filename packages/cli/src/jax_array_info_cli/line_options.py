"""Options on the source lines in reports."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

_T = TypeVar("_T")


def line_options(function: Callable[..., _T]) -> Callable[..., _T]:
    """Add ``--callers``, ``--show-frames`` and ``--user-package`` to a command, which change the settings."""

    @click.option(
        "--callers",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Number of lines of your code to show for an operation: 2 adds the caller of the nearest.",
    )
    @click.option(
        "--show-frames",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Number of lines of installed packages to show below a line of your code.",
    )
    @click.option(
        "--user-package",
        "user_packages",
        metavar="NAME",
        multiple=True,
        help="An installed package whose lines count as yours. Repeat the option for each package.",
    )
    @functools.wraps(function)
    def command(
        *args: Any, callers: int, show_frames: int, user_packages: tuple[str, ...], **rest: Any
    ) -> _T:
        from jax_array_info_core import config

        before = config.callers, config.show_frames, config.user_packages
        config.callers, config.show_frames, config.user_packages = callers, show_frames, user_packages
        try:
            return function(*args, **rest)
        finally:
            config.callers, config.show_frames, config.user_packages = before

    return command
