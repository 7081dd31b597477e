"""The order of process exits, however late it is read."""

import itertools
import os
import socket
import subprocess
import sys
import time

import pytest

from jax_array_info_cli.launch.channel import announce_end
from jax_array_info_cli.launch.exits import Exits

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the order"),
    pytest.mark.own_process,
    pytest.mark.newest,
]


def start(exits, process):
    """Start a program that exits when its input closes, watched by ``exits``."""
    channel, its = socket.socketpair()
    with its:
        started = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[its.fileno()])
    exits.watch(process, started, channel)
    return started, channel


def end(started):
    started.stdin.close()
    os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("collect", [Exits.catch_up, Exits.reap])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_exits_are_reported_once_and_in_order(order, collect):
    reported = []
    exits = Exits(lambda process, code: reported.append((process, code)))
    started = [start(exits, process) for process in range(3)]
    collect(exits)
    assert reported == []
    for process in order:
        end(started[process][0])
    for _ in range(2):
        collect(exits)
        assert reported == [(process, 0) for process in order]


def test_an_exit_is_reported_although_a_fork_has_the_socket_open():
    reported = []
    exits = Exits(lambda process, code: reported.append((process, code)))
    channel, its = socket.socketpair()
    with its:
        started = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[its.fileno()])
        exits.watch(0, started, channel)
        started.kill()
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        exits.catch_up()
        assert reported == []
        exits.reap()
        assert reported == [(0, -9)]


def test_a_process_can_hang_up_before_it_exits():
    reported = []
    exits = Exits(lambda process, code: reported.append((process, code)))
    channel, its = socket.socketpair()
    with its:
        started = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        exits.watch(0, started, channel)
        announce_end(os.dup(its.fileno()))
        started.kill()
        exits.catch_up()
        assert reported == [(0, -9)]


class Lingering:
    """A process that has hung up but keeps running."""

    def __init__(self):
        self.waits = []

    def wait(self, timeout):
        self.waits.append(timeout)
        raise subprocess.TimeoutExpired("lingering", timeout)

    def poll(self):
        return None


def test_a_running_process_that_has_hung_up_delays_others_once_and_its_own_lines_never(monkeypatch):
    clock = iter([100.0, 101.0, 200.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    exits = Exits(lambda process, code: None)
    channel, its = socket.socketpair()
    lingering = Lingering()
    exits.watch(0, lingering, channel)
    its.close()
    exits.catch_up(0)
    assert lingering.waits == []
    exits.catch_up(1)
    exits.catch_up(1)
    assert lingering.waits == [4.0, 0]
