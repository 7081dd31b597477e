"""The processes of a multi-process JAX program."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, NamedTuple

from ..errors import ProcessError
from .private import private


def process_index() -> int:
    """Return ``jax.process_index()`` without starting a backend.

    Before a backend is started, the index is the one given to ``jax.distributed.initialize``. It is 0 if
    JAX is not loaded.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return 0
    state = _distributed_state()
    return int(jax.process_index() if state is None or has_backends() else state.process_id)


class Peers(NamedTuple):
    """The processes of a program, and the client that connects them."""

    client: Any
    """The client of ``jax.distributed``. It is private, but the same from JAX 0.4.38 to 0.12."""
    process: int
    """Index of this process."""
    process_count: int


def peers() -> Peers | None:
    """Return the processes connected by ``jax.distributed``; None if this process is the only one.

    Raises:
        ProcessError: If there are several processes, but they are not connected.
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
            f"the {jax.process_count()} processes are not connected: call jax.distributed.initialize in each"
        )
    return None


def _distributed_state() -> Any:
    """Return the state of ``jax.distributed``; None where a later version of JAX has moved it."""
    try:
        return private("distributed").global_state
    except (ImportError, AttributeError):
        return None


def has_backends() -> bool:
    """Return whether JAX has started its backends; True if a later version of JAX has moved this."""
    try:
        return bool(private("xla_bridge").backends_are_initialized())
    except (ImportError, AttributeError):
        return True


def keep_collectives_on_loopback() -> None:
    """Make collectives between CPU processes listen on 127.0.0.1 only, if this version of JAX supports it.

    By default, Gloo listens on the address to which the machine's host name resolves.
    """
    # JAX looks the function up when it creates the backend, up to 0.4.38 in xla_extension.
    with contextlib.suppress(AttributeError):
        library = private("lib").xla_client._xla
        make = library.make_gloo_tcp_collectives
        library.make_gloo_tcp_collectives = functools.partial(make, hostname="127.0.0.1")
