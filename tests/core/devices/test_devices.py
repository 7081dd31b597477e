import gc

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core import devices_report, live_array_report
from tests.arrays import FakeDevice, mesh_of, sharded

GIB = 2**30


class Accelerator(FakeDevice):
    """A stand-in for a device with memory statistics. JAX has a CPU device with the same id."""

    device_kind = "H100"

    def __init__(self, number=0, process_index=0, stats=None, error=None):
        super().__init__(number, process_index)
        self.stats, self.error = stats, error

    def __str__(self):
        return f"cuda:{self.id}"

    def memory_stats(self):
        if self.error:
            raise self.error
        return self.stats


def report_of(*devices):
    return devices_report(devices).devices


def test_bytes_in_use_beyond_the_live_arrays_are_unexplained(no_arrays):
    array = jnp.zeros(1000)
    stats = {"bytes_in_use": GIB, "peak_bytes_in_use": 2 * GIB, "bytes_limit": 3 * GIB}
    (device,) = report_of(Accelerator(stats=stats))
    assert (device.bytes_in_use, device.peak_bytes_in_use, device.bytes_limit) == (GIB, 2 * GIB, 3 * GIB)
    assert device.array_nbytes == array.nbytes
    assert device.unexplained_nbytes == GIB - array.nbytes
    assert device.missing_reason is None


def test_unexplained_bytes_are_never_negative(no_arrays):
    array = jnp.zeros(1000)
    (device,) = report_of(Accelerator(stats={"bytes_in_use": array.nbytes - 1}))
    assert device.unexplained_nbytes == 0


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


def test_a_device_that_raises_an_error_does_not_hide_the_others():
    broken, working = report_of(
        Accelerator(error=RuntimeError("lost\nstack")), Accelerator(1, stats={"bytes_in_use": 7})
    )
    assert (broken.bytes_in_use, broken.missing_reason) == (None, "lost")
    assert working.bytes_in_use == 7


def test_the_memory_of_another_process_is_unknown():
    (device,) = report_of(Accelerator(10**6, process_index=3, stats={"bytes_in_use": 7}))
    assert (device.process, device.is_local) == (3, False)
    assert (device.bytes_in_use, device.array_nbytes) == (None, None)
    assert device.missing_reason == "it is another process's"


def test_devices_without_a_backend_have_no_arrays():
    device = Accelerator(stats={"bytes_in_use": 7})
    device.platform = "nowhere"
    (found,) = report_of(device)
    assert (found.bytes_in_use, found.array_nbytes, found.unexplained_nbytes) == (7, None, None)


@pytest.mark.parametrize("value", [None, -1, "many", 0.5])
def test_a_statistic_that_is_not_a_number_of_bytes_is_left_out(value):
    (device,) = report_of(Accelerator(stats={"bytes_in_use": 7, "bytes_limit": value}))
    assert device.bytes_limit is None


def test_a_report_adds_no_array_and_keeps_none_alive(no_arrays):
    array = jnp.zeros(8)
    report = devices_report()
    assert live_array_report().array_count == 1
    del array
    gc.collect()
    assert jax.live_arrays() == []
    assert report.devices
