import jax
import numpy as np
import pytest

from jax_array_info_core import from_json, memory_report, to_json
from jax_array_info_core.errors import UnsupportedValueError

pytestmark = pytest.mark.oldest_and_newest


class Device:
    """A stand-in for a device."""

    def __init__(self, platform="gpu", stats=None, error=None):
        self.platform, self.stats, self.error = platform, stats, error

    def __str__(self):
        return "cuda:0"

    def memory_stats(self):
        if self.error:
            raise self.error
        return self.stats


def test_the_report_has_the_statistics_of_the_device():
    report = memory_report(Device(stats={"num_allocs": 2, "bytes_in_use": 5, "note": "x"}))
    assert report.device == "cuda:0"
    assert report.allocation_count == 2
    assert report.stats == (("bytes_in_use", 5), ("note", "x"))


def test_the_number_of_allocations_may_be_missing():
    assert memory_report(Device(stats={"bytes_in_use": 5})).allocation_count is None


def test_given_statistics_are_used_and_not_changed():
    stats = {"num_allocs": 1, "bytes_in_use": 7}
    assert memory_report(Device(), stats).stats == (("bytes_in_use", 7),)
    assert stats == {"num_allocs": 1, "bytes_in_use": 7}


@pytest.mark.parametrize(
    ("device", "allocator", "reason"),
    [
        (Device("cpu"), None, "not reported by the cpu backend"),
        (Device("gpu"), None, "not reported by the gpu backend"),
        (Device("gpu"), "platform", "XLA_PYTHON_CLIENT_ALLOCATOR=platform keeps none"),
        (Device("gpu", stats={}), "bfc", "not reported by the gpu backend"),
        (Device("tpu", error=RuntimeError("not addressable\nstack")), None, "not addressable"),
    ],
)
def test_a_report_without_statistics_has_the_reason(device, allocator, reason, monkeypatch):
    monkeypatch.delenv("XLA_PYTHON_CLIENT_ALLOCATOR", raising=False)
    if allocator:
        monkeypatch.setenv("XLA_PYTHON_CLIENT_ALLOCATOR", allocator)
    report = memory_report(device)
    assert (report.stats, report.missing_reason) == (None, reason)


def test_numpy_numbers_are_numbers_and_values_that_json_lacks_are_text():
    stats = {"a": np.int64(2**31), "b": np.float32(0.5), "c": float("nan"), "d": True, "num_allocs": "many"}
    report = memory_report(Device(), stats)
    assert report.stats == (("a", 2**31), ("b", 0.5), ("c", "nan"), ("d", 1), ("num_allocs", "many"))
    assert from_json(to_json(report)) == report


def test_empty_statistics_count_as_missing():
    assert memory_report(Device(), {}).missing_reason == "the statistics are empty"


def test_the_report_on_a_jax_device_has_its_name():
    assert memory_report(jax.devices()[0]).device == "cpu:0"


@pytest.mark.parametrize("value", [3, None, "cpu"])
def test_what_is_not_a_device_is_refused(value):
    with pytest.raises(UnsupportedValueError, match=r"expected a device of jax.devices\(\), got <class"):
        memory_report(value)
