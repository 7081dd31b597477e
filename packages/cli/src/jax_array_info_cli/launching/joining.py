"""Joins the processes of a run by ``jax.distributed``, as soon as the program imports jax."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PATIENCE = 3600
"""Seconds that a process waits for the others: as long as they need before they import jax."""

_CHUNK = 2**16


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


class Joiners:
    """The processes that have begun to join the others, which they announce in a pipe."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        """``writer`` is the descriptor for ``announce_join``."""
        os.set_blocking(self._reader, False)
        self._text = ""

    def known(self) -> set[int]:
        """Return the processes that have announced it until now."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._reader, _CHUNK):
                self._text += data.decode()
        return set(map(int, self._text.splitlines()))


def announce_join(process: int, writer: int) -> None:
    """Tell the supervisor that this process begins to wait for the others."""
    os.write(writer, f"{process}\n".encode())
    os.close(writer)


def join_when_jax_is_imported(process: int, processes: int, port: int, joined: Callable[[], None]) -> None:
    """Join this process to the others when it imports jax, before any of its program's calls to jax.

    Not earlier: what a program puts into its environment for jax, it does before that import. From
    then on ``jax.distributed.initialize`` does nothing whatever it is given; in a process that is
    alone, where nothing is joined unasked, its first call joins it to itself.

    Args:
        process: Which process this is.
        processes: How many there are.
        port: Where on the loopback device they meet.
        joined: Called when jax has been imported.
    """

    def prepare() -> None:
        joined()
        jax = sys.modules["jax"]
        join = functools.cache(functools.partial(_join, jax.distributed.initialize, process, processes, port))
        _replace_initialize(jax, join)
        if processes > 1:
            join()

    if "jax" in sys.modules:
        prepare()
    else:
        sys.meta_path.insert(0, _AfterImport("jax", prepare))


def _replace_initialize(jax: ModuleType, join: Callable[[], None]) -> None:
    @functools.wraps(jax.distributed.initialize)
    def initialize(*args: Any, **kwargs: Any) -> None:
        join()

    jax.distributed.initialize = initialize


def _join(initialize: Callable[..., None], process: int, processes: int, port: int) -> None:
    import jax

    from jax_array_info_core import compat

    # Up to jax 0.5 CPUs have no collectives unless asked for.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    compat.keep_collectives_on_loopback()
    with _own_sigterm():
        initialize(
            f"127.0.0.1:{port}",
            processes,
            process,
            coordinator_bind_address=f"127.0.0.1:{port}",
            cluster_detection_method="deactivate",
            initialization_timeout=_PATIENCE,
        )


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep what SIGTERM does: jax would take it for the notice of a preemption, and go on."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


class _AfterImport(MetaPathFinder):
    """Calls a function when a module has been imported, once, and in no process forked from this one."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self._name = name
        self._function = function
        self._process = os.getpid()
        self._is_asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that others find, with a loader that calls the function at its end."""
        if fullname != self._name or os.getpid() != self._process or self._is_asking:
            return None
        self._is_asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_asking = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # Who only asks whether there is such a module does not import it.
            sys.meta_path.remove(self)
            execute(module)
            self._function()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
