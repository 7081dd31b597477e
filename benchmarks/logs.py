"""Cost of ``log_report`` for logs of 100 MB, relative to a pass over their lines, and its rate and memory."""

from __future__ import annotations

import io
import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterator

from jax_array_info import log_report

SIZE = 20_000_000
ERROR = "RESOURCE_EXHAUSTED: Out of memory"
TABLE = (
    "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 16.69G of 15.75G hbm.\n"
    + '  1. Size: 3.50G\n     Operator: op_name="jit(f)/dot"\n     Shape: f32[56,2048,8192]\n\n' * 20
)
DONATION = "Some donated buffers were not usable:"
REMATERIALIZATION = "Involuntary full rematerialization"
SHARDED = (
    f"[SPMD] {REMATERIALIZATION}. The compiler cannot go from sharding {{devices=[2,1,4]<=[4,2]T(1,0)}} to"
    " {devices=[1,8,1]<=[8]} efficiently for HLO operation %add.3 = f32[8,16,4]{2,1,0} add(%param, %param),"
    ' metadata={op_name="jit(two)/add" stack_frame_id=2}. As the last resort'
)

LOGS: dict[str, Callable[[int], str]] = {
    "steps": lambda n: f"I1122 17:39:49.361057 step {n} loss 1.5\n",
    "line breaks": lambda n: "\n" * 100,
    "no line break": lambda n: f"step {n} ",
    "equal warnings": lambda n: f"W1122 {SHARDED}\n",
    "equal donations": lambda n: f"{DONATION} f32[1]\n",
    "warnings of JSON": lambda n: f'{{"text": "{SHARDED}", "step": {n}}}\n',
    "equal errors": lambda n: f"{ERROR} allocating 9000 bytes.\n",
    "errors": lambda n: f"{ERROR} allocating {n} bytes.\n",
    "errors in other wordings": lambda n: f"{ERROR} {n}\n",
    "equal tables": lambda n: TABLE,
    "tables": lambda n: TABLE.replace("16.69G", f"{n}G"),
    "errors of many processes": lambda n: f"[{n}] {ERROR} allocating 9000 bytes.\n\n\n\n",
    "an error and short lines": lambda n: f"{ERROR} allocating 9000 bytes." + "\n" * 99,
    "facts": lambda n: ("" if n else TABLE) + "Size: " * 100 + "\n",
    "other wordings": lambda n: f"{REMATERIALIZATION} {n}\n",
    "donations": lambda n: f"{DONATION} f32[{n}]\n",
    "one donation of many": lambda n: f" f32[{n}]," if n else DONATION,
    "wrapped donations": lambda n: f"f32[{n}],\n" if n % 900 else f"\n{DONATION}\n",
    "wrapped": lambda n: "{" * 1600 + "\n" if n % 10 else SHARDED[:100],
    "blanks": lambda n: DONATION + " x" + " " * 4000 + "\n",
    "blanks and commas": lambda n: DONATION + " x" + " ," * 2000 + "\n",
    "brackets": lambda n: DONATION + " x[" * 2000 + "\n",
    "parentheses": lambda n: DONATION + " f32[" + "@(," * 2000 + "]\n",
    "letters": lambda n: DONATION + " a" + "a" * 4000 + ",\n" + "a" * 4000 + "\n",
    "braces": lambda n: SHARDED[:100] + "{" * 4000 + "\n",
    "quotes": lambda n: SHARDED[:100] + '"' + '\\"' * 2000 + "\n",
    "almost": lambda n: DONATION[:-1],
    "escapes": lambda n: DONATION + "\x1b[" * 2000 + "\n",
    "wide letters": lambda n: f"{DONATION} \N{GRINNING FACE}" + "\N{GRINNING FACE}" * 1000,
}


def log(line: Callable[[int], str]) -> bytes:
    """Return a log of equal size for each kind of line."""

    def lines() -> Iterator[bytes]:
        size = 0
        for number in itertools.count():
            data = line(number).encode()
            size += len(data)
            yield data
            if size >= SIZE:
                return

    return b"".join(lines())


def measure(name: str, data: bytes) -> None:
    """Print the time, the rate, the memory and the rows of one log."""
    start = time.process_time()
    for text in io.BytesIO(data):
        text.find(b"Some donated buffers")
    lines = time.process_time() - start
    start = time.process_time()
    report = log_report(io.BytesIO(data))
    taken = time.process_time() - start
    part = io.BytesIO(data[: SIZE // 5])
    tracemalloc.start()
    log_report(part)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(
        f"{name}: {taken / lines:.2f} x a pass over the lines, {len(data) / taken / 1e6:.0f} MB/s"
        f" (bound: at least 20), {peak / 2**20:.0f} MiB (bound: at most 100),"
        f" {len(report.rematerializations)} + {len(report.donations)} rows, {report.unlisted_count} unlisted",
        flush=True,
    )


if __name__ == "__main__":
    for name, line in LOGS.items():
        measure(name, log(line))
