"""``jai-cli run --record``, the memory of each process over time, and programs that run out of device memory."""

import pytest

from tests.cli.launching import run, write_program
from tests.records import bytes_of, lines_in, of_kind, record_of, segment_paths

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]

TRAINING = """
import os, sys, time
import jax
import jax.numpy as jnp
from pathlib import Path
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def sampled(count):
    while sum(path.read_bytes().count(b'{"line":"sample"') for path in Path(FOLDER).glob("*.jsonl")) < count:
        time.sleep(0.01)

def train():
    mesh = Mesh(jax.devices(), ("data",))
    return jax.make_array_from_callback(
        (64, 4), NamedSharding(mesh, P("data")), lambda index: jnp.zeros((64, 4))[index]
    )

kept = train()
sampled(jax.process_count())
"""


def test_two_processes_of_four_devices_write_to_one_folder(tmp_path):
    code = TRAINING.replace("FOLDER", repr(str(tmp_path / "memory")))
    script = write_program(tmp_path, code)
    options = ("--quiet", "--processes", 2, "--devices", 4, "--record", "memory")
    done = run(*options, script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    paths = segment_paths(tmp_path / "memory")
    assert len(paths) == 2
    for process, path in enumerate(paths):
        start, *lines, end = lines_in(path)
        assert (start.process, start.process_count, len(start.devices)) == (process, 2, 4)
        assert (end.reason, end.message) == ("exited", "")
        last = of_kind(lines, "sample")[-1]
        assert bytes_of([start, *lines], last)["train", "float32[64,4]"] == 4 * 128
        assert last.in_use == (128,) * 4


def test_an_out_of_memory_error_is_recorded_before_the_traceback(tmp_path):
    code = """
        import jax.numpy as jnp
        from jax_array_info import record_memory
        def train():
            held = jnp.zeros((30, 40))
            return held, jnp.zeros(2**50, jnp.int8)
        with record_memory("other") as recorder, recorder.mark("train"):
            recorder.step(7)
            train()
    """
    done = run("--record", "memory", write_program(tmp_path, code), cwd=tmp_path)
    assert done.returncode == 1
    message = f"records the memory of this program to {tmp_path / 'memory'}: that recorder is used"
    assert done.stderr.count(message) == 1
    assert done.stderr.count("live arrays at") == 1
    lines = record_of(tmp_path / "memory")
    (failure,) = of_kind(lines, "out of memory")
    assert (failure.requested_nbytes, failure.step) == (2**50, 7)
    assert [mark.name for mark in of_kind(lines, "mark")] == ["train"] * 2
    sample = next(line for line in lines[lines.index(failure) :] if line in of_kind(lines, "sample"))
    assert bytes_of(lines, sample)["train", "float32[30,40]"] == 4800
    assert lines[-1].reason == "raised"
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("imports", ["import jax.numpy as jnp", ""])
def test_a_recorder_of_the_program_is_that_of_the_command(tmp_path, imports):
    """Also one that starts before the program imports JAX, and after its block."""
    code = f"""
        {imports}
        from jax_array_info import record_memory
        with record_memory("other", every=100) as recorder:
            import jax.numpy as jnp
            with recorder.mark("load"):
                kept = jnp.zeros((1000,), jnp.int8)
        recorder.stop()
        with recorder.mark("eval"):
            kept.block_until_ready()
        print("ends")
    """
    done = run("--quiet", "--record", "memory", write_program(tmp_path, code), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ends\n")
    assert done.stderr.count("that recorder is used") == 1
    start, *lines = record_of(tmp_path / "memory")
    assert start.every == 1
    marks = of_kind(lines, "mark")
    assert [mark.name for mark in marks] == ["load", "load", "eval", "eval"]
    # They are unknown where another program needs the processor: counting takes at most 5 ms.
    in_use = [sum(mark.in_use) for mark in marks if mark.in_use]
    assert in_use == [
        nbytes for mark, nbytes in zip(marks, (0, 1000, 1000, 1000), strict=True) if mark.in_use
    ]
    assert lines[-1].reason == "exited"
    assert [*(tmp_path / "other").glob("*")] == []


def test_a_program_without_jax_has_no_record_and_its_modules_stay_its_own(tmp_path):
    code = "import sys; print(*{'jax', 'numpy', 'msgspec'} & set(sys.modules), sys.argv[1:])"
    done = run("--record", "memory", write_program(tmp_path, code), "--record", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['--record']\n", "")
    assert list((tmp_path / "memory").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line_before_the_program_runs(tmp_path):
    script = write_program(tmp_path, "print('runs')")
    (tmp_path / "file").touch()
    for folder, code, problem in (("file", 2, "is a file"), ("file/below", 1, "Not a directory")):
        done = run("--record", folder, script, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, "")
        assert problem in done.stderr.splitlines()[-1]


HUNGRY = """
import jax.numpy as jnp

def train():
    held = jnp.zeros((30, 40))
    return held, jnp.zeros(2**50, jnp.int8)
"""


TRACEBACK = "Traceback (most recent call last)"


@pytest.mark.parametrize(
    ("options", "ending", "code", "has_table"),
    [
        ((), "train()", 1, True),
        ((), "try:\n    train()\nexcept Exception:\n    raise SystemExit(7)", 7, True),
        (("--quiet",), "train()", 1, False),
        ((), "held = jnp.zeros(3)\n1 / 0", 1, False),
    ],
)
def test_live_arrays_are_printed_before_the_traceback(tmp_path, options, ending, code, has_table):
    done = run(*options, write_program(tmp_path, f"{HUNGRY}\n{ending}"))
    assert (done.returncode, done.stdout) == (code, "")
    table, traceback, _ = done.stderr.partition(TRACEBACK)
    assert bool(traceback) == (code == 1)
    assert done.stderr.count("live arrays at") == has_table
    if has_table:
        assert table.startswith("live arrays at RESOURCE_EXHAUSTED: Out of memory allocating")
        assert "(30, 40)" in table
        assert "program.py:5 train" in table
    else:
        assert table == ""


def test_with_several_processes_each_line_is_prefixed(tmp_path):
    ending = "import jax\ntrain() if jax.process_index() else __import__('time').sleep(1000)"
    done = run("--processes", "2", "--devices", "2", write_program(tmp_path, f"{HUNGRY}\n{ending}"))
    assert done.returncode == 1
    *lines, last = done.stderr.splitlines()
    assert last == "jai-cli run: process 1 of 2 failed with exit code 1"
    assert all(line.startswith("[1] ") for line in lines)
    assert any("program.py:5 train" in line for line in lines)
