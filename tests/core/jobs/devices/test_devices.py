"""Devices, and the memory statistics of their allocators."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import devices_report, from_json, live_array_report, memory_report, to_json
from jax_array_info_core.errors import UnsupportedValueError
from tests.arrays import FakeDevice, mesh_of, sharded

GIB = 2**30


class Accelerator(FakeDevice):
    """A stand-in for a device with memory statistics. JAX has a CPU device with the same id."""

    device_kind = "H100"

    def __init__(self, number=0, process_index=0, stats=None, error=None, platform="cpu"):
        super().__init__(number, process_index)
        self.stats, self.error, self.platform = stats, error, platform

    def __str__(self):
        return f"cuda:{self.id}"

    def memory_stats(self):
        if self.error:
            raise RuntimeError(self.error)  # a new one: its traceback keeps arrays alive
        return self.stats


IN_USE = {"bytes_in_use": 7}


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        (
            {"stats": {"bytes_in_use": GIB, "peak_bytes_in_use": 2 * GIB, "bytes_limit": 3 * GIB}},
            {
                "bytes_in_use": GIB,
                "peak_bytes_in_use": 2 * GIB,
                "bytes_limit": 3 * GIB,
                "array_nbytes": 4000,
                "unexplained_nbytes": GIB - 4000,
                "missing_reason": None,
            },
        ),
        ({"stats": {"bytes_in_use": 3999}}, {"unexplained_nbytes": 0}),  # never negative
        ({"error": "lost\nstack"}, {"bytes_in_use": None, "missing_reason": "lost"}),
        (
            {"number": 10**6, "process_index": 3, "stats": IN_USE},
            {
                "process": 3,
                "is_local": False,
                "bytes_in_use": None,
                "array_nbytes": None,
                "missing_reason": "it is another process's",
            },
        ),
        (
            {"platform": "nowhere", "stats": IN_USE},  # without a backend
            {"bytes_in_use": 7, "array_nbytes": None, "unexplained_nbytes": None},
        ),
        *(
            ({"stats": {**IN_USE, "bytes_limit": value}}, {"bytes_limit": None})
            for value in (None, -1, "x", 0.5)
        ),
    ],
)
def test_a_device_has_the_memory_that_it_tells_or_the_reason_why_not(options, facts, no_arrays):
    """An error of one device does not hide the others."""
    array = jnp.zeros(1000)
    found, other = devices_report([Accelerator(**options), Accelerator(1, stats=IN_USE)]).devices
    assert {name: getattr(found, name) for name in facts} == facts
    assert other.bytes_in_use == 7
    assert array.nbytes == 4000


def test_cpu_devices_have_the_bytes_of_their_arrays_and_a_missing_reason(no_arrays):
    count = len(jax.devices())
    array = sharded((count, 4), mesh_of((count,), ("a",)), "a")
    report = devices_report()
    assert [device.id for device in report.devices] == [device.id for device in jax.devices()]
    for device in report.devices:
        assert (device.name, device.platform, device.kind) == (f"cpu:{device.id}", "cpu", "cpu")
        assert (device.process, device.is_local) == (0, True)
        assert device.default_memory_kind in device.memory_kinds
        assert device.array_nbytes == array.nbytes // count
        assert (device.bytes_in_use, device.unexplained_nbytes) == (None, None)
        assert device.missing_reason == "not reported by this backend"


def test_a_report_adds_no_array_and_keeps_none_alive(no_arrays):
    array = jnp.zeros(8)
    report = devices_report()
    assert live_array_report().array_count == 1
    del array
    gc.collect()
    assert jax.live_arrays() == []
    assert report.devices


@pytest.mark.newest
@pytest.mark.parametrize(
    ("own", "given", "count", "stats"),
    [
        ({"num_allocs": 2, "bytes_in_use": 5, "note": "x"}, None, 2, {"bytes_in_use": 5, "note": "x"}),
        ({"bytes_in_use": 5}, None, None, {"bytes_in_use": 5}),
        (None, {"num_allocs": 1, "bytes_in_use": 7}, 1, {"bytes_in_use": 7}),
        (
            None,
            {"a": np.int64(2**31), "b": np.float32(0.5), "c": float("nan"), "d": True, "num_allocs": "many"},
            None,
            {"a": 2**31, "b": 0.5, "c": "nan", "d": 1, "num_allocs": "many"},  # what JSON has
        ),
    ],
)
def test_the_statistics_are_those_of_the_device_or_given_ones_which_stay(own, given, count, stats):
    before = dict(given or {})
    report = memory_report(Accelerator(stats=own), given)
    assert (report.device, report.allocation_count, report.stats) == ("cuda:0", count, (*stats.items(),))
    assert (given or {}) == before
    assert from_json(to_json(report)) == report


@pytest.mark.newest
@pytest.mark.parametrize(
    ("options", "given", "allocator", "reason"),
    [
        ({"platform": "cpu"}, None, None, "not reported by the cpu backend"),
        ({"platform": "gpu"}, None, None, "not reported by the gpu backend"),
        ({"platform": "gpu"}, None, "platform", "XLA_PYTHON_CLIENT_ALLOCATOR=platform keeps none"),
        ({"platform": "gpu", "stats": {}}, None, "bfc", "not reported by the gpu backend"),
        ({"error": "not addressable\nstack"}, None, None, "not addressable"),
        ({}, {}, None, "the statistics are empty"),
    ],
)
def test_a_report_without_statistics_has_the_reason(options, given, allocator, reason, monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_ALLOCATOR", raising=False)
    if allocator:
        monkeypatch.setenv("XLA_PYTHON_CLIENT_ALLOCATOR", allocator)
    report = memory_report(Accelerator(**options), given)
    assert (report.stats, report.missing_reason) == (None, reason)


@pytest.mark.newest
@pytest.mark.parametrize("value", [3, None, "cpu"])
def test_what_is_not_a_device_is_refused(value):
    assert memory_report(jax.devices()[0]).device == "cpu:0"
    with pytest.raises(UnsupportedValueError, match=r"expected a device of jax.devices\(\), got <class"):
        memory_report(value)
