"""Decoration of any callable with a context manager."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])


def run_within(block: Callable[[], AbstractContextManager[object]], function: _F) -> _F:
    """Return a callable of the same kind that runs each call in a context of its own.

    The context of a coroutine or a generator ends with its body, not when the call returns. A Python function
    becomes another Python function. Another callable, such as a jitted function, is wrapped: its attributes
    stay available, and it binds as a method as before.

    Args:
        block: Function that returns the context manager of one call.
        function: A function, coroutine function, generator function, asynchronous generator function, or any
            other callable.
    """
    checks = (inspect.isasyncgenfunction, inspect.iscoroutinefunction, inspect.isgeneratorfunction)
    makers = (_asynchronous_generator, _coroutine, _generator)
    called = function if _is_inspectable(function) else type(function).__call__
    make = next((make for check, make in zip(checks, makers, strict=True) if check(called)), _plain)
    run = make(block, function)
    if inspect.isfunction(function) or (make is not _plain and _is_inspectable(function)):
        return cast("_F", functools.wraps(function)(run))
    return cast("_F", _Wrapped(block, run, function))


def _is_inspectable(function: object) -> bool:
    """Return whether ``inspect`` classifies the callable itself, and not its ``__call__``."""
    return inspect.isroutine(function) or isinstance(function, functools.partial)


class _Wrapped:
    """A callable that is not a Python function, with a context around each call."""

    __wrapped__: Callable[..., Any]

    def __init__(self, block: _Block, run: _Function, function: _Function) -> None:
        functools.update_wrapper(self, function, updated=())
        self._block = block
        self._run = run

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # not set yet while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind as the callable does: a jitted function binds to the instance, a ``partial`` does not."""
        bind = getattr(type(self.__wrapped__), "__get__", None)
        bound = self.__wrapped__ if bind is None else bind(self.__wrapped__, instance, owner)
        return self if bound is self.__wrapped__ else run_within(self._block, bound)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


_Block = Callable[[], AbstractContextManager[object]]
_Function = Callable[..., Any]


def _plain(block: _Block, function: _Function) -> _Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        with block():
            return function(*args, **kwargs)

    return run


def _coroutine(block: _Block, function: _Function) -> _Function:
    async def run(*args: Any, **kwargs: Any) -> Any:
        with block():
            return await function(*args, **kwargs)

    return run


def _generator(block: _Block, function: _Function) -> _Function:
    def run(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with block():
            return (yield from function(*args, **kwargs))

    return run


def _asynchronous_generator(block: _Block, function: _Function) -> _Function:
    async def run(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with block():
            generator: AsyncGenerator[Any, Any] = function(*args, **kwargs)
            # ``yield from`` does not exist here: forward sent values and thrown exceptions by hand.
            answer: Awaitable[Any] = generator.asend(None)
            while True:
                try:
                    value = await answer
                except StopAsyncIteration:
                    return
                try:
                    sent = yield value
                except GeneratorExit:
                    await generator.aclose()
                    raise
                except BaseException as error:
                    answer = generator.athrow(error)
                else:
                    answer = generator.asend(sent)

    return run
