"""Kills, threads and sizes that reports withstand."""

import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info.render import to_text
from jax_array_info_core import (
    PathRules,
    check_report,
    compile_caches_report,
    live_array_report,
    program_report,
    tree_report,
    watch_compiles,
)
from tests.fuzz.test_inputs import IS_LONG

KILLED = """
import os, pathlib, random, signal, time
from jax_array_info_core.reports.json import write_whole
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


def test_16_threads_get_their_reports_while_caches_are_cleared(capfd):
    failed = []

    def work(number):
        try:
            for turn in range(2):
                argument = jax.ShapeDtypeStruct((number, 4), np.float32)
                report = program_report(lambda x: x * number, argument, fresh=bool(turn % 2))
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
