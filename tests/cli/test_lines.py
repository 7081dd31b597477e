"""Output of processes: complete lines, without those of Gloo."""

import itertools
import random
import tracemalloc

import pytest

from jax_array_info_cli.launch.start import LONGEST, split_lines, without_gloo

pytestmark = pytest.mark.newest

CHATTER = b"[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1"


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


def test_an_endless_line_is_split_and_takes_little_memory():
    chunk = b"x" * 2**16
    tracemalloc.start()
    lengths = [sum(map(len, lines)) for lines in split_lines(chunk for _ in range(2**8))]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(lengths) == 2**24
    assert max(lengths) < LONGEST + len(chunk)
    assert peak < 4 * LONGEST


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ([CHATTER], []),
        ([CHATTER + CHATTER, b""], []),
        (
            [b"[Gloo] Rank [Gloo] Rank 0" + CHATTER[len("[Gloo] Rank 0") :] + b" is connected to ", b"", b""],
            [b""],
        ),
        ([b"1", b"", CHATTER, b"2", b""], [b"1", b"", b"2", b""]),
        ([CHATTER, b"", CHATTER + CHATTER, b"2", b"", b""], [b"", b"2", b""]),
        ([b"before" + CHATTER, b"7"], [b"before" + CHATTER, b"7"]),
        ([b"a is connected to b"], [b"a is connected to b"]),
    ],
)
def test_gloos_lines_and_no_others_are_left_out(written, kept):
    assert list(itertools.chain(*without_gloo([line] for line in written))) == kept


@pytest.mark.parametrize("seed", range(200))
def test_pieces_that_threads_of_gloo_print_at_once_are_left_out(seed):
    choice = random.Random(seed)
    pieces = ["[Gloo] Rank ", "12", " is connected to ", "3", " peer ranks. "]
    pieces += ["Expected number of connected peer ranks is : ", "3", "\n"]
    threads = [list(pieces) for _ in range(choice.randint(1, 4))]
    written = ["before\n"]
    while threads := [thread for thread in threads if thread]:
        written.append(choice.choice(threads).pop(0))
    lines = ("".join(written) + "3\n\nafter\n").encode().split(b"\n")[:-1]
    assert [*itertools.chain(*without_gloo([line] for line in lines))] == [b"before", b"3", b"", b"after"]
