"""A program that runs ``worker.py`` apart from the process that asks, and ends it with that process.

It is started with the number of that process, and the arguments of ``worker.py``. Standard input is the
socket to it. This first process makes a second one and ends, so that the process that asks has no child
left. The second one sends its number, starts the worker, and watches it: no pass can hold it up.
"""

from __future__ import annotations

import os
import sys

SOCKET = 0
INTERVAL_MILLISECONDS = 500


def separate() -> None:
    """Continue in a process that is not a child of the one that asks."""
    if os.fork():
        os._exit(0)
    os.write(SOCKET, os.getpid().to_bytes(8, "little"))
    import resource  # not before, since the program waits for the first process
    import signal

    os.chdir("/")
    signal.signal(
        signal.SIGCHLD, signal.SIG_DFL
    )  # ignored by the program, it would hide how the worker ended
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def start_worker() -> None:
    """Return in the worker. The process that starts it watches it, and exits without returning."""
    ended, running = os.pipe()
    worker = os.fork()
    if worker == 0:
        os.close(ended)  # the other end closes when the worker ends
        return
    try:
        os.close(running)
        watch(worker, ended, asking=int(sys.argv[1]))
    finally:
        os._exit(0)


def watch(worker: int, ended: int, asking: int) -> None:
    """Send how the worker ends, or end it if the other end of the socket closes or its process ends."""
    import select
    import signal

    events = select.poll()
    for number in (ended, SOCKET):
        events.register(number, 0)  # only for its end
    closed: set[int] = set()
    while not closed and _exists(asking):  # a fork of that process may keep the socket open
        closed = {number for number, _ in events.poll(INTERVAL_MILLISECONDS)}
    if ended not in closed:
        os.kill(worker, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    names = {-number.value: number.name for number in signal.Signals}
    message = f'{{"ended": " with {names.get(code, f"exit code {code}")}"}}'.encode()
    os.write(SOCKET, len(message).to_bytes(8, "little") + message)


def _exists(process: int) -> bool:
    """Return whether a process exists."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it has become another user's
        pass
    return True


if __name__ == "__main__":
    separate()
    start_worker()
    del sys.argv[1]
    import runpy

    runpy.run_path(os.path.join(os.path.dirname(__file__), "worker.py"), run_name="__main__")
