"""A context manager as the decorator of any callable."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])


def run_within(block: Callable[[], AbstractContextManager[object]], function: _F) -> _F:
    """Return a callable of the same kind that runs within a block of its own at each call.

    The block around a coroutine or a generator ends when its body does, not when the call returns. A Python
    function becomes another one; of any other callable, such as a jitted function, all attributes stay
    reachable, and as a method it binds as before.

    Args:
        block: Makes a context manager for one call.
        function: A function, coroutine function, generator function or asynchronous one; or any callable.
    """
    kinds = (inspect.isasyncgenfunction, inspect.iscoroutinefunction, inspect.isgeneratorfunction)
    makers = (_asynchronous_generator, _coroutine, _generator)
    called = function if _tells_its_kind(function) else type(function).__call__
    make = next((make for is_kind, make in zip(kinds, makers, strict=True) if is_kind(called)), _plain)
    run = make(block, function)
    if inspect.isfunction(function) or (make is not _plain and _tells_its_kind(function)):
        return cast("_F", functools.wraps(function)(run))
    return cast("_F", _Wrapped(block, run, function))


def _tells_its_kind(function: object) -> bool:
    """Return whether Python says of a callable itself, and not of its ``__call__``, what a call returns."""
    return inspect.isroutine(function) or isinstance(function, functools.partial)


class _Wrapped:
    """A callable other than a Python function, run within a block at each call."""

    __wrapped__: Callable[..., Any]

    def __init__(self, block: _Block, run: _Function, function: _Function) -> None:
        functools.update_wrapper(self, function, updated=())
        self._block = block
        self._run = run

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._run(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "__wrapped__":  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind as the callable does: a jitted function to the instance, a ``partial`` not at all."""
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
            # What ``yield from`` does of itself: what is sent and thrown in reaches the inner one.
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
