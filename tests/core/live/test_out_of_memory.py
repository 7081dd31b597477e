"""Which errors say that a device has no memory left."""

import weakref

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core.live.out_of_memory import KnownErrors, out_of_memory_errors


def exhausted():
    """Return the error that jax raises when there is no room for an array."""
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED") as raised:
        jnp.zeros(2**50, jnp.int8)
    return raised.value


def first_of(error):
    return next(out_of_memory_errors(error), None)


def raised_from_none(error):
    """Return an error whose traceback hides that another was being handled."""
    try:
        try:
            raise error
        except Exception:
            raise RuntimeError("no room") from None
    except RuntimeError as hiding:
        return hiding


def test_the_error_of_jax_is_found_where_a_traceback_shows_it():
    error = exhausted()
    caused, handling, group = ValueError(), KeyError(), ExceptionGroup("several", [KeyError(), error])
    caused.__cause__ = error
    handling.__context__ = caused
    caused.__context__ = handling
    for outer in (error, caused, handling, group):
        assert first_of(outer) is error


def test_what_a_traceback_hides_is_not_found():
    error, other_cause = exhausted(), ValueError()
    assert raised_from_none(error).__context__ is error
    assert first_of(raised_from_none(error)) is None
    other_cause.__context__ = error
    other_cause.__cause__ = KeyError()
    assert first_of(other_cause) is None


@pytest.mark.parametrize("kind", [ValueError, jax.errors.JaxRuntimeError])
def test_errors_are_known_again_and_not_kept_alive(kind):
    class Payload:
        pass

    def error_with(payload):
        error = kind("RESOURCE_EXHAUSTED: no room")
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
def test_other_words_of_xla_are_known_too(text):
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
def test_no_other_error_is_taken_for_one(error):
    assert first_of(error) is None
