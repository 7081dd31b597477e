"""Joining the processes of a run by ``jax.distributed``, as soon as the program imports jax."""

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

_PATIENCE = 3600
"""Seconds that a process waits for the others: as long as they need before they import jax."""


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """Hold a free port of the loopback device, so that nobody but gRPC can take it.

    A port that was found free and let go may be lost to another program before it is used; worse,
    gRPC shares a port with whatever other coordinator has it, and the two runs would mix. While this
    socket, which listens to nothing, is bound to it, the system gives the port to nobody else,
    and gRPC, which asks to share, may still bind it.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def join_when_jax_is_imported(process: int, processes: int, port: int, joins: Callable[[], None]) -> None:
    """Join this process to the others when it imports jax, before any of its program's calls to jax.

    Not earlier: what a program puts into its environment for jax, it does before that import. From
    then on ``jax.distributed.initialize`` does nothing whatever it is given; in a process that is
    alone, where nothing is joined unasked, its first call joins it to itself.

    Args:
        process: Which process this is.
        processes: How many there are.
        port: Where on the loopback device they meet.
        joins: Called before this process waits for others.
    """
    own = os.getpid()

    def prepare(jax: ModuleType) -> None:
        if os.getpid() != own:
            return  # a fork of this process joins nobody
        initialize = jax.distributed.initialize
        join = functools.cache(functools.partial(_join, initialize, process, processes, port))
        jax.distributed.initialize = functools.wraps(initialize)(lambda *args, **kwargs: join())
        if processes > 1:
            joins()
            join()

    if "jax" in sys.modules:  # a sitecustomize or a .pth file has imported it
        prepare(sys.modules["jax"])
    else:
        sys.meta_path.insert(0, _AfterJax(prepare))


def _join(initialize: Callable[..., None], process: int, processes: int, port: int) -> None:
    import jax

    from jax_array_info_core import compat

    # Up to jax 0.5 CPUs have no collectives unless asked for.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    compat.keep_collectives_on_loopback()
    handler = signal.getsignal(signal.SIGTERM)
    initialize(
        f"127.0.0.1:{port}",
        processes,
        process,
        coordinator_bind_address=f"127.0.0.1:{port}",
        cluster_detection_method="deactivate",
        initialization_timeout=_PATIENCE,
    )
    # jax takes SIGTERM for the notice of a preemption, and goes on.
    with contextlib.suppress(ValueError):  # in a thread, where jax has left it as it was
        signal.signal(signal.SIGTERM, handler)


class _AfterJax(MetaPathFinder):
    """Calls a function with jax when it has been imported."""

    def __init__(self, function: Callable[[ModuleType], None]) -> None:
        self._function = function

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that others find, with a loader that calls the function at its end."""
        if fullname != "jax":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        sys.meta_path.insert(0, self)  # the program may only ask whether there is such a module
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            sys.meta_path.remove(self)
            execute(module)
            self._function(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
