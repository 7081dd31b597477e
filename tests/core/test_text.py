import pytest

from jax_array_info_core.compat.devices import device_name
from jax_array_info_core.quantities import format_bytes, format_device_ids, format_devices
from jax_array_info_core.text import printable

pytestmark = pytest.mark.oldest_and_newest


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0.0 B"),
        (1023, "1023.0 B"),
        (1024, "1.0 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (int(1023.99 * 1024), "1.0 MiB"),
        (int(1023.9 * 1024), "1023.9 KiB"),
        (8 * 2**20, "8.0 MiB"),
        (2**50, "1.0 PiB"),
        (2**60, "1.0 EiB"),
        (2**90, "1024.0 YiB"),
        (10**300, "8.3e+275 YiB"),
        (10**4000, "8.3e+3975 YiB"),
        (-(10**300), "-8.3e+275 YiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_the_unit_of_bytes_keeps_the_rounded_number_below_1024(nbytes, text):
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0,1"),
        ([2, 1, 0], "0-2"),
        (range(8), "0-7"),
        ([0, 2, 4, 6], "0,2,4,6"),
        (range(0, 64, 2), "0-62:2"),
        ([0, 1, 2, 3, 8, 9, 10, 11], "0-3,8-11"),
        ([0, 5, 6, 7, 9], "0,5-7,9"),
        ([0, 2, 3, 4], "0,2-4"),
        ([0, 2048, 4096, 6144, 8192], "0-8192:2048"),
    ],
)
def test_ranges_of_device_ids_are_abbreviated(ids, text):
    assert format_device_ids(list(ids)) == text


def test_devices_without_a_platform_are_named_device():
    assert format_devices("gpu", [0, 1]) == "GPU 0,1"
    assert format_devices(None, [0, 1]) == "device 0,1"


def test_cpu_devices_have_the_same_name_in_every_version_of_jax():
    class Device:
        def __str__(self):
            return "TFRT_CPU_2"

    assert device_name(Device()) == "cpu:2"
    assert device_name("cuda:0") == "cuda:0"


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("params[layer1]", "utf-8", "params[layer1]"),
        ("größe", "utf-8", "größe"),
        ("größe", "ascii", r"gr\xf6\xdfe"),
        ("größe", "latin-1", "größe"),
        ("\x1b[31mred\x1b[0m", "utf-8", r"\x1b[31mred\x1b[0m"),
        ("two\nlines\ttab\r", "utf-8", r"two\nlines\ttab\r"),
        ("\u202egnp.exe", "utf-8", r"\u202egnp.exe"),
        ("\ud800", "utf-8", r"\ud800"),
        ("日本 🙂", "utf-8", "日本 🙂"),
        ("\ufffe\uffff", "utf-8", r"\ufffe\uffff"),
    ],
)
def test_text_cannot_control_the_terminal(text, encoding, shown):
    assert printable(text, encoding) == shown
