"""Functions of the user's files. Errors end the command with one line and exit code 2."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ..launch import put_first_on_path
from ..output import Refusal, refuse_reports, refused


SPAWNING = "JAI_SPAWNING_FILE"
"""Variable with the path of the user's file, for the processes that it starts."""


class FunctionName(NamedTuple):
    """A function in a file."""

    source: str
    """Path of the file, or dotted name of a module."""

    function: str
    """Name of the function; ``Class.method`` for one in a class."""

    def __str__(self) -> str:
        return f"{self.source}:{self.function}"


def parse_function(text: str) -> FunctionName:
    """Parse the name of a function in a file, such as ``step.py:step`` or ``package.step:Model.step``.

    Raises:
        ValueError: If the text is not such a name.
    """
    source, _, function = text.rpartition(":")
    if not source or not all(part.isidentifier() for part in function.split(".")):
        raise ValueError(
            f"must be the name of a file and a function in it, such as step.py:step, got {text!r}"
        )
    return FunctionName(source, function)


_SETS_DEVICES = re.compile(r"jax_num_cpu_devices|distributed\.initialize")


def described(error: BaseException) -> str:
    """Return the type of an exception, the first line of its message, and the innermost line of user code.

    JAX explains its errors on further lines, for which there is no room.
    """
    from jax_array_info_core.arrays.origins.origins import error_origin
    from jax_array_info_core.base.text import plain_text

    message = next((line.strip() for line in plain_text(error).splitlines() if line.strip()), "")
    name = type(error).__name__
    origin = error_origin(error)
    return f"{name}: {message}".removesuffix(": ") + (f" ({origin})" if origin else "")


@contextlib.contextmanager
def contained() -> Iterator[None]:
    """Keep the import path complete while user code runs, and end forks of this process that it returns in.

    A fork would report a second time, or wait forever for threads of JAX that it does not have.
    """
    process, path = os.getpid(), sys.path[:]
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(1)
        sys.path = [*(sys.path or ()), *path]


@contextlib.contextmanager
def refused_failures(what: str) -> Iterator[None]:
    """End the command with one line if user code raises an exception or exits.

    Args:
        what: The part of the message before the exception.
    """
    try:
        with contained():
            yield
    except (Refusal, KeyboardInterrupt):
        raise
    except BaseException as error:  # user code may raise any
        problem = f"{what}: {described(error)}"
        # Some files are written to be the main program.
        if isinstance(error, SystemExit):
            problem += ". Exit only under if __name__ == '__main__'"
        elif _SETS_DEVICES.search(problem):
            problem += ". The command sets the devices: do this only under if __name__ == '__main__'"
        raise Refusal(problem) from error


_MAX_NBYTES = 2**24
"""Maximum size of a file with source code."""
_MOST_NAMES = 5
"""Maximum number of functions in a message."""


Run = Callable[[bytes, str, dict[str, Any]], None]
"""Runs the code of a file, with its path, as a module with a namespace."""


def plainly(code: bytes, path: str, namespace: dict[str, Any]) -> None:
    """Run the code of a file as it is."""
    exec(compile(code, path, "exec", dont_inherit=True), namespace)


def loaded(names: Iterable[FunctionName], run: Run = plainly) -> list[Callable[..., Any]]:
    """Return functions of the user, or stages of them. If one cannot be loaded, end the command.

    Each file is run once, as a module that is not ``__main__``.

    Args:
        names: The functions.
        run: The function that runs the code of a file.
    """
    module = functools.cache(functools.partial(_module, run=run))
    return [_function(name, module(name.source)) for name in names]


