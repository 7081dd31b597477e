import jax
import pytest


@pytest.fixture(scope="module")
def devices():
    """Start JAX's devices, for which a recorder waits."""
    return jax.devices()
