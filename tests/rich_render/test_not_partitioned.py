"""Functions that XLA does not partition, and transformations with rules of their own."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse

from jax_array_info import array_report, collect_reports, sharding_info, tap_sharding
from tests.documents import run_python

REDUCER = "a reducer sees single elements"


def look(x):
    sharding_info(x)
    return x


@pytest.mark.own_process
@pytest.mark.needs_devices(8)
def test_an_inspection_where_xla_does_not_partition_leaves_the_process_alive():
    program = Path(__file__).with_name("not_partitioned.py").read_text(encoding="utf-8")
    lines = [line.split("|") for line in run_python(program).splitlines()]
    assert len(lines) == 2 * 9 + 2
    for name, *reasons in lines:
        if name == "jet":
            assert reasons == ["jax.experimental.jet computes Taylor coefficients"]
        elif name in ("shared", "inlined"):
            assert REDUCER in reasons
        else:
            assert reasons == [REDUCER]


def test_a_value_in_a_reducer_has_an_unknown_sharding():
    x, returned = jnp.arange(6.0), []

    def add(a, b):
        returned.append(array_report(a + b))
        return tap_sharding(look(a + b))

    with collect_reports() as printed:
        assert jax.lax.reduce(x, 0.0, add, (0,)) == x.sum()
    assert len(printed) == 2 * len(returned) > 0
    for report in (*returned, *printed):
        assert (report.source, report.unknown_because) == ("unknown", REDUCER)


@pytest.mark.parametrize("function", [look, tap_sharding])
@pytest.mark.parametrize("sparse_class", [sparse.BCOO, sparse.BCSR])
def test_an_inspection_leaves_a_sparse_array_unchanged(function, sparse_class):
    dense = jnp.eye(3)
    array = sparse_class.fromdense(dense)
    with collect_reports() as reports:
        looked = sparse.sparsify(lambda array: function(array) @ dense)(array)
    np.testing.assert_array_equal(looked, dense)
    assert [report.unknown_because for report in reports] == [
        "jax.experimental.sparse keeps it as several arrays"
    ]


@pytest.mark.parametrize("function", [look, tap_sharding])
def test_an_inspection_consumes_no_prng_key(function):
    with jax.debug_key_reuse(True), collect_reports() as reports:
        draw = jax.jit(lambda key: jax.random.normal(function(key)))
        key = jax.random.key(0)
        draw(key)
        with pytest.raises(jax.errors.KeyReuseError):
            draw(key)
        key = jax.random.key(1)
        jax.jit(lambda key: (function(key), 1)[1])(key)
        jax.random.normal(key)
        keys = jax.random.split(jax.random.key(2), 3)
        drawn = jax.vmap(lambda key: jax.random.normal(function(key)))(keys)
    np.testing.assert_array_equal(drawn, jax.vmap(jax.random.normal)(jax.random.split(jax.random.key(2), 3)))
    assert {report.dtype for report in reports} == {"key<fry>"}
