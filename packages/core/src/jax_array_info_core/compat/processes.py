"""The processes of a program, as JAX knows them."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, NamedTuple

from ..errors import ProcessError
from .private import private


def process_index() -> int:
    """Return ``jax.process_index()``, without starting a backend that nothing has started yet.

    Before, it is what ``jax.distributed.initialize`` was told; where jax is not loaded, the program is
    one process.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return 0
    state = _distributed_state()
    return int(jax.process_index() if state is None or has_backends() else state.process_id)


class Peers(NamedTuple):
    """The processes of a program, and how they reach each other."""

    client: Any
    """Of jax.distributed; private, and the same from jax 0.4.38 to 0.12."""
    process: int
    """Index of this process."""
    process_count: int


def peers() -> Peers | None:
    """Return the processes that ``jax.distributed`` has joined, None where there is but this one.

    Raises:
        ProcessError: there are others, but they were not joined.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    state = _distributed_state()
    if state is not None and state.client is not None:
        found = Peers(state.client, state.process_id, state.num_processes)
        return found if found.process_count > 1 else None
    if has_backends() and jax.process_count() > 1:
        raise ProcessError(
            f"nothing connects the {jax.process_count()} processes: call jax.distributed.initialize in each"
        )
    return None


def _distributed_state() -> Any:
    """Return what ``jax.distributed`` knows, None where a later jax has moved it."""
    try:
        return private("distributed").global_state
    except (ImportError, AttributeError):
        return None


def has_backends() -> bool:
    """Return whether JAX has started its backends; True where a later jax does not tell."""
    try:
        return bool(private("xla_bridge").backends_are_initialized())
    except (ImportError, AttributeError):
        return True


def keep_collectives_on_loopback() -> None:
    """Let collectives between CPU processes listen on 127.0.0.1 alone, where jax lets them be told.

    Left alone, Gloo listens on the address that the machine's own name stands for.
    """
    # jax looks the function up when it makes the backend, up to 0.4.38 in xla_extension.
    with contextlib.suppress(AttributeError):
        library = private("lib").xla_client._xla
        make = library.make_gloo_tcp_collectives
        library.make_gloo_tcp_collectives = functools.partial(make, hostname="127.0.0.1")
