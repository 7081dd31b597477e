"""The socket between the supervisor and a worker: the job one way, join notices and stack traces back."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import pickle
import resource
import signal
import socket
import time

from .program import LAUNCHING, Job

DUMP_STACKS = signal.SIGUSR2

_JOINS = b"\n"
_END_OF_STACKS = b"\0"
_CHUNK = 2**16
_HIGHEST = 2**16
_OURS = tuple(f'  File "{file}'.encode() for file in LAUNCHING)


# The supervisor's end


def send_job(channel: socket.socket, job: Job) -> None:
    """Send a worker its job, unless it has exited already."""
    with contextlib.suppress(ConnectionError):
        channel.sendall(pickle.dumps(job))


def has_joined(channel: socket.socket) -> bool:
    """Return whether a worker has begun to join the other processes."""
    with contextlib.suppress(OSError):  # the worker has written nothing yet
        return bool(channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return False


def read_stacks(channel: socket.socket, deadline: float) -> list[bytes]:
    """Return the lines of a worker's stack dump, without the frames that led to the program.

    Args:
        channel: The supervisor's end of the socket.
        deadline: Time of ``time.monotonic`` at which to give up on a worker that cannot mark the end of its
            stacks.
    """
    stacks = b""
    with contextlib.suppress(OSError):  # TimeoutError is one
        while not stacks.endswith(_END_OF_STACKS):
            channel.settimeout(max(deadline - time.monotonic(), 0))
            if not (data := channel.recv(_CHUNK)):
                break
            stacks += data
    lines = stacks.removeprefix(_JOINS).removesuffix(_END_OF_STACKS).splitlines()
    return [line for line in lines if not line.startswith(_OURS)]


# The worker's end


def receive_job(descriptor: int) -> tuple[Job, int]:
    """Return this worker's job, and the new descriptor of its end of the socket.

    The new descriptor is the highest possible, because Linux closes the highest first when a process dies.
    Processes that the worker starts do not inherit it.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    channel = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min(limit, _HIGHEST) - 1)
    with open(descriptor, "rb") as file:
        return pickle.load(file), channel  # noqa: S301, written by the supervisor


def announce_join(descriptor: int) -> None:
    """Notify the supervisor that this worker is about to wait for the other processes."""
    os.write(descriptor, _JOINS)


def announce_end(descriptor: int) -> None:
    """Hang up, even if a fork of this worker still has the socket open."""
    with contextlib.suppress(OSError), socket.socket(fileno=descriptor) as channel:
        channel.shutdown(socket.SHUT_RDWR)


def answer_with_stacks(descriptor: int) -> None:
    """Make this worker write the stacks of its threads on ``DUMP_STACKS``.

    ``faulthandler`` writes them even if the process hangs in C. It then chains to the Python handler, which
    marks the end of the stacks; that one only runs while the process executes Python code.
    """

    def mark_end(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):  # the program may have closed every descriptor
            os.write(descriptor, _END_OF_STACKS)

    signal.signal(DUMP_STACKS, mark_end)
    faulthandler.register(DUMP_STACKS, file=descriptor, all_threads=True, chain=True)
