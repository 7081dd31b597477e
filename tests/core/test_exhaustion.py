"""Which errors say that a device has no memory left."""

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core.exhaustion import out_of_memory_in


def exhausted():
    """Return the error that jax raises when there is no room for an array."""
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED") as raised:
        jnp.zeros(2**50, jnp.int8)
    return raised.value


def test_the_error_of_jax_is_found_and_those_that_it_has_led_to():
    error = exhausted()
    caused, handling, group = ValueError(), KeyError(), ExceptionGroup("several", [KeyError(), error])
    caused.__cause__ = error
    handling.__context__ = caused
    caused.__context__ = handling
    for outer in (error, caused, handling, group):
        assert out_of_memory_in(outer) is error


@pytest.mark.parametrize(
    "text",
    [
        "RESOURCE_EXHAUSTED: Attempting to allocate 2.00G.",
        "Execution of replica 0 failed: RESOURCE_EXHAUSTED: no room",
        "INTERNAL: Buffer Definition Event: Error preparing computation: Out of memory allocating 70 bytes.",
    ],
)
def test_other_words_of_xla_are_known_too(text):
    assert out_of_memory_in(jax.errors.JaxRuntimeError(text)) is not None


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
    assert out_of_memory_in(error) is None
