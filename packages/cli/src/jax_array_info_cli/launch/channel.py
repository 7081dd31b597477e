"""The socket between the supervisor and a worker: the job one way, joining and stacks the other."""

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

from .job import Job

ASK_FOR_STACKS = signal.SIGUSR2

_JOINS = b"\n"
_END_OF_STACKS = b"\0"
_CHUNK = 2**16
_HIGHEST = 2**16
_OURS = tuple(f'  File "{file}'.encode() for file in (os.path.dirname(__file__) + os.sep, "<frozen runpy>"))


# The supervisor's end


def send_job(channel: socket.socket, job: Job) -> None:
    """Tell a worker what to run, unless it has ended already."""
    with contextlib.suppress(ConnectionError):
        channel.sendall(pickle.dumps(job))


def has_joined(channel: socket.socket) -> bool:
    """Return whether a worker has begun to join the others."""
    with contextlib.suppress(OSError):  # nothing was written yet
        return bool(channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    return False


def read_stacks(channel: socket.socket, deadline: float) -> list[bytes]:
    """Return the stacks of a worker that was asked, as lines, without the frames that led to the program.

    Args:
        channel: The socket.
        deadline: When to stop waiting for a worker that cannot mark their end, by ``time.monotonic``.
    """
    stacks = b""
    with contextlib.suppress(OSError):  # a timeout is one
        while not stacks.endswith(_END_OF_STACKS):
            channel.settimeout(max(deadline - time.monotonic(), 0))
            if not (data := channel.recv(_CHUNK)):
                break
            stacks += data
    lines = stacks.removeprefix(_JOINS).removesuffix(_END_OF_STACKS).splitlines()
    return [line for line in lines if not line.startswith(_OURS)]


# The worker's end


def receive_job(descriptor: int) -> tuple[Job, int]:
    """Return what this worker is to run, and where its end of the socket is from then on.

    There Linux closes it before anything else when the worker dies: the highest descriptor goes first. What
    the worker starts later does not get it.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    channel = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min(limit, _HIGHEST) - 1)
    with open(descriptor, "rb") as file:
        return pickle.load(file), channel  # noqa: S301, the supervisor has written it


def announce_join(descriptor: int) -> None:
    """Tell the supervisor that this worker begins to wait for the others."""
    os.write(descriptor, _JOINS)


def announce_end(descriptor: int) -> None:
    """Hang up, for the case that a fork of this worker lives on."""
    with contextlib.suppress(OSError), socket.socket(fileno=descriptor) as channel:
        channel.shutdown(socket.SHUT_RDWR)


def answer_with_stacks(descriptor: int) -> None:
    """Let this worker write the stacks of its threads when it is asked.

    ``faulthandler`` writes them even where the process hangs in C. It then calls the handler in Python, which
    runs only where Python code does, and marks the end of the stacks.
    """

    def mark_end(number: int, frame: object) -> None:
        with contextlib.suppress(OSError):  # the program may have closed all it had open
            os.write(descriptor, _END_OF_STACKS)

    signal.signal(ASK_FOR_STACKS, mark_end)
    faulthandler.register(ASK_FOR_STACKS, file=descriptor, all_threads=True, chain=True)
