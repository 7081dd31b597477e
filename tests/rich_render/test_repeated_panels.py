"""Equal panels of one call, as in the layers of a model that are not scanned."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import collect_reports, sharding_info, tap_sharding
from jax_array_info_core.arrays.traced import inspections
from tests.contexts import VERSION

pytestmark = pytest.mark.needs_devices(8)
heard = pytest.mark.skipif(VERSION < (0, 5), reason="JAX 0.4 does not tell of compilations that fail")


def look(x, name):
    sharding_info(x, name)
    return x


LOOKS = {"tap_sharding": tap_sharding, "sharding_info": look}


def titles(capfd):
    return [line.strip("╭─╮ ") for line in capfd.readouterr().out.splitlines() if line.startswith("╭")]


def layers(look, name="hidden", specs=(None,) * 4):
    def function(x):
        for spec in specs:
            x = jnp.sin(x)
            x = x if spec is None else jax.lax.with_sharding_constraint(x, spec)
            x = look(x, name)
        return x

    return function


@heard
@pytest.mark.parametrize(("name", "title"), [("hidden", "hidden ×4, each"), (None, "×4, each")])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_equal_panels_of_one_call_are_printed_once(look, name, title, array, capfd):
    for one in (array, jnp.ones((8, 4))):  # on 8 devices, and on 1
        jax.jit(layers(look, name))(one)
        assert titles(capfd) == [title]


@heard
def test_each_compilation_prints_its_panels(array, capfd):
    lowered = jax.jit(layers(tap_sharding)).lower(array)
    for options in (None, {"xla_llvm_disable_expensive_passes": True}):  # JAX caches the same options
        lowered.compile(options)
        assert titles(capfd) == ["hidden ×4, each"]


@heard
def test_panels_that_differ_are_printed_in_their_order(mesh, array, capfd):
    rows, columns = NamedSharding(mesh, P("a")), NamedSharding(mesh, P(None, "b"))
    jax.jit(layers(tap_sharding, specs=(rows, columns, rows, rows)))(array)
    out = capfd.readouterr().out
    assert [line.strip("│ ") for line in out.splitlines() if "Sharding:" in line] == [
        "NamedSharding: P('a',)",
        "NamedSharding: P(None, 'b')",
    ]
    assert out.count("hidden ×3, each") == 1


def test_panels_of_several_calls_are_printed_each(array, capfd):
    jax.jit(lambda x: tap_sharding(tap_sharding(x + 1, "y") * 2, "y"))(array)
    assert titles(capfd) == ["y", "y"]


def test_every_report_is_collected(array, capfd):
    with collect_reports() as reports:
        jax.jit(layers(tap_sharding))(array)
    assert [report.name for report in reports] == ["hidden"] * 4
    assert titles(capfd) == []


def fail(_):
    raise RuntimeError("the compilation fails")


def test_a_failed_compilation_loses_no_panel(array, capfd):
    def function(x):
        x = layers(tap_sharding, specs=(None,) * 2)(x)
        jax.debug.inspect_array_sharding(x * 2, callback=fail)
        return x

    def four(x):
        for _ in range(2):
            x = function(x)
        return x

    with pytest.raises(Exception, match="the compilation fails"):
        jax.jit(four)(array)
    assert titles(capfd) == (["hidden ×2, each"] if VERSION >= (0, 5) else ["hidden"] * 2)


def test_every_panel_is_printed_where_no_end_of_a_compilation_is_heard(array, capfd, monkeypatch):
    monkeypatch.setattr(inspections, "compilations_are_heard", lambda: False)
    jax.jit(layers(tap_sharding))(array)
    assert titles(capfd) == ["hidden"] * 4
