"""Reports of live arrays, and the cells of their tables."""

from io import StringIO

from rich.console import Console

from jax_array_info.reports import LiveArrayGroup, LiveArrayReport
from jax_array_info.tables.live import live_array_table


def group(shape, shard_nbytes, count=1, *, dtype="float32", label=None, nbytes=None, devices=1, replicas=1):
    places = tuple((device, count) for device in range(devices))
    return LiveArrayGroup(
        shape=shape,
        dtype=dtype,
        nbytes=nbytes or shard_nbytes,
        shard_nbytes=shard_nbytes,
        device_count=devices,
        replicas=replicas,
        label=label,
        count=count,
        device_counts=places,
    )


def report_of(*groups, visible_devices=8, device_nbytes=((0, 5 * 2**20), (1, 7))):
    return LiveArrayReport(
        platform="cpu",
        visible_devices=visible_devices,
        groups=groups,
        array_count=sum(one.count for one in groups),
        device_nbytes=device_nbytes,
        nbytes_source="profile",
    )


def rows(report, width=100, columns=80, **options):
    """Return the cells of a table's rows, without its title and heads."""
    console = Console(file=StringIO(), width=width)
    console.print(live_array_table(report, width=columns, **options))
    lines = console.file.getvalue().splitlines()
    return [[cell.strip() for cell in line[1:-1].split("│")] for line in lines if line.startswith("│")]


def to_text_by(report, by):
    console = Console(file=StringIO(), width=100)
    console.print(live_array_table(report, by=by))
    return console.file.getvalue()
