"""Output of real processes that are connected by ``jax.distributed``."""

import re

import pytest

from tests.processes import run_processes

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]

PROGRAM = """
import contextlib, io
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import jax_array_info as info

info.config.process = 1
shown = io.StringIO()
with contextlib.redirect_stdout(shown):
    info.print_mesh({"a": 2})
send(repr(shown.getvalue().splitlines()[:1]))

mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
zeros = np.zeros((8, 16), np.float32)
array = jax.make_array_from_callback(zeros.shape, NamedSharding(mesh, P("a", "b")), lambda index: zeros[index])

def show():
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        info.sharding_info(array, "x")
        info.sharding_vis(array)
        info.print_mesh(mesh)
        info.print_array_stats()
    for line in shown.getvalue().splitlines():
        send(line)

if process == 0:
    # Only in this process: a call that started a collective would hang.
    info.config.process = 0
    show()
    info.config.process = 1
info.gather_reports(info.array_report(array))
show()
send(info.label_of(array))
send(*[device.id for device in jax.devices()])
"""


def test_only_the_chosen_process_prints_and_each_panel_has_its_own_shards():
    first, second = run_processes(PROGRAM)
    *first, first_label, ids = first
    *second, second_label, _ = second
    assert first_label == second_label == "x"
    assert (first.pop(0), second.pop(0)) == ("[]", "['mesh a=2']")
    ids = ids.split()
    places = [f"CPU {ids[0]}-{ids[3]}", f"CPU {ids[4]}-{ids[7]}"]
    for process, lines in enumerate((first, second)):
        texts = [line.strip("│ ") for line in lines]
        start = 4 * process
        holds = texts.index("!is_fully_addressable") + 1
        assert texts[holds : holds + 2] == [
            f"process {process} holds 1/2: [{start}:{start + 4}, 0:16]",
            f"on {places[process]}: 256.0 B",
        ]
        legends = [re.split("  +", text) for text in texts if text.startswith("process 0: ")]
        assert legends == [[f"process 0: {places[0]}", f"process 1: {places[1]}"]] * 2
        cells = re.findall(r"CPU \d+ p\d", " ".join(texts))
        assert cells == [f"CPU {device} p{number // 4}" for number, device in enumerate(ids)]
        rows = [re.split(" *│ *", text) for text in texts if text.startswith("64.0 B")]
        assert rows[0] == ["64.0 B", "(8, 16)", "float32", "✔ (512.0 B total)", "x"]
        assert rows[1][0] == "64.0 B", "the fullest device"
