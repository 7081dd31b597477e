"""Arrays allocated and freed since a tracker was entered."""

import gc
import time
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import from_json, live_array_report, to_json, track_arrays
from jax_array_info_core.arrays.live import census
from jax_array_info_core.arrays.live import growth as tracker
from jax_array_info_core.errors import TrackerError
from tests import growing
from tests.arrays import mesh_of, sharded, slow_program
from tests.growing import born, elder, growth_of, make_cycles, no_collector, on_first
from tests.threads import in_threads

pytestmark = pytest.mark.once_per_version


def test_new_and_freed_arrays_are_grouped_by_allocation_site(no_arrays):
    old = elder()
    with track_arrays() as growth:
        new = born()
        del old[0]
        report = growth.report()
    came, went = growth_of(report, "born"), growth_of(report, "elder")
    assert (came.count, came.nbytes, came.freed_count, came.freed_nbytes) == (2, 80, 0, 0)
    assert (went.count, went.nbytes, went.freed_count, went.freed_nbytes) == (0, 0, 1, 20)
    assert (came.content, went.content) == ("float32[10]", "float32[5]")
    assert came.origin.file == growing.__file__
    assert came.origin.callers[0].function == "test_new_and_freed_arrays_are_grouped_by_allocation_site"
    assert (report.new_count, report.freed_count, report.count_before, report.count) == (2, 1, 3, 4)
    assert (report.nbytes_before, report.nbytes) == (on_first(60), on_first(120))
    assert (report.nbytes_source, report.origins_known, report.steps) == ("profile", "known", 0)
    assert len(new) == 2


def test_arrays_in_host_memory_are_counted_apart_and_share_nothing(no_arrays):
    device = jax.local_devices()[0]
    if "pinned_host" not in {memory.kind for memory in device.addressable_memories()}:
        pytest.skip("no pinned_host memory on the CPU in this version of JAX")
    in_host = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    with track_arrays() as growth:
        array = jax.device_put(jnp.zeros(256), in_host)
        report = growth.report()
    assert array.sharding.memory_kind == "pinned_host"
    assert report.nbytes == report.nbytes_before == on_first(0)
    assert (report.host_nbytes_before, report.host_nbytes) == ((), ((device.id, 1024),))
    assert report.host_growth == (((device.id,), 1024, 1024),)
    assert not report.is_shared
    assert from_json(to_json(report)) == report


def test_arrays_allocated_and_freed_in_between_do_not_appear(no_arrays):
    with track_arrays() as growth:
        for _ in range(3):
            born()
            growth.step()
    assert growth.report().origins == ()


def test_deleted_and_donated_arrays_count_as_freed(no_arrays):
    deleted, donated = elder(2)
    with track_arrays() as growth:
        deleted.delete()
        result = jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
        report = growth.report()
    assert growth_of(report, "elder").freed_count == (2 if donated.is_deleted() else 1)
    assert report.new_count == 1
    assert result is not None


def test_a_report_after_the_block_is_about_the_moment_of_the_call(no_arrays):
    with track_arrays() as growth:
        new = born()
    assert growth.report().new_count == 2
    del new
    assert growth.report().new_count == 0


@pytest.mark.needs_devices(8)
def test_shared_buffers_are_counted_once_per_array_and_once_per_device(no_arrays):
    mesh = mesh_of((8,), ("a",))
    with track_arrays() as growth:
        arrays = [sharded((8, 100), mesh, "a"), sharded((8, 100), mesh)]
        arrays += [jnp.ones((100,))]
        alias = jax.device_put(arrays[2], jax.devices()[0])
        report = growth.report()
    assert alias is not None
    assert report.new_count == 4
    assert sum(origin.nbytes for origin in report.origins) == 400 + 3200 + 400 + 400
    assert [nbytes for _, nbytes in report.nbytes] == [400 + 3200 + 400] + [400 + 3200] * 7


@pytest.mark.needs_devices(8)
def test_views_are_counted_apart_and_have_no_bytes(no_arrays):
    mesh = mesh_of((8,), ("a",))
    old = sharded((8, 100), mesh, "a")
    with track_arrays() as growth:
        kept = []
        for _ in range(3):
            kept.append(sharded((8, 100), mesh, "a"))
            shards = kept[-1].addressable_shards
            growth.step()
        shards = old.addressable_shards
        report = growth.report()
        (found,) = report.origins
        assert (found.count, found.nbytes_per_step) == (3, 3200)
        assert (report.count_before, report.count, report.new_count, report.view_count) == (1, 4, 3, 32)
        del old, found
        # The views of the dropped array own its memory now.
        assert growth.report(collect=True, max_seconds=None).view_count == 24
        assert growth.report().new_count == 3 + len(shards)


def test_without_allocation_sites_arrays_are_grouped_by_dtype_and_shape(no_arrays, monkeypatch):
    monkeypatch.setattr(census, "traceback_of", lambda array: None)
    monkeypatch.setattr(census, "has_tracebacks", lambda: False)
    with track_arrays() as growth:
        arrays = [*born(), *elder()]
        report = growth.report()
    assert report.origins_known == "not told by this jax"
    assert [(one.origin, one.content, one.count) for one in report.origins] == [
        (None, "float32[10]", 2),
        (None, "float32[5]", 3),
    ]
    assert len(arrays) == 5


def test_a_tracker_that_was_not_entered_raises_an_error_with_the_fix():
    growth = track_arrays()
    for method in (growth.step, growth.report):
        with pytest.raises(TrackerError, match="with track_arrays"):
            method()


