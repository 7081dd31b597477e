"""Kills, threads and sizes that reports withstand."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info.engine.render import to_text
from jax_array_info_core import (
    PathRules,
    check_report,
    compile_caches_report,
    live_array_report,
    program_report,
    timeline_report,
    tree_report,
    watch_compiles,
)
from jax_array_info_core.jobs.timeline.reading import read_line
from tests.fuzz.test_inputs import IS_LONG
from tests.records import segment_paths

KILLED = """
import os, pathlib, random, signal, time
from jax_array_info_core.base.files import write_whole
path, contents = pathlib.Path("x.json"), [bytes([number]) * 300_000 for number in range(2)]
write_whole(path, contents[0])
for _ in range(60):
    child = os.fork()
    while not child:
        for content in contents:
            write_whole(path, content)
    time.sleep(random.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert path.read_bytes() in contents
write_whole(path, b"last")
assert (path.read_bytes(), os.listdir()) == (b"last", ["x.json"])
"""


def test_a_file_is_whole_after_each_of_60_kills(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=True, timeout=300)


KILLED_RECORDERS = """
import itertools, os, pathlib, random, signal, time
from jax_array_info_core import timeline_report
from jax_array_info_core.jobs.timeline.reading import read_line
from jax_array_info_core.jobs.timeline.segments import Segment
from tests.records import segment_paths
from jax_array_info_core.jobs.timeline.segments import thin_segments
from tests.core.jobs.timeline.samples import record_start, samples_of
folder, samples = pathlib.Path("record").absolute(), samples_of([], {}, 200)
folder.mkdir()
for number in range(60):
    child = os.fork()
    if not child:
        for part in itertools.count():
            segment = Segment(folder, 0, time.time())
            segment.write(record_start(started=float(number), segment=part))
            for sample in samples:
                segment.write(sample)
            segment.close()
            for _ in thin_segments(folder, 0, 100_000):
                pass
    time.sleep(random.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for path in segment_paths(folder):
        for line in path.read_bytes().splitlines(keepends=True)[:-1]:
            read_line(line)
for _ in thin_segments(folder, 0, 100_000):
    pass
assert {path.suffix for path in folder.iterdir()} == {".jsonl"}
assert timeline_report(folder).processes
"""


def test_lines_are_whole_after_each_of_60_kills_of_a_recorder(tmp_path):
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run(
        [sys.executable, "-c", KILLED_RECORDERS], cwd=tmp_path, check=True, timeout=300, env=environment
    )


RUN = """
import sys, time
import jax.numpy as jnp
from jax_array_info_core import record_memory
with record_memory(sys.argv[1], every=0.01, max_nbytes=2**22) as recorder:
    kept = []
    while True:
        with recorder.mark("step"):
            kept = [*kept[-9:], jnp.ones(len(kept) + 1)]
        time.sleep(0.001)
"""


@pytest.mark.skipif(not IS_LONG, reason="takes minutes: the session fuzz runs it")
def test_200_runs_that_are_killed_leave_whole_lines(tmp_path):
    random = Random(0)
    for _ in range(200):
        running = subprocess.Popen([sys.executable, "-c", RUN, tmp_path])
        time.sleep(random.uniform(0, 4))
        running.kill()
        running.wait()
        for path in segment_paths(tmp_path):
            for line in path.read_bytes().splitlines(keepends=True)[:-1]:
                read_line(line)
    assert timeline_report(tmp_path).processes


def test_16_threads_get_their_reports_while_caches_are_cleared(capfd):
    failed = []

    def work(number):
        try:
            for _ in range(2):
                argument = jax.ShapeDtypeStruct((number, 4), np.float32)
                report = program_report(lambda x: x * number, argument)
                assert report.outputs[0].shape == (number, 4)
                assert jax.jit(jnp.sin)(np.zeros(number)).shape == (number,)
                assert compile_caches_report().jax_entries >= 0
                assert live_array_report().visible_devices == len(jax.devices())
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 17)]
    with watch_compiles():
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            jax.clear_caches()
            time.sleep(0.05)
    assert not failed
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not IS_LONG, reason="takes minutes: the session fuzz runs it")
def test_a_tree_of_a_million_leaves():
    count = 10**6
    leaf = np.zeros((8, 4), np.float32)
    report = tree_report({f"layer_{number}": leaf for number in range(count)}, mesh={"a": 2})
    assert len(report.rows) == count
    assert f"{count:,}" in to_text(report)
    assert check_report(report, mesh={"a": 2}, specs=PathRules({"*": ("a",)})).leaf_count == count
