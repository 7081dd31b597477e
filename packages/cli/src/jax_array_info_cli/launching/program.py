"""Runs a program in this process as ``python SCRIPT`` and ``python -m MODULE`` do."""

from __future__ import annotations

import io
import os
import pkgutil
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType


def run_as_main(words: Sequence[str], *, is_module: bool) -> None:
    """Run a script, or a module, as the main program.

    The functions of ``runpy`` that are public take ``__main__`` away again when the program ends;
    here it stays, with all that the program has left in it.

    Args:
        words: Path of the script, or of a directory or zip file with a ``__main__.py``, or name of the
            module; then the arguments of the program.
        is_module: Whether it is a module.
    """
    main = sys.modules["__main__"] = ModuleType("__main__")
    name = words[0]
    if is_module:
        sys.argv[:] = ["-m", *words[1:]]
        _put_first_on_path(os.getcwd())
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]
        return
    sys.argv[:] = words
    if pkgutil.get_importer(name) is not None:
        sys.path.insert(0, name)
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
        return
    path = os.path.abspath(name)
    _put_first_on_path(os.path.dirname(os.path.realpath(path)))
    main.__dict__.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


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
