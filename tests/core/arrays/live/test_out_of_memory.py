"""Out-of-memory errors, found in an exception chain."""

import weakref

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core.arrays.live.out_of_memory import KnownErrors, out_of_memory_errors

pytestmark = pytest.mark.once_per_version


def exhausted():
    """Return the error that JAX raises when the allocation of an array fails."""
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED") as raised:
        jnp.zeros(2**50, jnp.int8)
    return raised.value


def first_of(error):
    return next(out_of_memory_errors(error), None)


def raised_from_none(error):
    """Return an error whose traceback hides its context."""
    try:
        try:
            raise error
        except Exception:
            raise RuntimeError("no room") from None
    except RuntimeError as hiding:
        return hiding


def test_an_error_that_the_traceback_shows_is_found():
    error = exhausted()
    caused, handling, group = ValueError(), KeyError(), ExceptionGroup("several", [KeyError(), error])
    caused.__cause__ = error
    handling.__context__ = caused
    caused.__context__ = handling
    for outer in (error, caused, handling, group):
        assert first_of(outer) is error


def test_an_error_that_the_traceback_hides_is_not_found():
    error, other_cause = exhausted(), ValueError()
    assert raised_from_none(error).__context__ is error
    assert first_of(raised_from_none(error)) is None
    other_cause.__context__ = error
    other_cause.__cause__ = KeyError()
    assert first_of(other_cause) is None


@pytest.mark.parametrize("error_class", [ValueError, jax.errors.JaxRuntimeError])
def test_known_errors_are_recognized_and_not_kept_alive(error_class):
    class Payload:
        pass

    def error_with(payload):
        error = error_class("RESOURCE_EXHAUSTED: no room")
        error.payload = payload
        return error

    known, payload = KnownErrors(), Payload()
    error, other = error_with(payload), error_with(payload)
    known.add(error)
    assert error in known
    assert other not in known
    reference = weakref.ref(payload)
    del error, other, payload
    assert reference() is None
    assert error_with(None) not in known


@pytest.mark.parametrize(
    "text",
    [
        "RESOURCE_EXHAUSTED: Attempting to allocate 2.00G.",
        "Execution of replica 0 failed: RESOURCE_EXHAUSTED: no room",
        "INTERNAL: Buffer Definition Event: Error preparing computation: Out of memory allocating 70 bytes.",
    ],
)
def test_every_out_of_memory_message_of_xla_is_recognized(text):
    assert first_of(jax.errors.JaxRuntimeError(text)) is not None


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong"),
        jax.errors.JaxRuntimeError("INTERNAL: something else"),
        RuntimeError("my quota is RESOURCE_EXHAUSTED"),
        MemoryError(),
        KeyboardInterrupt(),
    ],
)
def test_other_errors_are_not_out_of_memory_errors(error):
    assert first_of(error) is None
