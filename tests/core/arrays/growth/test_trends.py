"""Trends of live arrays from step to step."""

import gc
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import track_arrays
from jax_array_info_core.arrays.live import trends
from jax_array_info_core.arrays.live.trends import Level, Site, Trends
from tests.growing import born, elder, growth_of

pytestmark = pytest.mark.once_per_version


def leak(kept):
    kept.append(jnp.ones((256,)))


def update(params):
    return [param + 1 for param in params]


def make_state():
    return [jnp.ones((7,)) for _ in range(4)]


def grown(work, steps):
    """Return the growth of each line over some steps, which get their numbers."""
    with track_arrays() as growth:
        for number in range(steps):
            work(number)
            growth.step()
        return growth.report().origins


def test_only_a_site_that_rises_at_every_step_is_marked_as_rising(no_arrays):
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


def test_an_array_that_is_replaced_by_larger_ones_rises(no_arrays):
    history = {}
    (found,) = grown(lambda number: history.update(last=device_array(64 * (number + 1))), 4)
    assert found.rose_every_step
    assert (found.count_per_step, found.nbytes_per_step) == (0, 256)


def device_array(size, device=None):
    return jax.device_put(np.ones(size, np.float32), device)


@pytest.mark.needs_devices(2)
def test_arrays_on_alternating_devices_rise_by_their_bytes_in_total(no_arrays):
    kept, devices = [], jax.local_devices()[:2]
    (found,) = grown(lambda number: kept.append(device_array(256, devices[number % 2])), 6)
    assert (found.rose_every_step, found.count_per_step, found.nbytes_per_step) == (True, 1, 1024)
    assert found.nbytes == 3 * 1024
    assert found.device_nbytes == tuple((device.id, 3 * 1024) for device in devices)
    kept.clear()
    # The bytes rise at every step, too, where arrays are replaced.
    buffers = {}
    (found,) = grown(
        lambda number: buffers.update({number % 2: device_array(8 * (number // 2 + 1), devices[number % 2])}),
        6,
    )
    assert found.rose_every_step


HERE = Site(None, "float32[4]")


def steps_of(alive, before=0):
    """Return the trends after one step for each number of live arrays, and with a number at entry."""
    running = Trends({HERE: Level(before, 16 * before)} if before else {})
    for count in alive:
        running.add({HERE: Level(count, 16 * count)} if count else {})
    return running


@pytest.mark.parametrize(
    ("alive", "rises", "per_step"),
    [
        ([1, 2], True, 1),  # at entry none, then one more at each step
        ([8, 9, 10], True, 1),  # the first step is warm-up
        ([0, 1, 2], True, 1),  # the leak starts at the second step
        ([0, 1], False, 1),  # a single rise is not a trend
        ([8, 8, 8], False, 0),
        ([8, 7, 8], False, 0),
        ([1, 2, 3, 3], False, 2 / 3),
        ([1, 2, 1, 4], False, 1),
        ([0, 0, 1, 2, 3], False, 0.75),
        ([3], False, None),
    ],
)
def test_a_rise_at_every_step_needs_two_rises_and_may_skip_the_first_step(alive, rises, per_step):
    running = steps_of(alive)
    rise = running.growing().get(HERE)
    assert (rise is not None and rise.is_at_every_step) == rises
    expected = None if per_step is None else (per_step, 16 * per_step)
    assert running.per_step(HERE) == expected


@pytest.mark.parametrize(
    ("alive", "steps", "arrays"),
    [
        ([1, 1, 2, 2, 3], 3, 3),  # the first step counts if the bytes rose in it
        ([0, 1, 1, 2, 2], 2, 2),
        ([8, 8, 9, 9, 11], 3, 11),
        ([1, 2, 3, 3], 3, 3),  # the leak may or may not have stopped
        ([0, 0, 1, 1, 1], 0, 0),  # a single rise is not a trend
        ([1, 1, 2, 2, 2], 0, 0),  # nor is a single rise after the first step, which is warm-up
        ([1, 2, 1, 2, 3], 0, 0),
        ([1, 2, 3, 0, 1, 2, 3], 0, 0),  # a buffer that is emptied, as in gradient accumulation
        ([1], 0, 0),
        ([], 0, 0),
    ],
)
def test_bytes_that_rose_at_several_steps_and_never_fell_are_a_trend(alive, steps, arrays):
    rise = steps_of(alive).growing().get(HERE)
    assert (rise.steps if rise else 0) == steps
    assert (rise.by if rise else Level(0, 0)) == Level(arrays, 16 * arrays)


def test_arrays_alive_before_the_first_rise_are_not_part_of_it():
    # Four arrays of the first step stay alive.
    assert steps_of((9, 9, 10, 10, 11), before=5).growing()[HERE].by == Level(6, 96)
    assert steps_of((4, 4, 5, 5, 6), before=5).growing()[HERE].by == Level(2, 32)


def make(shape):
    return jnp.ones(shape)


def test_a_leak_is_separated_from_the_other_arrays_of_its_line(no_arrays):
    params, kept = make((256, 8)), []
    with track_arrays() as growth:
        for number in range(20):
            params = make((256, 8))
            if number % 5 == 0:
                kept.append(make((16, 16)))
            growth.step()
        leak, rest = growth.report().origins
    assert (leak.rose, leak.rose_every_step, leak.rose_content) == (True, False, "float32[16,16]")
    assert (leak.rose_steps, leak.rose_count, leak.rose_nbytes) == (4, 4, 4 * 1024)
    assert (leak.count, leak.content, leak.freed_count) == (4, "float32[16,16]", 0)
    assert (rest.rose, rest.rose_content, rest.count, rest.freed_count) == (False, None, 1, 1)
    assert (rest.content, rest.count_per_step, rest.nbytes_per_step) == ("float32[256,8]", 0, 0)
    assert str(rest.origin) == str(leak.origin)
    assert leak.origin.callers[0].line == rest.origin.callers[0].line + 2
    assert params is not None


def test_shapes_that_rise_in_turns_are_one_trend_of_their_line(no_arrays):
    kept = []
    (leak,) = grown(lambda number: kept.append(make((number % 2 + 1,))), 8)
    assert (leak.rose_every_step, leak.count, leak.rose_content) == (True, 8, None)


def test_replacing_arrays_that_were_alive_at_entry_is_not_a_rise(no_arrays):
    ring = [make((3,)) for _ in range(8)]
    (found,) = grown(lambda number: ring.__setitem__(number, make((3,))), 6)
    assert (found.count, found.freed_count, found.rose_every_step) == (6, 6, False)


@pytest.mark.newest
def test_the_memory_of_a_tracker_does_not_grow_with_its_steps(no_arrays):
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


def test_only_the_latest_sites_without_live_arrays_are_remembered(monkeypatch):
    monkeypatch.setattr(trends, "_MOST_GONE", 3)
    running = Trends({})
    for number in range(10):
        running.add({Site(None, f"float32[{number}]"): Level(1, 4 * number)})
    assert [site.content for site in running._gone] == [f"float32[{number}]" for number in (6, 7, 8)]
    assert running.growing() == {}


@pytest.mark.parametrize(
    ("rises", "steps", "stopped_at"),
    [
        (range(1, 9), 10, 8),  # a deque of 8
        (range(1, 9), 9, None),  # it may rise again
        (range(1, 8), 40, 7),
        (range(1, 10, 2), 12, None),  # every other step
        (range(1, 10, 2), 13, 9),
        ((3, 23), 40, None),
        ((1, 2, 3, 4, 5), 5, None),  # at every step
    ],
)
def test_a_rise_has_stopped_after_twice_its_longest_pause(rises, steps, stopped_at):
    alive = [sum(rise <= number for rise in rises) for number in range(1, steps + 1)]
    assert steps_of(alive).growing()[HERE].stopped_at == stopped_at


def test_a_line_that_rises_is_told_before_its_shapes_that_rise_no_more():
    """Each length of a history is another shape."""
    running, line = Trends({}), Site(None, None)
    for step in range(1, 14):
        counts = {length: min(2, max(0, step - 3 * length)) for length in range(5)}  # 2 of each, then a pause
        levels = {Site(None, f"float32[{length}]"): Level(n, 4 * n) for length, n in counts.items() if n}
        running.add({**levels, line: Level(sum(counts.values()), 4 * sum(counts.values()))})
    [(site, trend)] = running.growing().items()
    assert (site, trend.stopped_at) == (line, None)
