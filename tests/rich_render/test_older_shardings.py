"""Arrays with the sharding classes of earlier versions of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import collect_reports, sharding_info, sharding_vis
from tests.core.geometry.layouts.test_layout import public_sharding

pytestmark = pytest.mark.needs_devices(8)


def test_an_array_with_a_positional_sharding_prints(capsys):
    positional = public_sharding("PositionalSharding")(np.array(jax.devices()[::-1][:8])).reshape(4, 2)
    array = jax.device_put(jnp.zeros((8, 4)), positional)
    sharding_info(array, "x")
    sharding_vis(array)
    out = capsys.readouterr().out
    assert "│ PositionalSharding: {devices=[4,2]" in out
    assert "│ axis 0 is sharded: CPU 7 contains 0:2 (1/4)" in out
    assert "│ axis 1 is sharded: CPU 7 contains 0:2 (1/2)" in out
    assert "│ CPU 7 │ CPU 6 │" in out


def test_an_array_with_a_pmap_sharding_prints(capsys):
    public_sharding("PmapSharding")
    array = jax.pmap(lambda x: x + 1)(jnp.zeros((8, 3)))
    sharding_info(array, "x")
    sharding_vis(array)
    out = capsys.readouterr().out
    assert type(array.sharding).__name__ in out
    assert "│ axis 0 is sharded: CPU 0 contains 0:1 (1/8)" in out
    assert all(f"CPU {device}" in out for device in range(8))


def test_an_array_with_a_positional_sharding_is_inspected_in_jit(capsys):
    positional = public_sharding("PositionalSharding")(np.array(jax.devices()[::-1][:8])).reshape(4, 2)
    array = jax.device_put(jnp.zeros((8, 4)), positional)
    with collect_reports() as reports:
        jax.jit(lambda x: sharding_info(x) or x * 2)(array)
    [report] = reports
    assert report.source == "compiler"
    assert report.layout.index_of(7) == (slice(0, 2), slice(0, 2))
