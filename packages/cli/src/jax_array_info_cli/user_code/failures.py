"""Exceptions of user code, as one line."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..usage import Refusal

if TYPE_CHECKING:
    from jax_array_info_core import Origin

_SETS_DEVICES = re.compile(r"jax_num_cpu_devices|distributed\.initialize")


def described(error: BaseException) -> str:
    """Return the type of an exception, the first line of its message, and the innermost line of user code.

    JAX explains its errors on further lines, for which there is no room.
    """
    from jax_array_info_core.text import plain_text

    message = next((line.strip() for line in plain_text(error).splitlines() if line.strip()), "")
    name = type(error).__name__
    origin = origin_of(error)
    return f"{name}: {message}".removesuffix(": ") + (f" ({origin})" if origin else "")


def origin_of(error: BaseException) -> Origin | None:
    """Return the innermost line of user code in the traceback of an exception."""
    from jax_array_info_core.origins.origins import UserLines

    frames = [
        (f.f_code.co_filename, line, f.f_code.co_name) for f, line in traceback.walk_tb(error.__traceback__)
    ]
    lines = UserLines()
    return lines.origin(frame for frame in reversed(frames) if not lines.is_hidden(frame[0]))


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """Keep the import path complete while user code runs, and end forks of this process that it returns in.

    A fork would report a second time, or wait forever for threads of JAX that it does not have.
    """
    process, path = os.getpid(), sys.path[:]
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(1)
        sys.path = [*(sys.path or ()), *path]


@contextlib.contextmanager
def refused_failures(what: str) -> Iterator[None]:
    """End the command with one line if user code raises an exception or exits.

    Args:
        what: The part of the message before the exception.
    """
    try:
        with contained():
            yield
    except (Refusal, KeyboardInterrupt):
        raise
    except BaseException as error:  # user code may raise any
        raise Refusal(f"{what}: {described(error)}{_advice(error)}") from error


def _advice(error: BaseException) -> str:
    """Return what to change in a file that is written to be the main program; empty for other errors."""
    from jax_array_info_core.text import plain_text

    if isinstance(error, SystemExit):
        return ". Exit only under if __name__ == '__main__'"
    if _SETS_DEVICES.search(plain_text(error)):
        return ". The command sets the devices: do this only under if __name__ == '__main__'"
    return ""
