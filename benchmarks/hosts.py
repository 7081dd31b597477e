"""Time and memory of ``jai-cli hosts`` for the files of 1,000 processes, each with 10,000 rows.

Two processes are missing, one file is damaged, one is of another version, and one process has another array.
The files take 4.5 GB while it runs.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jax_array_info_core.facts.reports.json import summary_to_json, to_json
from jax_array_info_core.jobs.hosts.summaries import summary_of
from jax_array_info_core.reports import LiveArrayGroup, LiveArrayReport

PROCESSES = 1000
ROWS = 10_000
DEVICES = 8
MISSING = (17, 803)
DAMAGED, OLDER, DIFFERENT = 9, 11, 5


def report(*, sharded: bool) -> LiveArrayReport:
    """Return a report with as many groups of arrays as rows, of which the last is sharded or not."""
    groups = tuple(
        LiveArrayGroup(
            shape=(1024 + number, 64),
            dtype="float32",
            nbytes=256 * (1024 + number),
            shard_nbytes=32 * (1024 + number),
            device_count=DEVICES,
            replicas=1,
            label=f"layers/{number}",
            count=1,
            device_counts=tuple((device, 1) for device in range(DEVICES)),
            sharding="P('data', None) over data=8" if sharded or number < ROWS - 1 else "P() over data=8",
            memory_kind="device",
        )
        for number in range(ROWS)
    )
    return LiveArrayReport(
        platform="cpu",
        visible_devices=DEVICES,
        groups=groups,
        array_count=ROWS,
        device_nbytes=tuple((device, 2**30) for device in range(DEVICES)),
        nbytes_source="arrays",
    )


def write(folder: Path) -> int:
    """Write the files and return the bytes of one."""
    texts = {}
    for sharded in (True, False):
        made = report(sharded=sharded)
        texts[sharded] = (summary_of(made), to_json(made))
    size = 0
    for process in range(PROCESSES):
        if process in MISSING:
            continue
        summary, line = texts[process != DIFFERENT]
        own_summary = dataclasses.replace(
            summary,
            process=process,
            process_count=PROCESSES,
            host_name=f"host-{process}",
            nbytes=summary.nbytes + process * 2**20,
        )
        text = f"{summary_to_json(own_summary)}\n{line}\n"
        size = len(text)
        if process == OLDER:
            text = text.replace('"schema_version": 3', '"schema_version": 2')
        (folder / f"process-{process}.json").write_text(text[: size // 2] if process == DAMAGED else text)
    return size


def measure(name: str, folder: Path, bound: int, *options: str) -> None:
    """Print the seconds and the peak of the memory of a command, and the findings that it has."""
    command = [sys.executable, "-m", "jax_array_info_cli", "hosts", str(folder), *options]
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "160"})
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    taken = time.perf_counter() - start
    print(
        f"{name}: {taken:.1f} s (bound: {bound}), {usage.ru_maxrss / 2**10:.0f} MiB (bound: 500),"
        f" exit code {os.waitstatus_to_exitcode(status)}, {', '.join(re.findall('JAI[0-9]+', output))}"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{PROCESSES} files of {write(folder) / 1e6:.1f} MB")
        measure("summaries", folder, 10)
        measure("all rows", folder, 120, "--rows")
