"""Work that a report does once, without garbage collection."""

import contextlib
import gc
import sys
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.programs import program_report as in_file
from jax_array_info_core.programs import report_parts
from jax_array_info_core.xla.hlo.dataflow import Dataflow
from tests.arrays import mesh_of
from tests.programs import abstract

pytestmark = pytest.mark.newest


@pytest.fixture
def kept():
    """Leave the collector as it was, whatever a test does."""
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_pause_ends_as_it_began(is_enabled, error):
    (gc.enable if is_enabled else gc.disable)()
    with contextlib.suppress(BaseException), in_file.paused():
        assert not gc.isenabled()
        with in_file.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
        if error is not None:
            raise error
    assert gc.isenabled() == is_enabled


@pytest.mark.usefixtures("kept")
def test_an_interrupt_of_a_report_enables_the_collector_again(monkeypatch):
    def interrupted(*_):
        assert not gc.isenabled()
        raise KeyboardInterrupt

    monkeypatch.setattr(report_parts, "program_devices", interrupted)
    gc.enable()
    with pytest.raises(KeyboardInterrupt):
        program_report(lambda x: x + 1, jnp.ones(4))
    assert gc.isenabled()


@pytest.mark.usefixtures("kept")
def test_functions_are_traced_while_garbage_is_collected():
    seen = []

    def traced(x):
        seen.append(gc.isenabled())
        return x + 1

    gc.enable()
    program_report(traced, jnp.ones(4), steady=True)
    assert seen
    assert all(seen)


def test_a_report_with_a_timeline_connects_the_values_of_a_program_once(monkeypatch):
    made = []
    create = Dataflow.__init__

    def counted(self, module):
        made.append(module)
        create(self, module)

    monkeypatch.setattr(Dataflow, "__init__", counted)
    compiled = jax.jit(lambda x: jnp.fft.fft(x @ x.T)).lower(jnp.ones((8, 4))).compile()
    program_report(compiled, timeline=True)
    assert len(made) == 1


def calls_in_report(count):
    """Return the calls of each function in the report on as many arguments, whose outputs lie otherwise."""
    mesh = mesh_of((2, 2), ("data", "tensor"))
    shape = abstract(mesh, P("data"), (4, 4))
    function = jax.jit(
        lambda params: [one + 1 for one in params], out_shardings=NamedSharding(mesh, P(None, "tensor"))
    )
    compiled = function.lower([shape] * count).compile()
    calls = Counter()

    def counted(frame, event, _argument):
        if event == "call":
            calls[frame.f_code] += 1

    sys.setprofile(counted)
    try:
        report = program_report(compiled)
    finally:
        sys.setprofile(None)
    assert len(report.arguments) == count
    assert len(report.outputs) in (count, 0)  # old versions of JAX compile without telling them
    return calls


@pytest.mark.needs_devices(4)
def test_no_function_of_a_report_is_called_more_often_for_each_argument_where_there_are_more():
    """Each function by itself: 80 arguments show what the sum of all calls shows only for thousands."""
    calls_in_report(10)  # imports, and what is cached
    few, many = calls_in_report(20), calls_in_report(80)
    assert sum(many.values()) > 80 * 500
    assert [code for code, calls in many.items() if calls > 1.1 * 4 * max(few[code], 20)] == []
