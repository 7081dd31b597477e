"""Hooks that run when the program imports jax: in a simulation, ``jax.distributed.initialize``."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_TIMEOUT = 3600
"""Seconds that a process waits for the others to import jax."""


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """Reserve a free port on the loopback device that only gRPC can bind.

    If the port were released before use, another program could take it. A second coordinator would even
    share it with the first, since gRPC sets ``SO_REUSEPORT``, and the two runs would mix. This socket never
    listens. While it is bound, the system assigns the port to no other program, but gRPC can still bind it.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def join_when_jax_is_imported(
    process: int, processes: int, port: int, joins: Callable[[], None], joined: Callable[[], None]
) -> None:
    """Join this process to the others when the program imports jax, before its first call to jax.

    Joining earlier would be too early for environment variables that the program sets before it imports
    jax. Afterwards, ``jax.distributed.initialize`` ignores its arguments and does nothing. In a run of one
    process, the import joins nothing, and the first call initializes a cluster of one.

    Args:
        process: Index of this process.
        processes: Number of processes.
        port: Port of the coordinator on the loopback device.
        joins: Called before this process waits for the others.
        joined: Called afterwards, or at once in a run of one process.
    """

    def prepare(jax: ModuleType) -> None:
        initialize = jax.distributed.initialize
        join = functools.cache(functools.partial(_join, initialize, process, processes, port))
        jax.distributed.initialize = functools.wraps(initialize)(lambda *args, **kwargs: join())
        if processes > 1:
            joins()
            join()
        joined()

    when_jax_is_imported(prepare)


def when_jax_is_imported(function: Callable[[ModuleType], None]) -> None:
    """Call a function with jax once it is imported in this process, and not in a fork of it."""
    own_pid = os.getpid()

    def here(jax: ModuleType) -> None:
        if os.getpid() == own_pid:
            function(jax)

    if "jax" in sys.modules:  # imported by a sitecustomize or a .pth file
        function(sys.modules["jax"])
    else:
        sys.meta_path.insert(0, _AfterJax(here))


def _join(initialize: Callable[..., None], process: int, processes: int, port: int) -> None:
    import jax

    from jax_array_info_core import compat

    # Up to jax 0.5, collectives between CPUs are off by default.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    compat.keep_collectives_on_loopback()
    handler = signal.getsignal(signal.SIGTERM)
    initialize(
        f"127.0.0.1:{port}",
        processes,
        process,
        coordinator_bind_address=f"127.0.0.1:{port}",
        cluster_detection_method="deactivate",
        initialization_timeout=_TIMEOUT,
    )
    # jax treats SIGTERM as a preemption notice and keeps running: restore the handler.
    with contextlib.suppress(ValueError):  # outside the main thread, jax has not changed it
        signal.signal(signal.SIGTERM, handler)


class _AfterJax(MetaPathFinder):
    """Import hook that calls a function with jax after its import."""

    def __init__(self, function: Callable[[ModuleType], None]) -> None:
        self._function = function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of jax from the other finders, with a loader that calls the function at the end."""
        if fullname != "jax":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        sys.meta_path.insert(0, self)  # the program may only check that jax is installed
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            sys.meta_path.remove(self)
            execute(module)
            self._function(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
