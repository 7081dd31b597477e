"""Runs a program in this process as ``python SCRIPT`` and ``python -m MODULE`` do."""

from __future__ import annotations

import builtins
import linecache
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import BuiltinImporter, SourceFileLoader
from types import ModuleType, TracebackType


def run_as_main(words: Sequence[str], *, is_module: bool, source: bytes | None) -> None:
    """Run a script, or a module, as the main program.

    The functions of ``runpy`` that are public take ``__main__`` away again when the program ends;
    here it stays, with all that the program has left in it.

    Args:
        words: Path of the script, or of a directory or zip file with a ``__main__.py``, or name of the
            module; then the arguments of the program.
        is_module: Whether it is a module.
        source: The code of the script; None for a module, a directory or a zip file.
    """
    main = sys.modules["__main__"] = ModuleType("__main__")
    name = words[0]
    if is_module:
        sys.argv[:] = ["-m", *words[1:]]
        _put_first_on_path(os.getcwd())
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
        return
    sys.argv[:] = words
    if source is None:
        sys.path.insert(0, name)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    loader: object = BuiltinImporter
    if name == "-":
        path, folder = "<stdin>", ""
    else:
        path = os.path.abspath(name)
        real = os.path.realpath(path)
        # The pipe of a shell has a path that leads to no file.
        folder = os.path.dirname(real if os.path.exists(real) else path)
        loader = SourceFileLoader("__main__", path)
    _put_first_on_path(folder)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader, __builtins__=builtins)
    if not os.path.isfile(path):
        _keep_lines(path, source)
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _keep_lines(path: str, source: bytes) -> None:
    """Keep the lines of a script for tracebacks: a pipe cannot be read again."""
    lines = source.decode(errors="replace").splitlines(keepends=True)
    linecache.cache[path] = (len(source), None, lines, path)


def _put_first_on_path(folder: str) -> None:
    """Put a folder first on the path, unless the user has told Python not to."""
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
