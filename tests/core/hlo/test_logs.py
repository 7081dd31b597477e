"""Warnings in logs that are read piece by piece."""

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.hlo import warnings as logs_module
from jax_array_info_core.hlo.warnings import LONGEST, LogScanner, UnreadWarning, warnings_in
from tests.logs import DONATIONS, REMATERIALIZATION, WORDINGS

pytestmark = pytest.mark.oldest_and_newest

LOG = "\n".join(["step 1", *WORDINGS.values(), "step 2", *DONATIONS.values(), "größe", REMATERIALIZATION])


def scan(*pieces):
    scanner = LogScanner()
    found = [one for piece in pieces for one in scanner.feed(piece)]
    return [*found, *scanner.end()], scanner.line_count


@given(st.lists(st.integers(0, len(LOG)), max_size=6))
def test_the_pieces_do_not_matter(ends):
    data = LOG.encode()
    bounds = [0, *sorted(ends), len(data)]
    pieces = [data[start:stop] for start, stop in itertools.pairwise(bounds)]
    expected = [one for line in LOG.splitlines() for one in warnings_in(line)]
    assert scan(*pieces) == (expected, len(LOG.splitlines()))


@pytest.mark.parametrize("text", ["", "\n", "step 1\n", "step 1", "a\nb", "a\r\nb\r\n"])
def test_lines_are_counted_with_and_without_a_last_line_break(text):
    assert scan(text.encode()) == ([], len(text.splitlines()))


@given(st.integers(1, len(WORDINGS["0.10.2"])))
def test_a_warning_that_is_wrapped_is_read(width):
    text = WORDINGS["0.10.2"]
    start = text.index("Involuntary") + len("Involuntary full rematerialization")
    end = min(start + width, text.index(" efficiently"))
    found, _ = scan(f"{text[:end]}\n{text[end:]}\n{text}\n".encode())
    [expected] = warnings_in(text)
    assert [(one.before, one.after) for one in found] == [(expected.before, expected.after)] * 2


def test_a_list_of_buffers_that_is_wrapped_is_read():
    log = (
        "[0] Some donated buffers were not usable: float32[8,64],\r\n[0] ShapedArray(int32[4]), bfloat16[2,\r\n3],"
        " float32[8,64].\r\n[0] See an explanation at https://docs.jax.dev\r\nfloat32[9]\r\n"
    )
    [found], _ = scan(log.encode())
    assert [one.dims for one in found.buffers] == [(8, 64), (4,), (2, 3), (8, 64)]
    assert found.unread == ""


@pytest.mark.parametrize("next_line", ["loss=[1.5] f32[3,3]", "[host3]: step 5"])
@pytest.mark.parametrize("reset", ["\x1b[0m", "\x1b[m", "\x1b[39;49m"])
def test_a_color_at_the_end_of_a_line_is_not_a_bracket(reset, next_line):
    log = f"UserWarning: Some donated buffers were not usable: float32[8,64].{reset}\n{next_line}\n"
    [found], _ = scan(log.encode())
    assert ([one.dims for one in found.buffers], found.unread) == ([(8, 64)], "")
    log = f"Some donated buffers were not usable: float32[8,{reset}\n64],{reset} \nint32[4].{reset}\n{next_line}\n"
    [found], _ = scan(log.encode())
    assert ([one.dims for one in found.buffers], found.unread) == ([(8, 64), (4,)], "")


def test_the_line_after_an_unfinished_warning_is_read():
    log = f"Some donated buffers were not usable: float32[8],\nstep 1\n{REMATERIALIZATION}\n"
    found, _ = scan(log.encode())
    assert found == [*warnings_in(log.splitlines()[0]), *warnings_in(REMATERIALIZATION)]
    log = f"Involuntary full rematerialization. The\n{REMATERIALIZATION}\n"
    found, _ = scan(log.encode())
    assert found == [
        UnreadWarning("Involuntary full rematerialization. The"),
        *warnings_in(REMATERIALIZATION),
    ]


def test_a_line_of_any_length_takes_bounded_memory():
    scanner = LogScanner()
    chunk = b"x" * LONGEST
    for piece in (*[chunk] * 5, REMATERIALIZATION.encode(), *[chunk] * 9):
        assert list(scanner.feed(piece)) == []
        assert len(scanner._rest) <= 3 * LONGEST
    [found] = scanner.feed(b"\n")
    assert found == next(warnings_in(REMATERIALIZATION))
    assert scanner.line_count == 1


def test_wrapped_lines_take_bounded_memory():
    scanner = LogScanner()
    line = b"f32[8]," * 20_000 + b"\n"
    tracemalloc.start()
    found = [
        one for _ in range(500) for one in scanner.feed(b"Some donated buffers were not usable:\n" + line)
    ]
    found += [one for _ in range(500) for one in scanner.feed(line)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) + scanner.unlisted_count == 500
    assert peak < 100 << 20


def test_warnings_that_differ_are_read_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(logs_module, "_ROOM", 10_000)
    scanner = LogScanner()
    for number in range(100):
        list(scanner.feed(f"Some donated buffers were not usable: f32[{number}]\n".encode()))
    unlisted = scanner.unlisted_count
    assert 0 < unlisted < 100
    # A warning that is known is counted.
    assert len(list(scanner.feed(b"Some donated buffers were not usable: f32[0]\n" * 100))) == 100
    assert scanner.unlisted_count == unlisted


def test_the_end_of_a_line_of_json_does_not_matter():
    scanner = LogScanner()
    lines = [f'{{"text": "{REMATERIALIZATION}", "step": {number}}}\n' for number in range(20_000)]
    found = list(scanner.feed("".join(lines).encode()))
    assert (len(found), scanner.unlisted_count) == (20_000, 0)


@given(st.binary(max_size=80))
def test_bytes_that_are_not_utf8_are_ignored(data):
    found, _ = scan(data.replace(b"\n", b"") + b" " + REMATERIALIZATION.encode() + b" \xff\n")
    assert found == list(warnings_in(REMATERIALIZATION))
