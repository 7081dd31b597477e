"""Helpers for the tests of memory records."""

import json
import os
import queue
import time
import warnings

import msgspec

from jax_array_info_core.facts.reports.record import LINES
from jax_array_info_core.jobs.timeline.recorder import End
from jax_array_info_core.jobs.timeline.recording import Recording
from jax_array_info_core.jobs.timeline.segments import segment_names


def segment_paths(folder, process=None):
    """Return the segments in a folder by process and time, of one process or of all."""
    return [folder / name for name in segment_names(os.listdir(folder), process)]


def lines_in(path):
    """Return the lines of a segment; an error for one that the classes of lines do not describe."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines():
        fields = json.loads(text)
        found.append(msgspec.convert(fields, LINES[fields.pop("line")]))
    return found


def record_of(folder):
    """Return the lines of all segments in a folder."""
    return [line for path in segment_paths(folder) for line in lines_in(path)]


def of_kind(lines, name):
    """Return the lines with a name, such as ``sample``."""
    return [line for line in lines if type(line) is LINES[name]]


def until(condition, within=60):
    """Wait until a condition holds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def sample_count(folder):
    """Return the number of samples so far, in complete lines."""
    return sum(path.read_bytes().count(b'{"line":"sample"') for path in segment_paths(folder))


def recorded(folder, *requests, step=lambda: None, max_nbytes=2**28, **options):
    """Record in this thread what is requested, with a sample at the start and at the end, and return the lines.

    Warnings come as they are.
    """
    recording = Recording(folder, 1.0, max_nbytes, step, **options)
    waiting = queue.SimpleQueue()
    for request in (*requests, End("stopped", "")):
        waiting.put(request)
    recording.run(waiting, [], lambda message: warnings.warn(message, UserWarning, stacklevel=1))
    return record_of(folder)


def bytes_of(lines, sample):
    """Return the bytes of each group on all devices by function, shape and dtype, at a sample."""
    groups = {group.id: group for group in of_kind(lines, "group")}
    found = {}
    for number, count in zip(sample.groups, sample.counts, strict=True):
        group = groups[number]
        found[group.origin and group.origin.function, group.type] = (
            count * group.shard_nbytes * len(group.devices)
        )
    return found
