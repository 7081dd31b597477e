"""Reports of the processes of a job that does not run."""

import functools
from dataclasses import replace

from jax_array_info_core.facts.reports.json import summary_to_json, to_json
from jax_array_info_core.jobs.hosts.summaries import summary_of
from jax_array_info_core.reports import LiveArrayGroup, LiveArrayReport


def group(shape=(8, 4), *, label=None, count=1, sharding="P('data',) over data=2", dtype="float32"):
    """Return a group of arrays."""
    return LiveArrayGroup(
        shape=shape,
        dtype=dtype,
        nbytes=128,
        shard_nbytes=64,
        device_count=2,
        replicas=1,
        label=label,
        count=count,
        device_counts=((0, count),),
        sharding=sharding,
    )


def live(*groups, nbytes=1024):
    """Return the report of a process with one device."""
    return LiveArrayReport(
        platform="no such platform",
        visible_devices=1,
        groups=groups,
        array_count=sum(one.count for one in groups),
        device_nbytes=((0, nbytes),),
        nbytes_source="arrays",
    )


ARRAYS = (group(label="w"), group((3,), count=2))
USUAL = live(*ARRAYS)
OTHER = live(ARRAYS[0], group((5,)), nbytes=2048)


_summary_of = functools.cache(summary_of)
_to_json = functools.cache(to_json)


def summary(report=USUAL, process=0, count=1, **fields):
    """Return the summary of a report of some process."""
    name = {"process": process, "process_count": count, "host_name": f"host-{process}", "boot_id": None}
    return replace(_summary_of(report), **(name | fields))


def write(folder, report, process, count, **fields):
    """Write a file of save_report as some process does, and return its path."""
    path = folder / f"process-{process}.json"
    path.write_text(f"{summary_to_json(summary(report, process, count, **fields))}\n{_to_json(report)}\n")
    return path
