"""Functions of a compiled call as plain records: their code, and the values that are bound to them."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from ..arrays.paths import key_text
from ..origins.function_names import code_of
from .statics import parts_of


def codes_of(functions: Sequence[Any]) -> tuple[int, ...]:
    """Return a number for the code of each function: equal for function objects of one definition."""
    codes = [code_of(function) for function in functions]
    return tuple(hash(_identity(code)) for code in codes if code is not None)


def bound_of(functions: Sequence[Any]) -> dict[tuple[int, str], str]:
    """Return the text of each plain value that is bound to functions, by number of the function and path.

    Bound are the arguments of a partial, defaults, and variables of an enclosing function. An array has its
    class only.
    """
    return {
        (number, name + path): text
        for number, function in enumerate(functions)
        for name, value in _bound(function)
        for path, text in parts_of(value).items()
    }


def _identity(code: CodeType) -> Hashable:
    constants = tuple((type(one), one) for one in code.co_consts)
    return code.co_filename, code.co_code, constants, code.co_names, tuple(code.co_positions())


def _bound(function: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(function, functools.partial):
        names = _parameters(function.func)
        for number, value in enumerate(function.args):
            yield names[number] if number < len(names) else f"argument {number}", value
        for name, value in function.keywords.items():
            yield key_text(name), value
    elif isinstance(function, FunctionType):
        defaults = function.__defaults__ or ()
        yield from zip(_parameters(function)[-len(defaults) :], defaults, strict=False)
        yield from (function.__kwdefaults__ or {}).items()
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
            try:
                yield name, cell.cell_contents
            except ValueError:
                continue  # not assigned yet


def _parameters(function: Any) -> tuple[str, ...]:
    """Return the names of the parameters by position; none for another object than a function."""
    if not isinstance(function, FunctionType):
        return ()
    return function.__code__.co_varnames[: function.__code__.co_argcount]
