"""Options that several functions take, each written once: its type and its meaning in a TypedDict."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])
_PLACE = re.compile(r"^( *)\*\*options: .*\n", re.MULTILINE)


def takes(options: type, **defaults: Any) -> Callable[[_F], _F]:
    """Return a decorator for functions that take the keys of a TypedDict as keyword arguments.

    Such a function has a parameter ``**options: Unpack[…]``, which has all options when it is called. Its
    signature and its docstring have the options in place of it, as if they were written there.

    Args:
        options: The TypedDict. Its docstring has a section ``Args``.
        **defaults: Defaults of options; that of the others is None.
    """
    types = {name: getattr(hint, "__forward_arg__", hint) for name, hint in options.__annotations__.items()}
    defaults = {name: defaults.get(name) for name in types}
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation)
        for name, annotation in types.items()
    ]
    meanings = textwrap.dedent((options.__doc__ or "").partition("Args:\n")[2].rstrip(" "))

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            for name in kwargs:
                if name not in names:
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")
            return function(*args, **{**defaults, **kwargs})

        signature = inspect.signature(function)
        *parameters, _ = signature.parameters.values()
        first = [parameter for parameter in parameters if parameter.kind is not parameter.KEYWORD_ONLY]
        signature = signature.replace(parameters=[*first, *added, *parameters[len(first) :]])
        names = frozenset(signature.parameters)
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__doc__ = _PLACE.sub(lambda place: textwrap.indent(meanings, place[1]), function.__doc__ or "")
        return run  # type: ignore[return-value]

    return decorate
