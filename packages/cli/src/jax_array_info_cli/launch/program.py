"""Execution of a program in this process, as with ``python SCRIPT`` and ``python -m MODULE``."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib.util
import linecache
import os
import runpy
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import BuiltinImporter, ModuleSpec, SourceFileLoader
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..output import Output

_TIMEOUT = 3600
"""Seconds that a process waits for the others to import jax."""


@dataclass(frozen=True, slots=True)
class Job:
    """A program and the options to run it with, sent to every process."""

    argv: tuple[str, ...]
    """Path of the script or name of the module, followed by the program's arguments."""

    is_module: bool = False
    """Whether the first argument names a module."""

    processes: int = 1
    """Number of processes that run it."""

    timeout: float | None = None
    """Seconds after which all processes are stopped."""

    quiet: bool = False
    """Whether to omit the table of live arrays, at the end and on an out-of-memory error."""

    output: Output | None = None
    """Destination of that table at the end; None for standard output."""

    source: bytes | None = None
    """The code of the script; None for a module, a directory or a zip file."""


def run_as_main(job: Job) -> None:
    """Run a script or a module as the main program.

    The public functions of ``runpy`` remove ``__main__`` when the program ends. Here it stays, with
    everything that the program has left in it.
    """
    main = sys.modules["__main__"] = ModuleType("__main__")
    name = job.argv[0]
    if job.is_module:
        sys.argv[:] = ["-m", *job.argv[1:]]
        put_first_on_path(os.getcwd())
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
        return
    sys.argv[:] = job.argv
    if job.source is None:
        sys.path.insert(0, name)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    loader: object = BuiltinImporter
    if name == "-":
        path, folder = "<stdin>", ""
    else:
        path = os.path.abspath(name)
        real = os.path.realpath(path)
        # The path of a shell's pipe does not resolve to a file.
        folder = os.path.dirname(real if os.path.exists(real) else path)
        loader = SourceFileLoader("__main__", path)
    put_first_on_path(folder)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader, __builtins__=builtins)
    if not os.path.isfile(path):
        # A pipe cannot be read again for tracebacks.
        lines = job.source.decode(errors="replace").splitlines(keepends=True)
        linecache.cache[path] = (len(job.source), None, lines, path)
    exec(compile(job.source, path, "exec", dont_inherit=True), main.__dict__)


def put_first_on_path(folder: str) -> None:
    """Put a directory first on the module search path, unless ``PYTHONSAFEPATH`` is set."""
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, folder)


def program_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that led to the program."""
    left = traceback
    while traceback is not None:
        following = traceback.tb_next
        if traceback.tb_frame.f_code.co_filename == __file__:
            left = following
        traceback = following
    return left


def join_when_jax_is_imported(process: int, processes: int, port: int, joins: Callable[[], None]) -> None:
    """Join this process to the others when the program imports jax, before its first call to jax.

    Joining earlier would be too early for environment variables that the program sets before it imports
    jax. Afterwards, ``jax.distributed.initialize`` ignores its arguments and does nothing. In a run of one
    process, the import joins nothing, and the first call initializes a cluster of one.

    Args:
        process: Index of this process.
        processes: Number of processes.
        port: Port of the coordinator on the loopback device.
        joins: Called before this process waits for the others.
    """
    own_pid = os.getpid()

    def prepare(jax: ModuleType) -> None:
        if os.getpid() != own_pid:
            return  # a fork of this process must not join
        initialize = jax.distributed.initialize
        join = functools.cache(functools.partial(_join, initialize, process, processes, port))
        jax.distributed.initialize = functools.wraps(initialize)(lambda *args, **kwargs: join())
        if processes > 1:
            joins()
            join()

    if "jax" in sys.modules:  # imported by a sitecustomize or a .pth file
        prepare(sys.modules["jax"])
    else:
        sys.meta_path.insert(0, _AfterJax(prepare))


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