def test_trackers_may_be_nested_and_entered_again(no_arrays):
    with track_arrays() as outer:
        first = born(1)
        with track_arrays() as inner:
            second = born(1)
            assert (outer.report().new_count, inner.report().new_count) == (2, 1)
        with inner:
            assert inner.report().new_count == 0
    assert len(first + second) == 2


# Referrers


def leaked(keep, steps=4, **options):
    """Return the report on a loop that keeps an array of each step."""
    with track_arrays() as growth:
        for step in range(steps):
            keep(step, jnp.ones((10,)))
            growth.step()
        return growth.report(max_seconds=None, **options)


def test_without_a_search_or_a_rise_no_referrer_is_named(no_arrays):
    kept = []
    asked = leaked(lambda step, loss: kept.append(loss), steps=1, referrers=True)
    rose = leaked(lambda step, loss: kept.append(loss))
    assert ([origin.holder for origin in asked.origins], asked.holders) == ([None], "complete")
    assert (asked.origins[0].count_per_step, asked.origins[0].nbytes_per_step) == (None, None)
    assert ([origin.holder for origin in rose.origins], rose.holders) == ([None], "not asked")


@pytest.mark.own_process
def test_what_holds_most_of_the_rising_arrays_is_named(no_arrays):
    first, losses = [], []
    report = leaked(lambda step, loss: (losses if step else first).append(loss), referrers=True)
    assert report.origins[0].holder.rpartition(" ")[2] == "losses[0]"
    assert first
    assert report.holders == "complete"


@pytest.mark.own_process
def test_the_oldest_arrays_of_a_site_are_searched_and_each_site_for_itself(no_arrays, monkeypatch):
    monkeypatch.setattr(tracker, "_MOST_SEARCHED", 2)
    small, large, later = [], [], []
    with track_arrays() as growth:
        for step in range(5):
            (small if step < 2 else later).append(jnp.ones(10))
            (large if step < 2 else later).append(jnp.ones(100))
            growth.step()
        report = growth.report(referrers=True, max_seconds=None)
    named = [origin.holder.rpartition(" ")[2] for origin in report.origins]
    assert named == ["large[0]", "small[0]"]


# Garbage collection


def test_arrays_that_only_the_collector_frees_are_reported(no_arrays):
    with no_collector():
        make_cycles(1)
        with track_arrays() as growth:
            make_cycles(2)
            kept = born()
            assert growth_of(growth.report(), "make_cycles").count == 2
            report = growth.report(collect=True, max_seconds=None)
    (freed,) = report.freed_by_collection
    assert (freed.origin.function, freed.count, freed.nbytes) == ("make_cycles", 3, 1200)
    assert (freed.content, freed.caller_count) == ("float32[100]", 2)
    assert report.collected
    # The rest of the report is about the arrays that are alive after the collection.
    assert (growth_of(report, "make_cycles").count, growth_of(report, "make_cycles").freed_count) == (0, 1)
    assert report.new_count == len(kept)
    assert report.nbytes == on_first(80)


def test_a_leak_through_cycles_is_reported_even_when_the_collection_frees_it(no_arrays):
    with no_collector(), track_arrays() as growth:
        for _ in range(3):
            make_cycles(1)
            growth.step()
        report = growth.report(collect=True, max_seconds=None)
    (leaked,) = report.origins
    assert (leaked.origin.function, leaked.count, leaked.content) == ("make_cycles", 0, None)
    assert (leaked.rose_every_step, leaked.nbytes_per_step) == (True, 400)
    assert report.freed_by_collection[0].count == 3


def test_the_search_for_referrers_tells_arrays_in_cycles(no_arrays):
    with no_collector(), track_arrays() as growth:
        for _ in range(3):
            make_cycles(1)
            growth.step()
        (leaked,) = growth.report(referrers=True, max_seconds=None).origins
        incomplete = growth.report(referrers=True, max_seconds=0)
        gc.collect()
    assert (leaked.holder, leaked.garbage_count) == (None, 3)
    assert (incomplete.holders, incomplete.origins[0].garbage_count) == ("incomplete", 0)


resurrected = []


class Undying:
    """An object that its own ``__del__`` resurrects."""

    def __init__(self, array):
        self.me = self
        self.array = array

    def __del__(self):
        resurrected.append(self)


def test_arrays_of_a_resurrected_object_are_alive(no_arrays):
    with no_collector():
        Undying(jnp.ones(7))
        with track_arrays() as growth:
            Undying(jnp.ones(8))
            make_cycles(2)
            report = growth.report(collect=True, max_seconds=None)
        (freed,) = report.freed_by_collection
        assert (freed.origin.function, freed.count) == ("make_cycles", 2)
        assert (report.count_before, report.count, report.new_count, report.freed_count) == (1, 2, 1, 0)
        assert growth.report().freed_count == 0
        resurrected.clear()
        gc.collect()


def test_the_collector_runs_once_with_collect_and_never_without(no_arrays, monkeypatch):
    collect, runs = gc.collect, []
    monkeypatch.setattr(gc, "collect", lambda *generation: runs.append(generation) or collect(*generation))
    with track_arrays() as growth:
        growth.step()
        report = growth.report()
        assert (runs, report.collected, report.freed_by_collection) == ([], False, ())
        report = growth.report(collect=True, max_seconds=None)
    assert (runs, report.collected, report.freed_by_collection) == ([()], True, ())


# Trackers leave the program undisturbed


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
    assert (found.count, found.holder) == (4, None)


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


@pytest.mark.newest
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
