"""What has come and gone since a moment, and what rises from step to step."""

import contextlib
import gc
import json
import threading
import time
import tracemalloc
import weakref

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest

from jax_array_info_core import (
    TrackerError,
    compat,
    from_json,
    json_schema,
    live_array_report,
    to_json,
    track_arrays,
)
from jax_array_info_core.rises import Level, Rises
from tests.arrays import mesh_of, sharded


@contextlib.contextmanager
def no_collector():
    """Keep the garbage collector from running by itself."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def on_first(nbytes):
    """Return the bytes on each device, where all is on the first."""
    first, *others = [device.id for device in jax.local_devices()]
    return ((first, nbytes), *((other, 0) for other in others))


def growth_of(report, function):
    """Return what the arrays have done that a function has made."""
    (found,) = [growth for growth in report.origins if growth.origin and growth.origin.function == function]
    return found


def born(number=2):
    return [jnp.ones((10,)) for _ in range(number)]


def elder(number=3):
    return [jnp.ones((5,)) for _ in range(number)]


# What has come and gone


def test_new_arrays_and_freed_ones_are_told_by_who_made_them(no_arrays):
    old = elder()
    with track_arrays() as growth:
        new = born()
        del old[0]
        report = growth.report()
    came, went = growth_of(report, "born"), growth_of(report, "elder")
    assert (came.count, came.nbytes, came.freed_count, came.freed_nbytes) == (2, 80, 0, 0)
    assert (went.count, went.nbytes, went.freed_count, went.freed_nbytes) == (0, 0, 1, 20)
    assert (came.content, went.content) == ("float32[10]", "float32[5]")
    assert came.origin.file == __file__
    assert (report.new_count, report.freed_count, report.count_before, report.count) == (2, 1, 3, 4)
    assert (report.nbytes_before, report.nbytes) == (on_first(60), on_first(120))
    assert (report.nbytes_source, report.origins_known, report.steps) == ("profile", "known", 0)
    assert len(new) == 2


def test_what_was_born_and_died_in_between_is_not_seen(no_arrays):
    with track_arrays() as growth:
        for _ in range(3):
            born()
            growth.step()
    assert growth.report().origins == ()


def test_deleted_and_donated_arrays_are_freed(no_arrays):
    deleted, donated = elder(2)
    with track_arrays() as growth:
        deleted.delete()
        result = jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
        report = growth.report()
    assert growth_of(report, "elder").freed_count == (2 if donated.is_deleted() else 1)
    assert report.new_count == 1
    assert result is not None


def test_an_array_in_the_place_of_a_freed_one_is_new(no_arrays):
    old = born(50)
    ids = {id(array) for array in old}
    with track_arrays() as growth:
        del old
        new = born(50)
        (found,) = growth.report().origins
    assert ids & {id(array) for array in new}, "Python has used no id again, so this test shows nothing"
    assert (found.count, found.freed_count) == (50, 50)


def test_a_report_after_the_block_is_about_then(no_arrays):
    with track_arrays() as growth:
        new = born()
    assert growth.report().new_count == 2
    del new
    assert growth.report().new_count == 0


@pytest.mark.needs_devices(8)
def test_bytes_are_those_of_a_device_and_what_arrays_share_is_there_once(no_arrays):
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


def test_without_tracebacks_arrays_are_put_together_by_dtype_and_shape(no_arrays, monkeypatch):
    monkeypatch.setattr(compat, "traceback_of", lambda array: None)
    monkeypatch.setattr(compat, "tells_tracebacks", lambda: False)
    with track_arrays() as growth:
        arrays = [*born(), *elder()]
        report = growth.report()
    assert report.origins_known == "not told by this jax"
    assert [(one.origin, one.content, one.count) for one in report.origins] == [
        (None, "float32[10]", 2),
        (None, "float32[5]", 3),
    ]
    assert len(arrays) == 5


def test_a_tracker_that_was_not_entered_says_how():
    growth = track_arrays()
    for question in (growth.step, growth.report):
        with pytest.raises(TrackerError, match="with track_arrays"):
            question()


def test_trackers_may_be_nested_and_entered_again(no_arrays):
    with track_arrays() as outer:
        first = born(1)
        with track_arrays() as inner:
            second = born(1)
            assert (outer.report().new_count, inner.report().new_count) == (2, 1)
        with inner:
            assert inner.report().new_count == 0
    assert len(first + second) == 2


def test_a_report_survives_json_and_fits_the_schema(no_arrays):
    make_cycles(1)
    with track_arrays() as growth:
        kept = []
        for _ in range(3):
            kept += born(1)
            growth.step()
        report = growth.report(collect=True)
    assert report.freed_by_collection
    assert from_json(to_json(report)) == report
    jsonschema.validate(json.loads(to_json(report)), json_schema())


# What rises


def leak(kept):
    kept.append(jnp.ones((256,)))


def update(params):
    return [param + 1 for param in params]


def make_state():
    return [jnp.ones((7,)) for _ in range(4)]


def test_what_rises_at_every_step_is_told_and_what_only_changes_is_not(no_arrays):
    kept, params, state, spare = [], elder(), None, []
    with track_arrays() as growth:
        for number in range(5):
            leak(kept)
            params = update(params)
            state = state or make_state()
            if number != 2:
                spare += born(1)
            growth.step()
        report = growth.report()
    assert [growth.origin.function for growth in report.origins if growth.rose_every_step] == ["leak"]
    leaked = report.origins[0]
    assert (leaked.count, leaked.count_per_step, leaked.nbytes_per_step) == (5, 1, 1024)
    assert growth_of(report, "update").count_per_step == 0
    assert growth_of(report, "make_state").count_per_step == 0
    assert growth_of(report, "born").count_per_step == 0.75
    assert report.steps == 5


def test_one_array_that_gets_larger_rises(no_arrays):
    history = np.zeros((0, 64), np.float32)
    with track_arrays() as growth:
        for number in range(4):
            history = jax.device_put(np.zeros((number + 1, 64), np.float32))
            growth.step()
        (found,) = growth.report().origins
    assert found.rose_every_step
    assert (found.count_per_step, found.nbytes_per_step) == (0, 256)
    assert history is not None


def test_with_one_step_nothing_can_be_said_of_steps(no_arrays):
    with track_arrays() as growth:
        new = born()
        growth.step()
        (found,) = growth.report().origins
    assert (found.count_per_step, found.nbytes_per_step, found.rose_every_step) == (None, None, False)
    assert len(new) == 2


@pytest.mark.parametrize(
    ("alive", "rises", "per_step"),
    [
        ([1, 2], True, 1),  # after the entry and after each step
        ([8, 9, 10], True, 1),  # the first step makes what lives on
        ([0, 1, 2], True, 1),  # the leak needs a step to begin
        ([0, 1], False, 1),  # once is no rule
        ([8, 8, 8], False, 0),
        ([8, 7, 8], False, 0),
        ([1, 2, 3, 3], False, 2 / 3),
        ([1, 2, 1, 4], False, 1),
        ([0, 0, 1, 2, 3], False, 0.75),
        ([3], False, None),
    ],
)
def test_a_rise_is_one_at_every_step_but_perhaps_the_first_and_at_least_twice(alive, rises, per_step):
    running = Rises({})
    for count in alive:
        running.add({"float32[4]": Level(count, 16 * count)} if count else {})
    assert bool(running.makers()) == rises
    expected = None if per_step is None else (per_step, 16 * per_step)
    assert running.per_step("float32[4]") == expected


def test_what_was_alive_at_entry_and_is_replaced_does_not_rise(no_arrays):
    def make():
        return jnp.ones((3,))

    ring = [make() for _ in range(8)]
    with track_arrays() as growth:
        for number in range(6):
            ring[number] = make()
            growth.step()
        (found,) = growth.report().origins
    assert (found.count, found.freed_count, found.rose_every_step) == (6, 6, False)


def test_a_tracker_does_not_grow_with_its_steps(no_arrays):
    def take_steps(number):
        nonlocal params
        for _ in range(number):
            params = update(params)
            growth.step()
        gc.collect()
        snapshot = tracemalloc.take_snapshot()
        own = tracemalloc.Filter(True, "*jax_array_info_core*")
        return sum(trace.size for trace in snapshot.filter_traces([own]).traces)

    params = elder(30)
    with track_arrays() as growth:
        tracemalloc.start()
        try:
            few, many = take_steps(20), take_steps(200)
        finally:
            tracemalloc.stop()
    assert few > 0
    assert many - few < 10_000


# What it leaves as it is


def test_between_its_steps_a_tracker_costs_nothing(no_arrays):
    """All that it leaves on an array is one weak reference, at whose end nothing is called."""
    old = jnp.ones((4,))
    with track_arrays() as growth, track_arrays():
        new = jnp.ones((4,))
        for _ in range(3):
            growth.step()
        for array in (old, new):
            assert [reference.__callback__ for reference in weakref.getweakrefs(array)] == [None]


def test_a_tracker_keeps_no_array_alive_and_adds_none(no_arrays):
    with no_collector():
        old = jnp.ones((4,))
        with track_arrays() as growth:
            new = jnp.ones((4,))
            references = [weakref.ref(old), weakref.ref(new)]
            alive = len(jax.live_arrays())
            for _ in range(3):
                growth.step()
            reports = [growth.report(), growth.report(collect=True)]
            assert len(jax.live_arrays()) == alive
            del old, new
            assert [reference() for reference in references] == [None, None]
    assert reports[0].new_count == 1


@pytest.mark.needs_devices(8)  # on one device, what a CPU computes with a callback is computed at once
def test_a_tracker_waits_for_no_computation(no_arrays):
    go_on = threading.Event()

    def wait(x):
        assert go_on.wait(60)
        return x

    @jax.jit
    def slow(x):
        return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1

    operand = sharded((8, 4), mesh_of((8,), ("a",)), "a")
    go_on.set()
    slow(operand).block_until_ready()
    go_on.clear()
    with track_arrays() as growth:
        result = slow(operand)
        growth.step()
        report = growth.report(collect=True)
    assert not result.is_ready()
    assert report.new_count >= 1
    go_on.set()
    result.block_until_ready()


def test_a_step_while_jax_traces_disturbs_nothing(no_arrays):
    with track_arrays() as growth:

        @jax.jit
        def double(x):
            growth.step()
            assert growth.report().steps == 1
            return 2 * x

        assert double(3.0) == 6
    assert growth.report().steps == 1


def test_sixteen_threads_create_delete_step_and_report_at_once(no_arrays):
    threads, kept = 16, 4
    errors, left = [], []
    end = time.monotonic() + 5

    def work(number):
        mine = []
        try:
            while time.monotonic() < end:
                mine += [
                    jax.device_put(np.full(1000, number, np.float32)) for _ in range(2 * kept - len(mine))
                ]
                growth.step()
                with track_arrays() as own:
                    mine[0].delete()
                    assert growth.report().origins
                    own.report()
                del mine[:kept]
        except Exception as error:
            errors.append(error)
        left.extend(mine[:kept])

    with track_arrays() as growth:
        running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    assert errors == []
    report = growth.report()
    assert (report.new_count, report.freed_count) == (threads * kept, 0)
    assert report.nbytes == live_array_report().device_nbytes == on_first(threads * kept * 4000)
    assert len(left) == threads * kept


# What only the collector frees


class Node:
    def __init__(self, array):
        self.me = self
        self.array = array


def make_cycles(number):
    for _ in range(number):
        Node(jnp.ones((100,)))


def test_what_only_the_collector_frees_is_told(no_arrays):
    with no_collector():
        make_cycles(1)
        with track_arrays() as growth:
            make_cycles(2)
            kept = born()
            assert growth_of(growth.report(), "make_cycles").count == 2
            report = growth.report(collect=True)
    (freed,) = report.freed_by_collection
    assert (freed.origin.function, freed.count, freed.nbytes) == ("make_cycles", 3, 1200)
    assert freed.content == "float32[100]"
    assert report.collected
    # The rest of the report is about what is alive after that.
    assert (growth_of(report, "make_cycles").count, growth_of(report, "make_cycles").freed_count) == (0, 1)
    assert report.new_count == len(kept)
    assert report.nbytes == on_first(80)


def test_a_leak_of_cycles_is_told_though_the_collector_has_freed_it(no_arrays):
    with no_collector(), track_arrays() as growth:
        for _ in range(3):
            make_cycles(1)
            growth.step()
        report = growth.report(collect=True)
    (leaked,) = report.origins
    assert (leaked.origin.function, leaked.count, leaked.content) == ("make_cycles", 0, None)
    assert (leaked.rose_every_step, leaked.nbytes_per_step) == (True, 400)
    assert report.freed_by_collection[0].count == 3


def test_the_collector_runs_once_when_asked_and_never_else(no_arrays, monkeypatch):
    collect, runs = gc.collect, []
    monkeypatch.setattr(gc, "collect", lambda *generation: runs.append(generation) or collect(*generation))
    with track_arrays() as growth:
        growth.step()
        report = growth.report()
        assert (runs, report.collected, report.freed_by_collection) == ([], False, ())
        report = growth.report(collect=True)
    assert (runs, report.collected, report.freed_by_collection) == ([()], True, ())
