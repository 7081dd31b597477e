"""Source lines of the user, among the frames of JAX and of installed packages."""

from __future__ import annotations

import enum
import functools
import inspect
import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ...base.config import config
from ...base.text import clipped
from ...facts.reports.origin import MOST_CALLERS, Origin, SourceLine
from ...xla.hlo.source import without_repeats

_NAME = re.compile(r"<ipython-input-(\d{1,9})-")
_LABEL = re.compile(r"In ?\[(\d{1,9})\]")


def cell_number(file: str) -> int | None:
    """Return the number of the cell in a file name, as in ``In [8]``; None if it is not a cell.

    IPython tells it for the names of its kernel, which have none. A cell that ran again has its last number.
    """
    ipython: Any = sys.modules.get("IPython")
    try:
        _, label = ipython.get_ipython().compile.format_code_name(file)
        named = _LABEL.search(label)
    except Exception:  # IPython is not running, is an old version, or does not know the name
        named = None
    named = named or _NAME.match(file)
    return None if named is None else int(named[1])


JAX_MODULES = ("jax", "jaxlib", "jax_plugins")
"""Modules of JAX itself."""

OUR_MODULES = ("jax_array_info", "jax_array_info_core", "jax_array_info_cli")
"""Modules of this project."""

HIDDEN_MODULES = (*JAX_MODULES, "flax", "optax", "equinox", *OUR_MODULES)
"""Modules that are never the user's, wherever they are; ``config.hidden_modules`` adds more."""

_STANDARD_LIBRARY = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))
_ANY_STANDARD_LIBRARY = re.compile(
    r"^/.*/lib(?:64)?/python3(?:\.\d+t?/|\d+\.zip/)|^[a-z]:\\(?:.*\\)?python3\d+\\(?:lib\\|python3\d+\.zip\\)",
    re.IGNORECASE,
)
"""Usual folders of the standard library, for profiles from other machines."""
_INSTALLED = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]bin[/\\][^/\\.]+$|\.exe[/\\]__main__\.py$", re.IGNORECASE
)
"""Folders of installed packages, and the scripts that start them."""
_GENERATED = re.compile(r"<(?:frozen |attrs generated |@beartype\(|__array_function__ |decorator-gen-)")
"""Names of code that a package generates. Other names in angle brackets are code that the user typed."""
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")

Stack = Iterable[tuple[str, int, str]]
"""File, line and function of each frame, innermost first."""


class _HasFrames(Protocol):
    @property
    def frames(self) -> Sequence[tuple[str, int, str]]: ...


_Described = TypeVar("_Described", bound=_HasFrames)


class Owner(enum.IntEnum):
    """The owner of code, the user first."""

    USER = 0
    PACKAGE = 1
    """An installed package."""
    LIBRARY = 2
    """The standard library, a library that is never the user's, or a hidden module."""
    MACHINERY = 3
    """JAX or this package."""


