"""Exceptions of user code, as one line."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

from ..usage import Refusal


def described(error: BaseException) -> str:
    """Return the type of an exception, the first line of its message, and the innermost line of user code.

    JAX explains its errors on further lines, for which there is no room.
    """
    from jax_array_info_core.origins.origins import hidden_files, innermost
    from jax_array_info_core.text import plain_text

    message = next((line.strip() for line in plain_text(error).splitlines() if line.strip()), "")
    name = type(error).__name__
    frames = [
        (f.f_code.co_filename, line, f.f_code.co_name) for f, line in traceback.walk_tb(error.__traceback__)
    ]
    origin = innermost(reversed(frames), hidden_files())
    return f"{name}: {message}".removesuffix(": ") + (f" ({origin})" if origin else "")


@contextlib.contextmanager
def refused_failures(what: str) -> Iterator[None]:
    """End the command with one line if user code raises an exception or exits.

    Args:
        what: The part of the message before the exception.
    """
    try:
        yield
    except Refusal:
        raise
    except SystemExit as error:
        raise Refusal(f"{what}: {described(error)}. Exit only under if __name__ == '__main__'") from error
    except Exception as error:  # user code may raise any
        raise Refusal(f"{what}: {described(error)}") from error
