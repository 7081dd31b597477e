"""Marks of a recorder have the bytes in use."""

import errno
import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import record_memory, timeline_report
from jax_array_info_core.timeline import recording
from jax_array_info_core.timeline.in_use import BytesInUse
from jax_array_info_core.timeline.recording import Moment
from tests.arrays import mesh_of
from tests.growing import born
from tests.records import of_kind, record_of, recorded, sample_count, until

pytestmark = [pytest.mark.oldest_and_newest, pytest.mark.usefixtures("devices", "unhurried")]


@pytest.fixture
def unhurried(monkeypatch):
    """Count the live arrays to the end also while other programs need the processor."""
    monkeypatch.setattr("jax_array_info_core.timeline.in_use.LONGEST", 60.0)


def test_a_mark_that_is_not_recorded_has_no_end_either(no_arrays, tmp_path, monkeypatch):
    monkeypatch.setattr("jax_array_info_core.timeline.recorder._MOST_WAITING", 0)
    with record_memory(tmp_path) as recorder, recorder.mark("tiny"):
        pass
    assert of_kind(record_of(tmp_path), "mark") == []


def test_a_mark_has_the_bytes_in_use_at_its_begin_and_end(no_arrays, tmp_path):
    with record_memory(tmp_path) as recorder:
        until(lambda: sample_count(tmp_path))
        with recorder.mark("load"):
            kept = jnp.zeros((1000,), jnp.int8)
            views = [shard.data for shard in kept.addressable_shards]
        with recorder.mark("eval"):
            jnp.zeros((500,))
    others = (0,) * (jax.local_device_count() - 1)
    marks = of_kind(record_of(tmp_path), "mark")
    assert [mark.in_use for mark in marks] == [(0, *others), *[(1000, *others)] * 3]
    assert {mark.peak for mark in marks} == {()}
    found = {mark.name: mark.kept_nbytes for mark in timeline_report(tmp_path).marks}
    assert found == {"load": 1000, "eval": 0}
    assert kept.nbytes
    assert views


def test_a_mark_may_begin_again(no_arrays, tmp_path):
    with record_memory(tmp_path) as recorder:
        mark = recorder.mark("eval")
        for _ in range(3):
            with mark:
                pass
    lines = of_kind(record_of(tmp_path), "mark")
    assert [line.is_end for line in lines] == [False, True] * 3
    assert [line.begin for line in lines[1::2]] == [line.time for line in lines[::2]]


def test_marks_are_written_once_the_disk_has_room(no_arrays, tmp_path, monkeypatch):
    write, is_full = os.write, [True]

    def write_if(descriptor, data):
        if is_full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    monkeypatch.setattr(recording, "_RETRY", 0.01)
    monkeypatch.setattr("jax_array_info_core.files.descriptors.os.write", write_if)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with record_memory(tmp_path, every=0.01) as recorder:
            with recorder.mark("eval"):
                until(lambda: caught)
            recorder.mark("late")
            is_full[0] = False
            until(lambda: sample_count(tmp_path))
    marks = of_kind(record_of(tmp_path), "mark")
    assert [(mark.name, mark.is_end) for mark in marks] == [("eval", False), ("eval", True), ("late", False)]


def test_marks_that_wait_are_written_together(no_arrays, tmp_path, monkeypatch):
    write, sizes = os.write, []

    def counted(descriptor, data):
        sizes.append(len(data))
        return write(descriptor, data)

    monkeypatch.setattr("jax_array_info_core.files.descriptors.os.write", counted)
    moments = [Moment(1.0 + number, "busy", number, is_end=False) for number in range(1000)]
    lines = recorded(tmp_path, *moments, max_nbytes=2**22)
    assert [mark.step for mark in of_kind(lines, "mark")] == [*range(1000)]
    assert len(sizes) < 20


@pytest.mark.needs_devices(8)
def test_a_mark_counts_what_a_sample_counts(no_arrays, tmp_path):
    mesh = mesh_of((4, 2), ("a", "b"))
    kept = [
        jax.device_put(np.zeros((8, 6), dtype), NamedSharding(mesh, spec))
        for dtype in (np.int8, np.float32, jnp.int4)
        for spec in (P(), P("a"), P("b"), P(("a", "b")), P(None, "b"))
    ]
    reader = BytesInUse(jax.local_devices())
    lines = recorded(tmp_path)
    assert reader.read() == (of_kind(lines, "sample")[-1].in_use, ())
    assert kept


def test_a_mark_has_the_statistics_of_the_allocator():
    def memory_of(device):
        return {"bytes_in_use": 100 + device.id, "peak_bytes_in_use": 200, "bytes_limit": 300}

    devices = jax.local_devices()
    in_use, peak = BytesInUse(devices, memory_of).read()
    assert in_use == tuple(100 + device.id for device in devices)
    assert peak == (200,) * len(devices)


def test_bytes_are_unknown_where_counting_takes_long(no_arrays, monkeypatch):
    kept = born(3)
    reader = BytesInUse(jax.local_devices())
    assert sum(reader.read().in_use) == 120
    monkeypatch.setattr("jax_array_info_core.timeline.in_use.LONGEST", 0.0)
    assert reader.read() == ((), ())
    monkeypatch.setattr("jax_array_info_core.timeline.in_use.LONGEST", 10.0)
    monkeypatch.setattr(reader, "_idle_until", float("inf"))
    assert reader.read() == ((), ())  # it is not tried again soon
    assert kept