class UserLines:
    """The search for the line of the user in a stack, with the settings at the time that it is made.

    A line of the user is outside JAX, this package, the standard library, ``config.hidden_modules`` and
    installed packages other than ``config.user_packages``. Without one, the innermost line of an installed
    package stands for it, then that of a library, then that of JAX. Files of other machines, as in a
    profile, are recognized by the names of their folders.

    Args:
        has_code: Whether lines have their text, for which their files are read.
    """

    def __init__(self, *, has_code: bool = False) -> None:
        self._has_code = has_code
        self._is_hidden = files_of(config.hidden_modules)
        self._is_user = files_of(config.user_packages)
        self._is_machinery = files_of((*JAX_MODULES, *OUR_MODULES))
        self._is_library = files_of(HIDDEN_MODULES)
        self._skipped = config.show_frames
        self.owner = functools.cache(self._owner)
        # A recorder asks as long as the program runs.
        self._origin_of = functools.lru_cache(maxsize=4096)(self._origin)

    def _owner(self, file: str) -> Owner:
        """Return the owner of a file."""
        if self._is_hidden(file):
            return Owner.LIBRARY
        if self._is_user(file):
            return Owner.USER
        if self._is_machinery(file):
            return Owner.MACHINERY
        if self._is_library(file) or _GENERATED.match(file):
            return Owner.LIBRARY
        if _INSTALLED.search(file):
            return Owner.PACKAGE
        if file.startswith(_STANDARD_LIBRARY) or _ANY_STANDARD_LIBRARY.search(file):
            return Owner.LIBRARY
        return Owner.USER

    def is_hidden(self, file: str) -> bool:
        """Return whether a file belongs to JAX, a library or a hidden module."""
        return self.owner(file) >= Owner.LIBRARY

    def origin(self, stack: Stack) -> Origin | None:
        """Return the line of the user in a stack, with its callers; None for an empty stack."""
        return self._origin_of(tuple(stack))

    def _origin(self, stack: Stack) -> Origin | None:
        frames = [(self._owner_of(frame), frame) for frame in _plain(stack)]
        best = min((owner for owner, _ in frames), default=None)
        if best is None:
            return None
        place = next(place for place, (owner, _) in enumerate(frames) if owner is best)
        inside = [frame for owner, frame in frames[:place] if owner is not Owner.MACHINERY]
        # XLA repeats the frames of loops and calls that it inlines.
        user = [*without_repeats(frame for owner, frame in frames[place:] if owner is best)]
        # What calls the code of a module is an import, or the program that runs a script.
        last = next((number for number, frame in enumerate(user) if frame.function == "<module>"), len(user))
        nearest, *callers = user[: last + 1]
        return Origin(
            file=nearest.file,
            line=nearest.line,
            function=nearest.function,
            cell=nearest.cell,
            callers=tuple(callers[:MOST_CALLERS]),
            skipped=tuple(inside[: self._skipped]),
            code=_code_at(nearest) if self._has_code else "",
        )

    def _owner_of(self, frame: SourceLine) -> Owner:
        # The methods of a dataclass are generated.
        is_generated = frame.file == "<string>" and frame.function.startswith("__")
        return Owner.LIBRARY if is_generated else self.owner(frame.file)

    def definition(self, code: CodeType) -> Origin:
        """Return the file, the first line and the name of a function, with the text of the line."""
        origin = code_origin(code)
        return replace(origin, code=_code_at(origin)) if self._has_code else origin

    def nearest(self, described: Iterable[_Described]) -> _Described | None:
        """Return the first of some operations with a line outside JAX and libraries, else with any line."""
        best, first = None, None
        for operation in described:
            owner = min((self.owner(file) for file, _, _ in operation.frames), default=None)
            if owner is not None and (best is None or owner < best):
                best, first = owner, operation
                if owner <= Owner.PACKAGE:
                    break
        return first


def _code_at(line: SourceLine) -> str:
    """Return the text of a line of a file or of a notebook cell; empty if it cannot be read."""
    if line.cell is None and not os.path.isfile(line.file):
        return ""  # a pipe would wait, and several sources have names such as <string>
    return clipped(linecache.getline(line.file, line.line).rstrip())


def _plain(stack: Stack) -> Iterator[SourceLine]:
    """Yield the frames of a stack, those of comprehensions with the names of their functions."""
    frames = iter(stack)
    for file, line, function in frames:
        # Some versions of JAX record qualified names.
        name = function.rpartition(".")[2]
        # Up to Python 3.11, a comprehension is a function with its own frame.
        while name in _COMPREHENSIONS and (outer := next(frames, None)):
            name = outer[2].rpartition(".")[2]
        yield SourceLine(file=file, line=line, function=name, cell=cell_number(file))


def traceback_origins(callers: int) -> Callable[[Any], Origin | None]:
    """Return a function from the traceback of an array to its allocation site, with the settings of now.

    Args:
        callers: The most callers of a site.
    """
    from ...compat.arrays import traceback_lines

    lines = UserLines()

    def origin(traceback: Any) -> Origin | None:
        place = lines.origin(traceback_lines(traceback))
        return place and replace(place, callers=place.callers[:callers])

    return origin


def code_origin(code: CodeType) -> Origin:
    """Return the file, the first line and the name of a function."""
    return Origin(
        file=code.co_filename,
        line=code.co_firstlineno,
        function=code.co_name,
        cell=cell_number(code.co_filename),
    )


def error_origin(error: BaseException) -> Origin | None:
    """Return the innermost line of user code in the traceback of an exception."""
    frames = [
        (f.f_code.co_filename, line, f.f_code.co_name) for f, line in traceback.walk_tb(error.__traceback__)
    ]
    lines = UserLines()
    return lines.origin(frame for frame in reversed(frames) if not lines.is_hidden(frame[0]))


