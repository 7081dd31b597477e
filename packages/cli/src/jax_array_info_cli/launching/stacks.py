"""The stacks of a process that hangs, written by ``faulthandler`` when the supervisor asks for them."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import selectors
import signal
import time
from collections.abc import Mapping

_ASK = signal.SIGUSR2
_END = b"\0"
_CHUNK = 2**16
_OURS = tuple(f'  File "{file}'.encode() for file in (os.path.dirname(__file__) + os.sep, "<frozen runpy>"))


def answer_with_stacks(descriptor: int) -> None:
    """Let this process write the stacks of its threads into a pipe when it is asked.

    ``faulthandler`` writes them even where the process hangs in C. It then calls the handler in Python, which
    runs only where Python code does, and marks the end of the stacks.
    """
    os.set_inheritable(descriptor, False)
    signal.signal(_ASK, lambda number, frame: _write_end(descriptor))
    faulthandler.register(_ASK, file=descriptor, all_threads=True, chain=True)


def _write_end(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, _END)


def ask_for_stacks(processes: Mapping[int, int], patience: float) -> list[list[bytes]]:
    """Return the stacks of processes that run, as lines, without the frames that led to the program.

    Args:
        processes: The reader's end of the pipe of each, by the id of the process.
        patience: Seconds for those that cannot tell where their stacks end.
    """
    written = dict.fromkeys(processes.values(), b"")
    with selectors.DefaultSelector() as open_pipes:
        for process, descriptor in processes.items():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, _ASK)
                open_pipes.register(descriptor, selectors.EVENT_READ)
        deadline = time.monotonic() + patience
        while open_pipes.get_map() and (left := deadline - time.monotonic()) > 0:
            for pipe, _ in open_pipes.select(left):
                data = os.read(pipe.fd, _CHUNK)
                written[pipe.fd] += data
                if not data or data.endswith(_END):
                    open_pipes.unregister(pipe.fd)
    return [_program_lines(stacks) for stacks in written.values()]


def _program_lines(stacks: bytes) -> list[bytes]:
    lines = stacks.removesuffix(_END).splitlines()
    return [line for line in lines if not line.startswith(_OURS)]
