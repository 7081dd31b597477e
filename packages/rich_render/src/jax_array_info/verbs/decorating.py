"""A context manager as the decorator of a function of any kind."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

_F = TypeVar("_F", bound=Callable[..., Any])


def run_within(block: Callable[[], AbstractContextManager[object]], function: _F) -> _F:
    """Return a function of the same kind that runs within a block of its own at each call.

    That of a coroutine function or a generator is left when the body ends, not when the call returns.

    Args:
        block: Makes a context manager for one call.
        function: A function, coroutine function, generator function or asynchronous one.
    """
    if inspect.isasyncgenfunction(function):
        wrapper = _asynchronous_generator(block, function)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(block, function)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(block, function)
    else:
        wrapper = _plain(block, function)
    return cast("_F", functools.wraps(function)(wrapper))


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
