"""The script of a process that runs a program: ``python worker.py DESCRIPTOR ARGV…``.

Unlike ``python -P -m``, a script sets no flag that the processes of the program would inherit.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the folder of this script

import _thread
import atexit
import builtins
import contextlib
import ctypes
import faulthandler
import fcntl
import functools
import importlib.util
import io
import linecache
import os
import pickle
import resource
import runpy
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from importlib.machinery import BuiltinImporter, ModuleSpec, SourceFileLoader
from types import ModuleType, SimpleNamespace, TracebackType

from jax_array_info_cli.launch import (
    DUMP_STACKS,
    LAUNCHING,
    STDERR,
    TIMED_OUT,
    Job,
    held_port,
    print_message,
    put_first_on_path,
    read_source,
    timed_out,
    too_many,
)
from jax_array_info_cli.standard_streams import written_or_refused


class _Worker:
    """A process that runs a program, then prints the table of its live arrays, except with a rank above 0.

    A failed program gets no table, except after an out-of-memory error: then it precedes the traceback.
    """

    def __init__(self, letter: io.BufferedReader) -> None:
        """Read the job from an open file. What it says to the launcher goes to the end of the same file."""
        self._job: Job = pickle.load(letter)  # noqa: S301, written by the launcher
        self._source = self._job.source
        self._pid = os.getpid()
        self._environment = dict(os.environ)
        self._code = 0
        self._end_record: Callable[[BaseException], None] | None = None
        self._end_watch: Callable[[bool], int] | None = None
        self._notes = STDERR
        """Where recompilations are written: the end of that file, or a copy of stderr."""
        # Linux closes the highest first when a process dies, and a program may close those that it expects.
        self._highest = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2**16) - 2
        if self._job.launcher is None:
            self._be_the_command()
        else:
            self._be_one_of_several(self._job, letter)

    def _be_the_command(self) -> None:
        job = self._job
        # A program may execute itself again by these arguments.
        sys.orig_argv[:] = [sys.orig_argv[0], *(["-m"] if job.is_module else []), *job.argv]
        if not job.is_module:
            self._source = read_source(job.argv[0])
        if job.recompiles and sys.__stderr__ is not None:
            # The program may capture stderr for a while, as pytest does.
            self._notes = notes = fcntl.fcntl(STDERR, fcntl.F_DUPFD_CLOEXEC, self._highest)
            # A daemon that the program leaves behind must not hold it.
            os.register_at_fork(after_in_child=functools.partial(os.closerange, notes, notes + 1))
        if job.timeout is not None:
            # Not a thread of ``threading``, where the program would find it.
            _thread.start_new_thread(_end_after, (job.timeout,))
            # If Python does not run then, because C code keeps its lock.
            faulthandler.dump_traceback_later(job.timeout + _GRACE, exit=True, file=STDERR)

    def _be_one_of_several(self, job: Job, letter: io.BufferedReader) -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != job.launcher:  # it has exited before
            sys.exit(1)
        fcntl.fcntl(job.alive, fcntl.F_DUPFD_CLOEXEC, self._highest + 1)
        os.close(job.alive)
        self._notes = fcntl.fcntl(letter, fcntl.F_DUPFD_CLOEXEC, self._highest)
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        if job.processes > 1:
            _write_whole_lines()
        faulthandler.register(DUMP_STACKS, file=self._notes, all_threads=True)

    def run(self) -> None:
        """Run the program."""
        job = self._job
        if "jax" in sys.modules:  # imported by a sitecustomize or a .pth file
            self._join(sys.modules["jax"])
        elif job.processes or job.record is not None or job.recompiles:
            sys.meta_path.insert(0, _AfterJax(self._join))
        self._explain_in_threads()
        path = sys.path[:]
        try:
            try:
                _run_as_main(job.argv, is_module=job.is_module, source=self._source)
            finally:
                # The program may have removed entries that the imports below need.
                sys.path = [*(sys.path or ()), *path]
        except BaseException as error:
            self._code = _exit_code(error)
            if self._code:
                self._fail(error)
                raise
        try:
            if self._shows_arrays():
                self._show_live_arrays()
        finally:
            recompilations = self._end_compilations()
        if recompilations and job.fail_on_recompile and job.launcher is None:
            print_message(too_many(recompilations))
            sys.exit(1)

    def _join(self, jax: ModuleType) -> None:
        """Join this process to the others, and begin to record, when the program has imported jax.

        Joining earlier would be too early for environment variables that the program sets before it imports
        jax. Afterwards, ``jax.distributed.initialize`` ignores its arguments and does nothing. In a run of
        one process, the import joins nothing, and the first call initializes a cluster of one.
        """
        job = self._job
        if os.getpid() != self._pid:
            return  # a fork of the program
        if job.processes:
            initialize = jax.distributed.initialize
            join = functools.cache(functools.partial(_initialize, initialize, job))
            jax.distributed.initialize = functools.wraps(initialize)(lambda *args, **kwargs: join())
            if job.processes > 1:
                # Exit handlers that the program registers after it imports jax run before this one.
                atexit.register(self._leave_without_jax)
                os.write(self._notes, b"\n")
                join()
        if job.record is not None:
            from jax_array_info_core.jobs.timeline.recorder import record_program

            self._end_record = record_program(job.record)
        if job.recompiles:
            from jax_array_info_cli.launch.recompiles import watch

            self._end_watch = watch(self._notes, self._is_first, is_read=job.launcher is not None)

    def _leave_without_jax(self) -> None:
        """Exit a failed program before jax waits a minute or more for processes that never come."""
        if self._code:
            for stream in (sys.stdout, sys.stderr):
                # The reader may have closed the pipe, or the program the stream.
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            os._exit(self._code)

    def _fail(self, error: BaseException) -> None:
        """Show the arrays if memory has run out, and let the traceback begin with the program's frames."""
        if self._end_record is not None:
            self._end_record(error)
        if self._end_watch is not None and os.getpid() == self._pid:
            self._end_watch(self._is_first())
        if self._shows_arrays() and "jax" in sys.modules and not self._rank():
            from jax_array_info.verbs.oom import tell_if_out_of_memory

            tell_if_out_of_memory(error)
        self._explain(error)
        show = sys.excepthook
        if show is sys.__excepthook__ and sys.stderr is not None:
            # Up to Python 3.12, the hook in C opens the script again, and hangs if that is a named pipe.
            show = traceback.print_exception

        def excepthook(cls: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
            while frames and frames.tb_frame.f_code.co_filename == __file__:
                frames = frames.tb_next
            show(cls, error.with_traceback(frames), frames)

        sys.excepthook = excepthook

    def _explain(self, error: BaseException | None) -> None:
        """Print why JAX raised an error that nothing has caught, before the traceback."""
        if error is not None and "jax" in sys.modules and os.getpid() == self._pid:
            from jax_array_info.verbs.explain import tell_if_explained

            tell_if_explained(error)

    def _explain_in_threads(self) -> None:
        """Explain errors that end a thread of the program, before the hook of now shows them."""
        show = threading.excepthook

        def excepthook(args: threading.ExceptHookArgs) -> None:
            self._explain(args.exc_value)
            show(args)

        threading.excepthook = excepthook

    def _is_first(self) -> bool:
        return not (self._job.process or self._rank())

    def _end_compilations(self) -> int:
        """Print the table of the compilations that are watched, and return the number of recompilations.

        Threads and exit handlers of the program may compile too. Therefore they end here, as Python ends
        them after the main script: Python itself finds none left.
        """
        if not self._job.recompiles or os.getpid() != self._pid:
            return 0
        try:
            threading._shutdown()  # type: ignore[attr-defined]
        except BaseException as error:
            # Such as Ctrl-C. Python prints it too, and goes on.
            values = type(error), error, error.__traceback__, None, threading
            sys.unraisablehook(SimpleNamespace(**dict(zip(_UNRAISABLE, values, strict=True))))
        is_first = self._is_first()  # before JAX closes its devices
        if self._end_watch is not None:
            with contextlib.suppress(Exception):
                import jax_array_info.verbs.programs  # noqa: F401, exit handlers may remove what it needs
        atexit._run_exitfuncs()
        return self._end_watch(is_first) if self._end_watch is not None else 0

    def _shows_arrays(self) -> bool:
        # A fork of the program also ends here, and must not use jax.
        return not self._job.quiet and os.getpid() == self._pid

    def _rank(self) -> int:
        from jax_array_info_core.compat.processes import launcher_rank, process_index

        # The processes of a simulation print a table each.
        return launcher_rank(self._environment) or (0 if self._job.processes else process_index())

    def _show_live_arrays(self) -> None:
        """Write the table of live arrays to a file, or print it, if the program has started devices."""
        from jax_array_info_core.compat import processes

        output = self._job.output
        if "jax" not in sys.modules or not processes.has_backends():
            if output is not None:
                print_message(f"{output.path} is not written: the program has started no device of JAX")
        elif output is not None:
            import click

            from jax_array_info import live_array_report

            try:
                output.of_rank(self._rank()).show([[live_array_report()]])
            except click.ClickException as error:
                error.show()
                sys.exit(error.exit_code)
        elif not self._rank() and sys.stdout is not None and not sys.stdout.closed:
            from jax_array_info import print_array_stats

            with written_or_refused():
                print_array_stats()


def _exit_code(error: BaseException) -> int:
    """Return the exit code of Python for an exception that ends a program."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    code = error.code if isinstance(error, SystemExit) else 1
    return (code or 0) & 0xFF if isinstance(code, int | None) else 1


def _run_as_main(argv: Sequence[str], *, is_module: bool, source: bytes | None) -> None:
    """Run a script or a module as the main program, as with ``python SCRIPT`` and ``python -m MODULE``.

    The public functions of ``runpy`` remove ``__main__`` when the program ends. Here it stays, with
    everything that the program has left in it.

    Args:
        argv: Path of the script, directory or zip file with a ``__main__.py``, or name of the module,
            followed by the program's arguments.
        is_module: Whether the first argument names a module.
        source: The code of the script; None for a module, a directory or a zip file.
    """
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=builtins)
    name = argv[0]
    if is_module:
        sys.argv[:] = ["-m", *argv[1:]]
        put_first_on_path(os.getcwd())
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
        return
    sys.argv[:] = argv
    if source is None:
        sys.path.insert(0, os.path.join(os.getcwd(), name))
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    loader: object = BuiltinImporter
    if name == "-":
        path, folder = "<stdin>", ""
    else:
        path = os.path.join(os.getcwd(), name)  # with its dots, as Python has it
        real = os.path.realpath(path)
        # The path of a shell's pipe does not resolve to a file.
        folder = os.path.dirname(real if os.path.exists(real) else path)
        loader = SourceFileLoader("__main__", path)
    put_first_on_path(folder)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
    if not os.path.isfile(path):
        # For tracebacks, because a pipe cannot be read again.
        lines = source.decode(errors="replace").splitlines(keepends=True)
        linecache.cache[path] = (len(source), None, lines, path)
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _end_after(seconds: float) -> None:
    """Print the stacks of the other threads after some seconds, and end this process with ``TIMED_OUT``."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(seconds)
    try:
        for thread, innermost in sys._current_frames().items():
            stack = traceback.extract_stack(innermost)
            if frames := [frame for frame in stack if not frame.filename.startswith(LAUNCHING)]:
                lines = [f"Thread {thread:#x} (most recent call last):\n", *traceback.format_list(frames)]
                os.write(STDERR, "".join(lines).encode(errors="backslashreplace"))
        print_message(timed_out(seconds))
    finally:
        os._exit(TIMED_OUT)


def _write_whole_lines() -> None:
    """Make Python and C write each line in one piece, as soon as it is complete.

    By default, C writes to a pipe in blocks that end anywhere, so lines of Python and C would mix.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    library = ctypes.CDLL(None)
    # The C library of macOS has another name for stdout: leave its buffering unchanged.
    with contextlib.suppress(ValueError):
        stdout = ctypes.c_void_p.in_dll(library, "stdout")
        # Under PYTHONUNBUFFERED, C has a buffer of one byte and keeps it unless it gets another. C flushes
        # after Python has exited, so the buffer is never freed.
        library.malloc.restype = ctypes.c_void_p
        buffer = ctypes.c_void_p(library.malloc(ctypes.c_size_t(_BUFFER)))
        library.setvbuf(stdout, buffer, _LINE_BUFFERED, ctypes.c_size_t(_BUFFER))


class _AfterJax:
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
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                sys.meta_path.remove(self)
                execute(module)
                self._function(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _initialize(initialize: Callable[..., None], job: Job) -> None:
    import jax

    from jax_array_info_core.compat import processes

    # Up to jax 0.5, collectives between CPUs are off by default.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    processes.keep_collectives_on_loopback()
    handler = signal.getsignal(signal.SIGTERM)
    with held_port() if job.port is None else contextlib.nullcontext(job.port) as port:
        initialize(
            f"127.0.0.1:{port}",
            job.processes,
            job.process,
            coordinator_bind_address=f"127.0.0.1:{port}",
            cluster_detection_method="deactivate",
            initialization_timeout=_TIMEOUT,
        )
    # jax treats SIGTERM as a preemption notice and keeps running: restore the handler.
    with contextlib.suppress(ValueError):  # outside the main thread, jax has not changed it
        signal.signal(signal.SIGTERM, handler)


_UNRAISABLE = ("exc_type", "exc_value", "exc_traceback", "err_msg", "object")
"""The attributes of an exception that Python prints without raising it."""

_GRACE = 3
"""Seconds until C ends a program whose Python does not run."""

_TIMEOUT = 3600
"""Seconds that a process waits for the others to import jax."""

_PR_SET_PDEATHSIG = 1
_LINE_BUFFERED = 1
_BUFFER = 2**16

if __name__ == "__main__":
    with open(int(sys.argv[1]), "rb") as opened:
        worker = _Worker(opened)
    worker.run()