def _function(name: FunctionName, module: ModuleType) -> Callable[..., Any]:
    """Return a function in a module, or a stage of one."""
    member: Any = module
    before = ""
    for part in name.function.split("."):
        if not hasattr(member, part):
            others = _others(member, part, before)
            raise Refusal(f"{name.source} has no function {name.function!r}: {others}")
        member = getattr(member, part)
        before += f"{part}."
    from jax_array_info_core.compat.stages import is_stage

    if not (callable(member) or is_stage(member)):
        raise Refusal(f"{name} is of type {type(member).__name__}, not a function")
    function: Callable[..., Any] = member
    return function


@contextlib.contextmanager
def user_settings(source: str) -> Iterator[None]:
    """Set ``sys.argv``, ``sys.path`` and the main module as for a script, and restore them at the end."""
    argv, path, main = sys.argv[:], sys.path[:], sys.modules["__main__"]
    sys.argv[:] = [source]
    # Processes that the user's file starts by spawn load it as they load a script.
    sys.modules["__main__"] = ModuleType("__main__")
    sys.modules["__main__"].__file__ = os.path.join(os.path.dirname(__file__), "spawned.py")
    os.environ[SPAWNING] = os.path.abspath(source)
    try:
        yield
    finally:
        sys.argv, sys.path, sys.modules["__main__"] = argv, path, main
        os.environ.pop(SPAWNING, None)


def _module(source: str, run: Run) -> ModuleType:
    """Return the module in a file, or the module with a dotted name."""
    is_name = all(part.isidentifier() for part in source.split(".")) and not source.endswith(".py")
    with refused_failures(f"{source} cannot be loaded"):
        if is_name and not os.path.lexists(source):
            return _module_of_name(source)
        try:
            return module_of_file(source, run)
        except ImportError as error:
            if "relative import" not in str(error):
                raise
            raise Refusal(
                f"{source} imports from its package: name it with the package, such as package.step:step"
            ) from error


def _module_of_name(name: str) -> ModuleType:
    """Import a module, from the current directory as ``python -m`` does."""
    put_first_on_path(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise Refusal(f"{name}: there is no file and no module of this name") from error
        raise


def module_of_file(source: str, run: Run = plainly, told: str | None = None) -> ModuleType:
    """Run a file as a module, with its folder first on the module search path as for a script.

    Args:
        source: Path of the file.
        run: The function that runs its code.
        told: What it has as ``__name__``; None for the name of the module.
    """
    code = _source_code(source)
    path = os.path.abspath(source)
    put_first_on_path(os.path.dirname(os.path.realpath(path)))
    name = Path(source).stem
    while name in sys.modules:  # a module of the standard library, or one that is imported already
        name += "_"
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    module.__name__ = told or name
    # Executed here, because the loader would write bytecode next to the file.
    run(code, path, module.__dict__)
    return module


def _source_code(path: str) -> bytes:
    """Return the content of a file, or end the command if it cannot be read."""
    from jax_array_info_core.errors import FileFormatError
    from jax_array_info_core.trees.stored.reading import Budget, read_whole

    refuse_reports(path, "not Python")
    with refused(OSError, FileFormatError, prefix=f"{path}: "):
        return read_whole(Path(path), Budget(_MAX_NBYTES))


def _others(owner: Any, name: str, before: str) -> str:
    """Return the functions that there are instead: those with similar names, or all that are defined there.

    Args:
        owner: A module or a class.
        name: Name of the function that it does not have.
        before: The classes that contain the owner, and the owner, each with a period after it.
    """
    members = {other: getattr(owner, other, None) for other in dir(owner) if not other.startswith("__")}
    functions = {other: value for other, value in members.items() if callable(value)}
    if near := difflib.get_close_matches(name, functions, n=3):
        return f"did you mean {' or '.join(repr(before + other) for other in near)}?"
    module = owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__module__", None)
    defined = [
        repr(before + other)
        for other, value in functions.items()
        if getattr(value, "__module__", None) == module and not isinstance(value, type)
    ]
    more = ["…"] * (len(defined) > _MOST_NAMES)
    return f"it has {', '.join([*defined[:_MOST_NAMES], *more])}" if defined else "it has none"
