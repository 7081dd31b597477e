"""Reports on programs: stored ones, and parts to make others of."""

from jax_array_info.layouts import MeshAxes, Spec
from jax_array_info.reports import (
    Collective,
    Origin,
    ProgramMemory,
    ProgramReport,
    ProgramValue,
    ShardingDescription,
)
from jax_array_info_core.programs.sent_totals import totals_of
from tests.goldens import stored

MESH = MeshAxes(("data", "fsdp", "tensor"), (2, 2, 2))


def spec(*parts):
    """Return a spec, written as a PartitionSpec."""
    return Spec(
        tuple(() if part is None else (part,) if isinstance(part, str) else tuple(part) for part in parts)
    )


def line(number, function="loss", file="/home/me/train.py"):
    """Return a line of the user's code."""
    return Origin(file=file, line=number, function=function)


def program(*collectives, **fields):
    """Return the report on a program on 8 CPU devices with these collectives."""
    given = {
        "name": "step",
        "origin": line(14, "step"),
        "mesh": MESH,
        "device_count": 8,
        "platform": "cpu",
        "memory": ProgramMemory(argument_nbytes=0, output_nbytes=0, alias_nbytes=0, temporary_nbytes=0),
        "dot_flops": 0,
        **fields,
    }
    return ProgramReport(collectives=collectives, sent=totals_of(collectives), **given)


def leaf(path, *parts, **fields):
    """Return an argument or an output that has the sharding that was asked."""
    sharding = ShardingDescription(type="NamedSharding", spec=spec(*parts), mesh=MESH)
    given = {"shape": (256, 1024), "dtype": "float32", "nbytes": 2**18, "asked": sharding, "got": sharding}
    return ProgramValue(path=path, **{**given, **fields})


def gather(path, at, nbytes=131072, **fields):
    return Collective(
        kind="all-gather",
        axes=("fsdp",),
        group_size=2,
        dtype="float32",
        shape=(256, 512),
        sent_nbytes=nbytes,
        origin=line(at),
        path=path,
        **fields,
    )


def reduction(axes, at, nbytes, **fields):
    return Collective(
        kind="all-reduce",
        axes=axes,
        group_size=2 ** len(axes),
        dtype="float32",
        shape=(16, 64, 256),
        sent_nbytes=nbytes,
        origin=line(at),
        **fields,
    )


STEP = stored("program-report-30")[0]
"""A step on data=2, fsdp=2, tensor=2 whose first gradient loses ``fsdp``."""
SCAN = stored("program-report-31")[0]
"""A program with each kind of finding."""
TOO_LARGE = stored("program-report-32")[0]
"""A program that does not fit the memory of a device."""
DIFFERENCE = stored("program-diff-11")[0]
"""Two programs that differ in every respect."""
WHY = stored("propagation-report-15")[0]
"""Why the values of a program are sharded as they are, with each finding."""
TIMELINE = stored("program-report-11")[0].timeline
"""Memory of a program along its schedule. As SVG it is a drawing, so it is not among ``REPORTS``."""

REPORTS = (STEP, SCAN, TOO_LARGE, DIFFERENCE, WHY)
