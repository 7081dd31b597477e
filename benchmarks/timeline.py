"""Time and memory of ``timeline_report`` for a record of 24 hours, one sample a second.

400 groups of arrays come and go, 64 in each sample, on 8 devices. One leaks, and an evaluation takes ten
seconds of each minute.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from jax_array_info_core.facts.reports.record import (
    RecordDevice,
    RecordGroup,
    RecordLine,
    RecordMark,
    RecordSample,
    RecordStart,
)
from jax_array_info_core.jobs.timeline.segments import encoded
from jax_array_info_core.reports import Origin

SECONDS = 86_400
GROUPS = 400
IN_SAMPLE = 64
DEVICES = 8
START = 1_764_115_200.0
MIB = 2**20

_READ = """
import resource, sys, time
from jax_array_info_core import timeline_report
start = time.perf_counter()
report = timeline_report(sys.argv[1])
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
grown = [growth.name for growth in report.growth]
print(f"{seconds:.1f} s, {peak:.0f} MiB in all, growing: {', '.join(grown)}")
"""


def lines() -> list[RecordLine]:
    """Return the start of the record and its groups."""
    devices = tuple(
        RecordDevice(id=number, name=f"cuda:{number}", bytes_limit=2**36) for number in range(DEVICES)
    )
    start = RecordStart(
        time=START,
        started=START,
        segment=0,
        process=0,
        process_count=1,
        host_name="host",
        pid=1,
        platform="gpu",
        devices=devices,
        in_use_source="arrays",
        every=1.0,
    )
    groups = [
        RecordGroup(
            id=number,
            shape=(number + 1, MIB // 4),
            dtype="float32",
            sharding="P() over data=8",
            shard_nbytes=(number + 1) * MIB // 64,
            devices=tuple(range(DEVICES)),
            origin=Origin(file="/home/me/train.py", line=number + 1, function="step"),
        )
        for number in range(GROUPS)
    ]
    return [start, *groups]


def sample(second: int) -> RecordSample:
    """Return a sample: group 0 leaks, the others of the sample change each minute."""
    first = 1 + second // 60 % (GROUPS - IN_SAMPLE)
    groups = (0, *range(first, first + IN_SAMPLE - 1))
    counts = (second // 7, *((3 if second % 60 >= 50 else 2,) * (IN_SAMPLE - 1)))
    use = sum((group + 1) * MIB // 64 * count for group, count in zip(groups, counts, strict=True))
    return RecordSample(
        time=START + second,
        step=3 * second,
        in_use=(use,) * DEVICES,
        peak=(use,) * DEVICES,
        groups=groups,
        counts=counts,
        other_nbytes=(0,) * DEVICES,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "process-0.jsonl"
        with open(path, "wb") as file:
            for line in lines():
                file.write(encoded(line))
            for second in range(SECONDS):
                if second % 60 == 50:
                    file.write(encoded(RecordMark(time=START + second, name="eval")))
                if second % 60 == 0 and second:
                    file.write(encoded(RecordMark(time=START + second, name="eval", is_end=True)))
                file.write(encoded(sample(second)))
        print(f"{SECONDS:,} samples, {path.stat().st_size / 1e6:.0f} MB")
        subprocess.run([sys.executable, "-c", _READ, folder], check=True)


if __name__ == "__main__":
    main()
