"""Reference paths through objects of JAX, which differ between its versions."""

import jax
import jax.numpy as jnp
import pytest

from tests.core.arrays.holders.finding import make_step, path_of

pytestmark = pytest.mark.once_per_version


def test_a_referrer_of_a_prng_key_refers_to_its_uint32_array():
    keys = {"dropout": jax.random.key(0)}
    name = test_a_referrer_of_a_prng_key_refers_to_its_uint32_array.__name__
    arrays = [array for array in jax.live_arrays() if array is keys["dropout"]._base_array]
    assert path_of(arrays) == f"{name}() local keys['dropout']"


def test_the_closure_of_a_jitted_function_has_the_path_of_the_function():
    arrays = [jnp.ones(3)]
    step = jax.jit(make_step(arrays[0]))
    step(arrays[0])
    assert path_of(arrays) == "closure of make_step.<locals>.step: params"
    assert step


def test_the_residuals_of_a_vjp_are_named_by_the_variable_of_the_backward_function():
    # The residuals are in functions and objects of JAX.
    array = jnp.arange(7.0)
    sine, back = jax.vjp(jnp.sin, array)
    others = [a for a in jax.live_arrays() if a.shape == (7,) and a is not array and a is not sine]
    assert any(" local back" in path_of([others.pop()]) for _ in range(len(others)))
    assert back


def test_an_array_without_a_python_referrer_has_no_path():
    assert path_of([jnp.ones(3)]) is None


def test_jax_does_not_count_as_a_referrer():
    jax.kept = jnp.ones(3)
    try:
        assert path_of([jax.kept]) is None
    finally:
        del jax.kept


def test_a_constant_of_a_jitted_function_is_named_by_the_function():
    """The program keeps the array, although no variable has it any more."""

    class Trainer:
        def __init__(self):
            self.params = jnp.ones(3)

        def make_step(self):
            return jax.jit(lambda x: x + self.params)

    trainer = Trainer()
    step = trainer.make_step()
    step(jnp.ones(3))
    arrays = [trainer.params]
    trainer.params = jnp.zeros(3)
    line = Trainer.make_step.__code__.co_firstlineno + 1
    assert path_of(arrays) == f"constant of jit(<lambda>) at test_jax_objects.py:{line}"
    assert step
