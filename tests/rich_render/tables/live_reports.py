"""Reports of live arrays, and the cells of their tables."""

from jax_array_info.engine.render import render, text_of
from jax_array_info.reports import LiveArrayGroup, LiveArrayReport


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


def rows(report, width=100, *, has_shares=False, **options):
    """Return the cells of a table's rows, without its title and heads, and without the shares of the total."""
    lines = text_of(render(report, width=width, **options), width=width).splitlines()
    head_lines = [line[1:-1].split("┃") for line in lines if line.startswith("┃")]
    heads = [" ".join(map(str.strip, pieces)).strip() for pieces in zip(*head_lines, strict=True)]
    cells = [[cell.strip() for cell in line[1:-1].split("│")] for line in lines if line.startswith("│")]
    hidden = () if has_shares else ("of total",)
    return [[cell for head, cell in zip(heads, row, strict=True) if head not in hidden] for row in cells]
