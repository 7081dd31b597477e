"""What rises from step to step."""

import gc
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import (
    track_arrays,
)
from jax_array_info_core.growth.rises import Level, Rises
from tests.growing import born, elder, growth_of

pytestmark = pytest.mark.once_per_version


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


@pytest.mark.needs_devices(2)
def test_what_is_made_on_one_device_after_the_other_rises_by_its_bytes(no_arrays):
    kept, devices = [], jax.local_devices()[:2]
    with track_arrays() as growth:
        for number in range(6):
            kept.append(jax.device_put(np.ones(256, np.float32), devices[number % 2]))
            growth.step()
        (found,) = growth.report().origins
    assert (found.rose_every_step, found.count_per_step, found.nbytes_per_step) == (True, 1, 1024)
    assert found.nbytes == 3 * 1024
    assert found.device_nbytes == tuple((device.id, 3 * 1024) for device in devices)


@pytest.mark.needs_devices(2)
def test_bytes_that_rise_on_one_device_after_the_other_rise_at_every_step(no_arrays):
    devices, buffers = jax.local_devices()[:2], {}
    with track_arrays() as growth:
        for number in range(6):
            size = 8 * (number // 2 + 1)
            buffers[number % 2] = jax.device_put(np.ones(size, np.float32), devices[number % 2])
            growth.step()
        (found,) = growth.report().origins
    assert found.rose_every_step
    assert len(buffers) == 2


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


@pytest.mark.oldest_and_newest
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
