"""Static values of the user's classes: nothing of theirs runs but a hash, and equal hashes are told."""

import functools
import signal
from dataclasses import dataclass

import jax
import numpy as np
import pytest

from jax_array_info_core import watch_compiles
from tests.callers import is_of_this_package

pytestmark = pytest.mark.once_per_version

X = np.ones(3, np.float32)


def stepped():
    return jax.jit(lambda x, n: x * 53, static_argnums=1)


def reasons(step, *calls):
    """Return the reasons of the compilations of some calls."""
    with watch_compiles() as watch:
        for call in calls:
            step(*call)
    return [one.reason for one in watch.compilations]


def test_no_property_of_the_users_classes_runs():
    """A class may give its instances another ``__class__``, or count how often they are read."""
    called = set()

    class Noted:
        @property
        def __class__(self):
            if is_of_this_package():
                called.add("class")
            return Noted

        def __getattribute__(self, name):
            if is_of_this_package():
                called.add(name)
            return object.__getattribute__(self, name)

    @dataclass(frozen=True)
    class Config(Noted):
        rate: float

    def made(value):
        return jax.jit(lambda x: x if value is None else x * 59)

    step = stepped()
    with watch_compiles() as watch:
        for rate in (1.0, 2.0):
            step(X, Config(rate))
            step(X, (Noted(), functools.partial(max, Noted())))
            made(Noted())(X)
            made((Config(rate), Noted()))(X)
    assert called == {"rate"}  # the hash of the dataclass reads it
    assert watch.count >= 6


class SameHash:
    """A class whose values all have one hash."""

    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return 7

    def __eq__(self, other):
        return self.value == other.value


def test_a_static_argument_of_equal_hash_may_be_what_differs():
    words = ", or a static argument of equal hash differs"
    for make in (SameHash, lambda value: (3, SameHash(value))):
        found = reasons(stepped(), (X, make(1)), (X, make(2)))
        assert found[1].startswith("nothing visible differs: ")
        assert found[1].endswith(words)
    step = stepped()
    step(X, 3)
    with watch_compiles() as watch:
        for _ in range(2):
            jax.clear_caches()
            step(X, 3)
    assert watch.compilations[1].reason.startswith("nothing visible differs: ")
    assert not watch.compilations[1].reason.endswith(words)


class Raising:
    """A class whose hash raises once it was asked often enough."""

    def __init__(self, error):
        self.error, self.is_armed = error, False

    def __hash__(self):
        if self.is_armed:
            raise self.error  # a class: a value would keep the arrays of its traceback
        return 7


def armed(x, n):
    """Arm a static value when it is traced: JAX has hashed it before."""
    n.is_armed = True
    return x * 61


class Ending(BaseException):
    """An exception like those of asyncio and of test runners."""


@pytest.mark.newest  # older JAX hashes again itself
@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, Ending, RuntimeError])
def test_an_exception_of_the_users_class_never_ends_the_call(error):
    value = Raising(error)
    with watch_compiles() as watch:
        try:
            jax.jit(armed, static_argnums=1)(X, value)
        finally:
            value.is_armed = False
    assert watch.count == 1


@pytest.mark.newest
def test_ctrl_c_and_the_exception_of_a_signal_handler_go_on():
    """The program ends on a signal that comes while a call is read."""

    class Signaled(Raising):
        def __hash__(self):
            if self.is_armed:
                signal.raise_signal(self.error)
            return 7

    def leave(number, frame):
        raise SystemExit(number)

    before = signal.signal(signal.SIGUSR1, leave)
    try:
        for number, error in ((signal.SIGUSR1, SystemExit), (signal.SIGINT, KeyboardInterrupt)):
            with watch_compiles(), pytest.raises(error):
                jax.jit(armed, static_argnums=1)(X, Signaled(number))
    finally:
        signal.signal(signal.SIGUSR1, before)
