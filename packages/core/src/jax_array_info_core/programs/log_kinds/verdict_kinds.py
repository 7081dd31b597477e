"""Kinds of lines in which a launcher, a scheduler or a cluster says how a process ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from signal import Signals

from .kinds import Kind

VERDICT_KINDS = (
    Kind(
        "process ended",
        "root",
        (
            r"jai-cli run: process <rank> of \d{1,9} (?:was killed by (?:signal )?(?P<signal>\w{1,12})"
            r"|failed with exit code <exit_code>)",
            r"process rank <rank> with PID \d{1,9} on node \S{1,200} exited on\s{1,9}"
            r"signal (?P<signal>\d{1,3})",
            r"Process name: \[\S{1,200}, ?<rank>\]",
            r"^= {1,9}RANK <rank> PID \d{1,9} RUNNING AT ",
            r"srun: error: \S{1,200}: tasks? (?P<ranks>\d[\d,-]{0,200}): "
            r"(?:Exited with exit code <exit_code>|(?P<signal>[A-Z][\w /]{1,40}))",
            r"MPI_ABORT was invoked on rank <rank> in communicator MPI_COMM_WORLD",
            r"Root Cause \(first observed failure\):",
        ),
        "A launcher says how this process ended.",
        "Read the end of the log of that rank, and the events of its host.",
        details=(
            r"^= {1,9}(?:KILLED BY SIGNAL: (?P<signal>\d{1,3})|EXIT (?:CODE|STATUS): <exit_code>)",
            r"^ {0,9}(?:Exit code: {1,9}|(?:with e|E)rrorcode:? )<exit_code>",
            r"^ {0,9}rank {1,9}: <rank> \(local_rank",
            r"^ {0,9}exitcode {1,9}: (?P<exit_code>-?\d{1,9})",
        ),
        is_hard=True,
    ),
    Kind(
        "timed out",
        "root",
        (r"jai-cli run: timed out after <seconds>(?:\.\d{1,9})? s",),
        "The job did not end within its time.",
        "Read the stacks: a process that wrote none is stopped, or stands in native code.",
        is_hard=True,
        is_weak=True,
        is_of_all=True,
    ),
)
"""Kinds of verdicts, with numbers by which ``verdict_words`` says how the process ended."""

_WORDS = {
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Terminated": "SIGTERM",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE",
    "Interrupt": "SIGINT",
    "Hangup": "SIGHUP",
}
"""Signals by what a shell or srun says of them."""
BY_OTHERS = ("SIGTERM", "SIGABRT", "SIGINT", "SIGHUP", "SIGPIPE")
"""Signals that end a process in consequence of another one's end: launchers and libraries send them."""


def signal_of(numbers: Mapping[str, int | str]) -> str:
    """Return the name of the signal of a verdict, or what stands for one; empty for an exit code.

    >>> signal_of({"exit_code": 139}), signal_of({"signal": "9"}), signal_of({"signal": "Out Of Memory"})
    ('SIGSEGV', 'SIGKILL', 'Out Of Memory')
    """
    said, code = numbers.get("signal"), int(numbers.get("exit_code", 0))
    if isinstance(said, str) and not said.isdecimal():
        return _WORDS.get(re.sub(r" +\(core dumped\)", "", said).strip(), said)
    number = int(said) if said is not None else -code if code < 0 else code - 128
    try:
        return Signals(number).name
    except ValueError:
        return "" if said is None else f"signal {said}"


def verdict_words(numbers: Mapping[str, int | str]) -> str:
    """Return how a process ended, such as ``killed by SIGKILL`` or ``exit code 3``; empty if unknown."""
    signal = signal_of(numbers)
    if "exit_code" not in numbers and not signal:
        return ""
    if re.fullmatch(r"(?i)out of memory", signal):
        return "killed: out of memory"
    native = " (segmentation fault)" if signal == "SIGSEGV" else ""
    return f"killed by {signal}{native}" if signal else f"exit code {numbers['exit_code']}"
