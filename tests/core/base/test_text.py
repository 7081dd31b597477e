from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.base.quantities import (
    bytes_apart,
    decimal_words,
    format_bytes,
    format_device_ids,
    format_devices,
    least_seconds_words,
    parse_bytes,
    percent_words,
    shares_apart,
)
from jax_array_info_core.base.text import printable
from jax_array_info_core.compat.shardings import device_name

pytestmark = pytest.mark.newest


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
    ("text", "nbytes"),
    [
        ("95GiB", 95 * 2**30),
        ("16GB", 16 * 10**9),
        ("16gb", 16 * 10**9),
        (" 1.5 GiB ", 3 * 2**29),
        ("80Gi", 80 * 2**30),
        ("1e9", 10**9),
        ("1.5E+3kB", 1_500_000),
        ("1024", 1024),
        ("1024 B", 1024),
        ("0", 0),
        ("1EiB", 2**60),
        ("5.GB", 5 * 10**9),
        ("9999999999999999", 9999999999999999),
        ("9007199254740993.0", 2**53 + 1),
        ("0.1KiB", 102),
    ],
)
def test_sizes_are_parsed_exactly(text, nbytes):
    assert parse_bytes(text) == nbytes


@given(st.integers(0, 2**62), st.integers(-(2**20), 2**20))
def test_a_size_and_a_limit_are_told_apart_exactly_if_they_differ(limit, more):
    """They have the usual form wherever that tells them apart."""
    nbytes = max(limit + more, 0)
    texts = bytes_apart(nbytes, limit)
    assert (texts[0] == texts[1]) == (nbytes == limit)
    usual = format_bytes(nbytes), format_bytes(limit)
    if usual[0] != usual[1] or nbytes == limit:
        assert texts == usual


def test_a_share_and_a_limit_are_told_apart():
    assert shares_apart(2004, 100_000, 0.02) == ("2.004%", "2.000%")
    assert shares_apart(2, 100, 0.02) == ("2.00%", "2.00%")
    assert shares_apart(3, 800, 0.02) == ("0.38%", "2.00%")


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (17 * 2**28, "4.3 GiB"),
        (17 * 2**28 - 1, "4.2 GiB"),
        (17 * 2**58 - 1, "4.2 EiB"),
        (1023 * 1024 + 972, "1023.9 KiB"),
        (1023 * 1024 + 973, "1.0 MiB"),
        (-17 * 2**28, "-4.3 GiB"),
    ],
)
def test_half_a_decimal_is_rounded_up(nbytes, text):
    assert format_bytes(nbytes) == text


@given(st.integers(-(2**80), 2**80), st.integers(1, 2**80), st.integers(0, 6))
def test_a_quotient_is_rounded_exactly(number, whole, decimals):
    """It is the nearest one with so many decimals, and of two that are as near the one further from 0."""
    exact = Fraction(number, whole)
    shown = Fraction(decimal_words(number, whole, decimals=decimals))
    unit = Fraction(1, 10**decimals)
    assert -unit / 2 < abs(exact) - abs(shown) < unit / 2 or abs(shown) - abs(exact) == unit / 2
    assert percent_words(number, whole, decimals=decimals) == (
        f"{decimal_words(100 * number, whole, decimals=decimals)}%"
    )


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0.0 µs"),
        (1.99e-6, "1.9 µs"),
        (0.016199, "16.1 ms"),
        (1.0, "1.0 s"),
        (12345.67, "12,345.6 s"),
        (1e300, "1.0e+300 s"),
    ],
)
def test_a_lower_bound_of_a_time_is_rounded_down(seconds, words):
    assert least_seconds_words(seconds) == f"at least {words}"


@given(st.integers(0, 2**62))
def test_a_formatted_size_is_parsed_up_to_its_rounding(nbytes):
    parsed = parse_bytes(format_bytes(nbytes))
    assert abs(parsed - nbytes) <= max(nbytes // 20, 1)
    assert parse_bytes(f"{nbytes} B") == nbytes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a size such as 95GiB, 16GB or 1e9, got ''"),
        ("GiB", "got 'GiB'"),
        ("-3GB", "got '-3GB'"),
        ("1,5GB", "got '1,5GB'"),
        ("1e-3", "got '1e-3'"),
        ("95GiBs", "got '95GiBs'"),
        ("nan", "got 'nan'"),
        ("\u0661GB", "got '\u0661GB'"),
        ("\x1b[31m", r"got '\x1b[31m'"),
        ("95g", "write GB or GiB instead of g, got '95g'"),
        ("8EiB", "8.0 EiB is more than 2^63 - 1 bytes"),
        ("9" * 301, "expected a size"),
    ],
)
def test_a_text_that_is_not_a_size_is_an_error_that_shows_the_form(text, problem):
    with pytest.raises(ValueError) as raised:
        parse_bytes(text)
    assert problem in str(raised.value)


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
