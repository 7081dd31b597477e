"""Context managers that tell something about an error and let it pass, also as decorators."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable
from types import MethodType, TracebackType
from typing import Any, Self, TextIO, TypeVar, cast

from jax_array_info_core.arrays.live.out_of_memory import KnownErrors, shown_errors
from jax_array_info_core.compat.jitted import is_jitted
from jax_array_info_core.errors import UnsupportedValueError

_F = TypeVar("_F", bound=Callable[..., Any])


class Around:
    """A block that tells something about the error that ends it. The error propagates unchanged."""

    name: str
    """Name of the function that returns it."""

    lines: str
    """Lines to write it around, instead of decorating what it cannot decorate."""

    kinds = "functions, coroutine functions"
    """Kinds of functions that it decorates, apart from jitted functions."""

    def __init__(self, file: TextIO | None) -> None:
        """Store the file to print to.

        Raises:
            UnsupportedValueError: (a ValueError) If ``file`` is neither a file nor None.
        """
        if file is not None and not hasattr(file, "write"):
            fix = f": write @{self.name}() with parentheses" if callable(file) else ""
            raise UnsupportedValueError(f"expected a file to print to, got {type(file)}{fix}")
        self.file = file
        # One entry per open block, as the same object can be entered again.
        self._handled: list[KnownErrors] = []

    def again(self) -> Self:
        """Return a block of its own for one call."""
        return type(self)(self.file)

    def tell(self, error: BaseException, handled: KnownErrors) -> None:
        """Tell something about an error, apart from errors that were handled already. Raise nothing."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        handled = KnownErrors()
        # A user's exception may have any attributes. The block runs all the same.
        with contextlib.suppress(Exception):
            for error in shown_errors(sys.exception()):
                handled.add(error)
        self._handled.append(handled)

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        handled = self._handled.pop()
        if error is not None:
            self.tell(error, handled)

    def __call__(self, function: _F) -> _F:
        """Return a function of the same kind that runs in such a block.

        Raises:
            TypeError: If ``function`` is not a function, a coroutine function or a jitted
                function, as methods and partials are not; or a generator that is not supported.
        """
        run: Callable[..., Any]
        if isinstance(function, _Jitted) or is_jitted(function):
            return cast("_F", _Jitted(self, function))
        is_generator = inspect.isgeneratorfunction(function)
        is_refused = inspect.isasyncgenfunction(function) or (is_generator and "generator" not in self.kinds)
        if not inspect.isfunction(function) or is_refused:
            what = f"the generator function {function.__qualname__}" if is_refused else type(function)
            raise TypeError(
                f"cannot decorate {what}, only {self.kinds} and jitted functions: write `with {self.name}():`"
                f" around {self.lines}"
            )
        if inspect.iscoroutinefunction(function):

            async def run(*args: Any, **kwargs: Any) -> Any:
                with self.again():
                    return await function(*args, **kwargs)
        elif is_generator:

            def run(*args: Any, **kwargs: Any) -> Any:
                with self.again():
                    return (yield from function(*args, **kwargs))
        else:

            def run(*args: Any, **kwargs: Any) -> Any:
                with self.again():
                    return function(*args, **kwargs)

        return cast("_F", functools.wraps(function)(run))


class _Jitted:
    """A jitted function with a context around each call. Its attributes stay available."""

    __wrapped__: Callable[..., Any]

    def __init__(self, block: Around, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function, updated=())
        self._block = block

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        with self._block.again():
            return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # not set yet while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind to the instance of a class, as functions do."""
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)
