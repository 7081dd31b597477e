"""Interrupts at random moments of a compilation: nothing of it stays behind."""

import os
import subprocess
import sys

PROGRAM = """
import os, random, signal, sys, threading, time
import tests.conftest
import jax, jax.numpy as jnp
from jax_array_info_core import program_report

def left():
    try:
        children = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        children = None
    names = sorted(thread.name for thread in threading.enumerate())
    return os.listdir("/proc/self/fd"), os.readlink("/proc/self/fd/2"), names, children

def work(number):
    return program_report(lambda x: jnp.sin(x) @ x.T + number, jax.ShapeDtypeStruct((8, 8), "float32"))

def interrupt(*_):
    raise KeyboardInterrupt

def unraisable(one):
    # An interrupt in a callback of the garbage collector is lost, and Python prints it.
    if one.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(one)

sys.unraisablehook = unraisable
[work(0) for _ in range(3)]
time.sleep(1)
times = []
for _ in range(3):
    start = time.perf_counter()
    work(0)
    times.append(time.perf_counter() - start)
longest = 1.2 * min(times)  # whatever else runs
before = left()
random = random.Random(0)
signal.signal(signal.SIGALRM, interrupt)
interrupted = 0
for number in range(int(sys.argv[1])):
    seconds = random.uniform(1e-4, longest)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        work(number)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except (KeyboardInterrupt, ValueError) as error:
        # Caches of JAX raise a ValueError for any exception of a comparison, and name it.
        if "KeyboardInterrupt" not in f"{error!r} {error.__context__!r} {error.__cause__!r}":
            raise
        interrupted += 1
    for _ in range(100):  # threads that end by themselves
        if (after := left()) == before:
            break
        time.sleep(0.05)
    assert after == before, f"interrupt {number} after {seconds:.6f} s: {after}, before {before}"
assert work(-1).dot_flops
print("interrupted:", interrupted)
"""


def test_interrupts_of_a_compilation_leave_nothing_behind():
    count = 1000 if "JAI_FUZZ" in os.environ else 40
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(count)], capture_output=True, text=True, check=False, timeout=3000
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout.removeprefix("interrupted: ")) > count // 4