def files_of(modules: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that checks whether a file belongs to one of some modules or packages."""
    folders: list[str] = []
    files: set[str] = set()
    for name in modules:
        module = sys.modules.get(name)
        if module is not None:
            folders += (os.path.join(path, "") for path in getattr(module, "__path__", ()))
            files.update(filter(None, [getattr(module, "__file__", None)]))
    names = "|".join(re.escape(name).replace(r"\.", "/") for name in modules)
    elsewhere = re.compile(rf"/(?:site|dist)-packages/(?:{names})(?:/|\.py$)")

    def is_of_module(file: str) -> bool:
        if file in files or file.startswith(tuple(folders)):
            return True
        return elsewhere.search(file.replace("\\", "/")) is not None

    return is_of_module


class Described(NamedTuple):
    """The name and the code of a jitted function."""

    name: str
    """Qualified name, such as ``Model.step`` or ``partial(step)``."""

    plain: str
    """Plain name, such as ``step``."""

    code: CodeType | None
    """Its code; None if it is not written in Python."""

    is_jax_own: bool
    """Whether the function belongs to JAX. It has no name then."""


def described(
    function: Any, is_jax_own: Callable[[str], bool], *, is_pmapped: bool | None = None
) -> Described:
    """Return the name and the code of a jitted function, without running the user's code.

    They belong to the outermost wrapped function outside JAX: for ``jit(grad(loss))``, to ``loss``. A
    decorator may copy the name of the function that it wraps; the code is then the wrapped function's.

    Args:
        function: A jitted function, or the function inside it.
        is_jax_own: A function that returns whether a file belongs to JAX.
        is_pmapped: Whether the function is in ``jax.pmap``; None if it tells.
    """
    from ...compat.jitted import is_pmapped as is_of_pmap

    layers = iter(wrapped_functions(function))
    around = "pmap({})" if (is_of_pmap(function) if is_pmapped is None else is_pmapped) else "{}"
    for layer in layers:
        if isinstance(layer, functools.partial):
            around = around.format("partial({})")
        elif not isinstance(layer, MethodType) and not _is_jitted(layer):
            code = _code(layer)
            if not (_is_of_jax(layer) if code is None else is_jax_own(code.co_filename)):
                name = _name(layer)
                for inner in layers:
                    if isinstance(inner, FunctionType) and _name(inner) == name:
                        code = code if is_jax_own(inner.__code__.co_filename) else inner.__code__
                return Described(around.format(name), name.rpartition(".")[2], code, False)
    return Described("", "", None, True)


def described_for_user(function: Any, is_hidden: Callable[[str], bool]) -> Described:
    """Return what ``described`` returns, without the libraries around the user's function.

    Without a function of the user's inside, the library's own is described. It has no code if it has another
    name there, as the functions of Equinox have.

    Args:
        function: A jitted function.
        is_hidden: A function that returns whether a file belongs to JAX or to a library that is hidden.
    """
    description = described(function, is_hidden)
    if description.is_jax_own:
        description = described(function, files_of(JAX_MODULES))
        if description.code is not None and is_hidden(description.code.co_filename):
            is_renamed = description.code.co_name not in (description.plain, "__call__", "__init__")
            return description._replace(code=None) if is_renamed else description
    return description


def wrapped_functions(function: Any) -> list[Any]:
    """Return a function and all functions that it wraps, outermost first, each once."""
    layers = [function]
    while (layer := _inner(layers[-1])) is not None and not any(layer is other for other in layers):
        layers.append(layer)
    return layers


def code_of(function: Any) -> CodeType | None:
    """Return the code that runs when a function is called; None for a wrapper that is not a function."""
    if isinstance(function, functools.partial | MethodType) or _is_jitted(function):
        return None
    return _code(function)


def _is_jitted(function: Any) -> bool:
    """Return whether ``jax.jit`` made a function."""
    from ...compat.jitted import jitted_types  # lines of a log or of a record need nothing of JAX

    return type(function) in jitted_types()


def _inner(layer: Any) -> Any:
    """Return the function that another one wraps; None if it wraps none."""
    if isinstance(layer, functools.partial):
        return layer.func
    if isinstance(layer, MethodType):
        return layer.__func__
    if _is_jitted(layer):
        return layer.__wrapped__
    # getattr could run a user's __getattr__.
    return inspect.getattr_static(layer, "__wrapped__", None)


def _code(layer: Any) -> CodeType | None:
    """Return the code that runs when an object is called; None if it is not written in Python."""
    if isinstance(layer, FunctionType):
        return layer.__code__
    # Calling a class runs its __init__, calling an instance the __call__ of its class.
    owner, name = (layer, "__init__") if isinstance(layer, type) else (type(layer), "__call__")
    method = inspect.getattr_static(owner, name, None)
    return method.__code__ if isinstance(method, FunctionType) else None


def _name(layer: Any) -> str:
    """Return the name of a function or a class; for another object, the name of its ``__call__``."""
    if isinstance(layer, np.ufunc):
        return layer.__name__
    is_named = isinstance(layer, FunctionType | BuiltinFunctionType | type)
    name = layer.__qualname__ if is_named else f"{type(layer).__qualname__}.__call__"
    return str(name).rpartition("<locals>.")[2]


def _is_of_jax(layer: Any) -> bool:
    named = layer if isinstance(layer, BuiltinFunctionType | type) else type(layer)
    return str(named.__module__).partition(".")[0] in JAX_MODULES
