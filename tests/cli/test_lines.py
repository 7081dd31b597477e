"""Splitting the output of processes into lines."""

import itertools

import pytest

from jax_array_info_cli.launch.relay import split_lines

pytestmark = pytest.mark.oldest_and_newest


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b", b"\n"], [b"ab"]),
        ([b"a\n\nb"], [b"a", b"", b"b"]),
        ([b"a\r\nb\r\n"], [b"a", b"b"]),
        ([b"a\r", b"\nb\n"], [b"a", b"b"]),
        ([b"\r1%", b"\r2%", b"\r3%\n"], [b"1%", b"2%", b"3%"]),
        ([b"1%\r", b"2%\r", b"\n"], [b"1%", b"2%"]),
        ([b"\xff\x00\n"], [b"\xff\x00"]),
        ([], []),
    ],
)
def test_newlines_and_carriage_returns_end_lines(pieces, lines):
    assert list(itertools.chain(*split_lines(pieces))) == lines


def test_an_endless_line_is_split():
    lengths = [sum(map(len, lines)) for lines in split_lines(b"x" * 2**16 for _ in range(2**8))]
    assert sum(lengths) == 2**24
    assert max(lengths) < 2**23
