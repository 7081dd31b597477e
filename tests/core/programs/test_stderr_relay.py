"""Lines that are taken out of standard error."""

import itertools
import os
import select
import subprocess
import sys
import tempfile
import textwrap
import threading

import pytest

from jax_array_info_core.programs.stderr_relay import taken_from_stderr

pytestmark = pytest.mark.oldest_and_newest


def take(line):
    """Take what begins with TAKE."""
    start = line.find(b"TAKE")
    return None if start < 0 else start


def join_relays():
    """Wait for threads that pass on the output of child processes."""
    for thread in threading.enumerate():
        if thread.name == "jax_array_info stderr":
            thread.join()


def test_lines_are_taken_and_all_else_passes_in_order(capfd):
    with taken_from_stderr(take) as taken:
        os.write(2, b"one\nTAKE 1\ntwo\r")
        os.write(2, b"three\n")
        os.write(2, b"\xff\0four TAKE 2\nfive")
    os.write(2, b" six\n")
    assert taken == [b"TAKE 1\n", b"TAKE 2\n"]
    assert capfd.readouterr().err == "one\ntwo\rthree\n\ufffd\0four five six\n"


def test_a_line_that_comes_in_parts_is_taken_whole(capfd):
    with taken_from_stderr(take) as taken:
        for part in (
            b"W1122 10:",
            b"00 TAK",
            b"E this",
            b" one\nnot this\n",
            b"W1122 10:00 TAKE without an end",
        ):
            os.write(2, part)
    assert taken == [b"TAKE this one\n", b"TAKE without an end"]
    assert capfd.readouterr().err == "W1122 10:00 not this\nW1122 10:00 "


def test_output_is_not_held_back_until_the_block_ends():
    read, write = os.pipe()
    real = os.dup(2)
    os.dup2(write, 2)
    try:
        with taken_from_stderr(take):
            for text in (b"loading: 10 %", b"done\n", b"W1122 10:00 no end"):
                os.write(2, text)
                assert select.select([read], [], [], 20)[0]
                assert os.read(read, 100) == text
    finally:
        os.dup2(real, 2)
        for descriptor in (read, write, real):
            os.close(descriptor)


def test_much_output_passes(capfd):
    line = b"x" * 99 + b"\n"
    with taken_from_stderr(take):
        for _ in range(20):
            os.write(2, line * 2000)
    assert capfd.readouterr().err.encode() == line * 40_000


def test_lines_that_another_thread_writes_while_blocks_end_are_all_passed_and_almost_all_in_order():
    count, is_over = 0, threading.Event()

    def write():
        nonlocal count
        while not is_over.is_set():
            os.write(2, b"%d\n" % count)
            count += 1

    with tempfile.TemporaryFile() as file:
        real = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            thread = threading.Thread(target=write)
            thread.start()
            for _ in range(20):
                with taken_from_stderr(take):
                    is_over.wait(0.005)
            is_over.set()
            thread.join()
        finally:
            os.dup2(real, 2)
            os.close(real)
        file.seek(0)
        numbers = list(map(int, file.read().split()))
    assert sorted(numbers) == list(range(count))
    # One place for the rest of the pipe in each block, at most: before it, in it and after it.
    assert sum(one + 1 != other for one, other in itertools.pairwise(numbers)) <= 60


def test_each_of_16_threads_takes_its_own_lines(capfd):
    found = {}

    def work(number):
        for turn in range(5):
            with taken_from_stderr(take) as taken:
                os.write(2, f"pass {number} {turn}\nTAKE {number} {turn}\n".encode())
            found[number, turn] = taken

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {(n, t): [f"TAKE {n} {t}\n".encode()] for n in range(16) for t in range(5)}
    lines = capfd.readouterr().err.splitlines()
    assert sorted(lines) == sorted(f"pass {n} {t}" for n in range(16) for t in range(5))


def test_blocks_can_be_nested(capfd):
    with taken_from_stderr(take) as outer:
        with taken_from_stderr(lambda line: line.find(b"IN") if b"IN" in line else None) as inner:
            os.write(2, b"IN\nTAKE\nx\n")
        os.write(2, b"IN\n")
    assert (outer, inner) == ([b"TAKE\n"], [b"IN\n"])
    assert capfd.readouterr().err == "x\nIN\n"


def test_standard_error_is_restored_after_an_error(capfd):
    before = os.fstat(2)

    def fail():
        assert os.fstat(2).st_ino != before.st_ino
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"), taken_from_stderr(take):
        fail()
    assert os.fstat(2).st_ino == before.st_ino


def test_descriptors_threads_and_processes_do_not_remain():
    def count():
        return len(os.listdir("/dev/fd")), threading.active_count()

    join_relays()
    before = count()
    for _ in range(3):
        with taken_from_stderr(take):
            pass
    join_relays()
    assert count() == before


def test_a_child_process_started_inside_writes_as_long_as_it_lives(capfd):
    with taken_from_stderr(take) as taken:
        child = subprocess.Popen(["/bin/sh", "-c", "read line; echo TAKE late >&2"], stdin=subprocess.PIPE)
    assert taken == []
    os.write(2, b"first\n")
    child.communicate(b"\n")
    assert child.returncode == 0
    join_relays()
    # The block is over: nothing is taken any more.
    assert capfd.readouterr().err == "first\nTAKE late\n"


def test_nothing_is_taken_where_standard_error_is_closed():
    real = os.dup(2)
    os.close(2)
    try:
        with taken_from_stderr(take) as taken:
            assert taken is None
    finally:
        os.dup2(real, 2)
        os.close(real)


ENDINGS = {
    "killed": "os.kill(os.getpid(), 9)",
    "aborted": "os.abort()",
    "ended": "os._exit(3)",
}


@pytest.mark.own_process
@pytest.mark.newest
@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_last_words_are_printed_when_the_process_dies(ending):
    code = f"""
        import os, subprocess
        from jax_array_info_core.programs.stderr_relay import taken_from_stderr
        with taken_from_stderr(lambda line: None):
            child = subprocess.Popen(["/bin/sh", "-c", "sleep 0.5; echo child >&2"])
            os.write(2, b"last words\\n")
            {ending}
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, timeout=100, check=False
    )
    assert done.returncode != 0
    assert done.stderr == b"last words\nchild\n"


@pytest.mark.own_process
@pytest.mark.newest
def test_a_forked_process_has_the_real_standard_error():
    code = """
        import os
        from jax_array_info_core.programs.stderr_relay import taken_from_stderr
        with taken_from_stderr(lambda line: None if b"TAKE" not in line else 0) as outer:
            if os.fork() == 0:
                os.write(2, b"TAKE child\\n")
                with taken_from_stderr(lambda line: 0) as inner:
                    os.write(2, b"inside\\n")
                os.write(2, f"{inner}\\n".encode())
                os._exit(0)
            assert os.wait()[1] == 0
        assert outer == []
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        timeout=100,
        check=True,
    )
    assert done.stderr == b"TAKE child\n[b'inside\\n']\n"
