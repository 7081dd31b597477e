"""Runs a program, and leaves nothing of it when it ends, or when who asked for it is gone.

Started as a program: ``guard.py DESCRIPTOR WORD ...`` runs the words. Whoever starts it holds the other end
of the descriptor's pipe, which closes when they close it or end, however they do.
"""

import os
import signal
import subprocess
import sys
import threading

from jax_array_info_cli.launch.descendants import adopt_orphans, end_descendants


def main() -> None:
    """Run the program; exit with its code, as a shell does."""
    lifeline, words = int(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGINT, lambda number, frame: None)  # the program has it too, and decides
    adopt_orphans()
    program = subprocess.Popen(words)  # what to run is what it is asked
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    code = program.wait()
    end_descendants(0)
    os._exit(code if code >= 0 else 128 - code)


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)
    end_descendants(0)
    os._exit(128 + signal.SIGKILL)


if __name__ == "__main__":
    main()
