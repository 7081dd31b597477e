"""Functions that run in several threads."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor


def in_threads(work, numbers):
    """Return what a function returns for each number, each in a thread of its own; raise the first error."""
    started = threading.Barrier(len(numbers))

    def begin(number):
        started.wait()
        return work(number)

    with ThreadPoolExecutor(len(numbers)) as pool:
        return list(pool.map(begin, numbers))


@contextlib.contextmanager
def meanwhile(work, count=1):
    """Call a function again and again in other threads until the block ends; raise the first error."""
    done = threading.Event()

    def repeat():
        while not done.is_set():
            work()

    with ThreadPoolExecutor(count) as pool:
        running = [pool.submit(repeat) for _ in range(count)]
        try:
            yield
        finally:
            done.set()
    for one in running:
        one.result()
