"""Trackers leave the program undisturbed."""

import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import live_array_report, track_arrays
from tests.arrays import slow_program
from tests.growing import no_collector, on_first
from tests.threads import in_threads

pytestmark = pytest.mark.once_per_version


def test_between_its_steps_a_tracker_costs_nothing(no_arrays):
    """A tracked array has a single weak reference, without a callback."""
    old = jnp.ones((4,))
    with track_arrays() as growth, track_arrays():
        new = jnp.ones((4,))
        for _ in range(3):
            growth.step()
        for array in (old, new):
            assert [reference.__callback__ for reference in weakref.getweakrefs(array)] == [None]


@pytest.mark.own_process
def test_a_tracker_keeps_no_array_alive_and_adds_none(no_arrays):
    with no_collector():
        old = jnp.ones((4,))
        with track_arrays() as growth:
            new = jnp.ones((4,))
            references = [weakref.ref(old), weakref.ref(new)]
            alive = len(jax.live_arrays())
            for _ in range(3):
                growth.step()
            reports = [
                growth.report(),
                growth.report(collect=True, max_seconds=None),
                growth.report(referrers=True, max_seconds=None),
            ]
            assert len(jax.live_arrays()) == alive
            del old, new
            assert [reference() for reference in references] == [None, None]
    assert reports[0].new_count == 1


@pytest.mark.own_process
def test_a_tracker_does_not_name_itself_as_a_referrer(no_arrays):
    """Arrays that no name leads to have no path, so that any reference of the tracker would be found."""
    hidden = np.empty(4, object)  # the garbage collector does not see the elements of a NumPy array
    with track_arrays() as growth, track_arrays() as other:
        for step in range(4):
            hidden[step] = jnp.ones(10)
            growth.step()
            other.step()
        (found,) = growth.report(referrers=True, max_seconds=None).origins
    assert (found.count, found.holders) == (4, ())


@pytest.mark.needs_devices(8)  # on a single CPU device, a program with a callback runs synchronously
def test_a_tracker_never_waits_for_a_computation(no_arrays):
    with slow_program() as start, track_arrays() as growth:
        result = start()
        growth.step()
        report = growth.report(collect=True, max_seconds=None)
        assert not result.is_ready()
    assert report.new_count >= 1


def test_a_step_during_tracing_disturbs_nothing(no_arrays):
    with track_arrays() as growth:

        @jax.jit
        def double(x):
            growth.step()
            assert growth.report().steps == 1
            return 2 * x

        assert double(3.0) == 6
    assert growth.report().steps == 1


@pytest.mark.oldest_and_newest
@pytest.mark.needs_devices(8)  # takes seconds, so only once per JAX version
def test_reports_are_right_while_sixteen_threads_create_delete_and_step(no_arrays):
    threads, kept = 16, 4
    end = time.monotonic() + 2

    def work(number):
        mine = []
        is_late = False
        while not is_late:  # at least once, however late the thread begins
            is_late = time.monotonic() >= end
            mine += [jax.device_put(np.full(1000, number, np.float32)) for _ in range(2 * kept - len(mine))]
            growth.step()
            with track_arrays() as own:
                mine[0].delete()
                assert growth.report().origins
                own.report()
            del mine[:kept]
        return mine[:kept]

    with track_arrays() as growth:
        left = in_threads(work, range(threads))
    report = growth.report()
    assert (report.new_count, report.freed_count) == (threads * kept, 0)
    assert report.nbytes == live_array_report().device_nbytes == on_first(threads * kept * 4000)
    assert sum(map(len, left)) == threads * kept
