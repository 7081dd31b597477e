"""Which process exited first, however late that is looked at."""

import itertools
import os
import subprocess
import sys

import pytest

from jax_array_info_cli.launch.exits import Exits

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the order"),
    pytest.mark.own_process,
    pytest.mark.newest,
]


def wait_until_dead(started):
    os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)


def waits_for_input():
    return subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_exits_are_reported_in_their_order_once(order):
    reported = []
    exits = Exits(lambda process, code: reported.append((process, code)))
    started = [waits_for_input() for _ in range(3)]
    for process, program in enumerate(started):
        exits.watch(process, program)
    exits.catch_up()
    assert reported == []
    for process in order:
        started[process].stdin.close()
        wait_until_dead(started[process])
    exits.catch_up()
    exits.catch_up()
    assert reported == [(process, 0) for process in order]


def test_without_descriptors_of_processes_each_exit_is_reported_too(monkeypatch):
    def refuse(process):
        raise OSError("not here")

    monkeypatch.setattr("os.pidfd_open", refuse)
    reported = []
    exits = Exits(lambda process, code: reported.append((process, code)))
    started = waits_for_input()
    exits.watch(0, started)
    exits.catch_up()
    assert reported == []
    started.kill()
    wait_until_dead(started)
    exits.catch_up()
    exits.catch_up()
    assert reported == [(0, -9)]
