"""Reports on jobs that do not run."""

from jax_array_info_core.reports import Origin, TimelineReport
from jax_array_info_core.reports.timeline import TimelineMark, TimelineSeries
from jax_array_info_core.reports.timeline_process import TimelineDevice, TimelineProcess

GIB = 2**30
AT = 1_700_000_000.0
"""Time of the report."""
COUNT = 60
"""Number of samples, one a second."""


def origin(line, function="step"):
    return Origin(file="/home/me/train.py", line=line, function=function)


def device(number, in_use, peak=None, limit=80 * GIB):
    peak = in_use if peak is None else peak
    return TimelineDevice(
        id=number, name=f"cuda:{number}", bytes_in_use=in_use, peak_nbytes=peak, bytes_limit=limit
    )


def process(number, *devices, **fields):
    return TimelineProcess(
        **{
            "process": number,
            "host_name": f"host-{number // 4}",
            "pid": 100 + number,
            "platform": "gpu",
            "start": AT - COUNT,
            "end": AT,
            "every": 1.0,
            "state": "running",
            "sample_count": COUNT,
            "step": 1200,
            "mark": "eval",
            "in_use_source": "allocator",
            "devices": devices,
            **fields,
        }
    )


def series(line, first, last, **fields):
    """Return a line whose bytes change evenly from first to last."""
    values = tuple(first + (last - first) * place // (COUNT - 1) for place in range(COUNT))
    known = {"origin": origin(line), "content": "float32[4,4]", "nbytes": values, "count": 3}
    return TimelineSeries(**{**known, "nbytes_per_minute": (last - first) * 60 / (COUNT - 1), **fields})


REST = {"origin": None, "content": None, "count": None}
SERIES = (
    series(14, 12 * GIB, 12 * GIB, count=200),
    series(5, 2 * GIB, 3 * GIB, content=None),
    series(40, 4 * GIB, GIB, count=2),
    series(0, GIB, GIB, **REST, kind="other arrays"),
    series(0, 3 * GIB, 5 * GIB, **REST, kind="not arrays"),
)
EVAL = TimelineMark(
    name="eval", count=2, times=(AT - 50, AT - 7), added_nbytes=GIB, kept_nbytes=0, peak_nbytes=20 * GIB
)


def timeline(*processes, **fields):
    processes = processes or (process(0, device(0, 22 * GIB, 30 * GIB), device(1, 70 * GIB, 78 * GIB)),)
    return TimelineReport(
        **{
            "folder": "memory/",
            "processes": processes,
            "process_count": len(processes),
            "process": processes[0].process,
            "device": processes[0].devices[0].id,
            "times": tuple(AT - COUNT + 1 + place for place in range(COUNT)),
            "steps": (None,) * COUNT,
            "in_use": tuple(map(sum, zip(*(one.nbytes for one in SERIES), strict=True))),
            "series": SERIES,
            "marks": (EVAL,),
            "read_at": AT,
            **fields,
        }
    )


def large(process_count=64, devices=8):
    """Return a job of many processes; of each the devices are fuller than those of the one before."""
    return timeline(
        *(
            process(number, *(device(8 * number + one, (number + 1) * GIB) for one in range(devices)))
            for number in range(process_count)
        )
    )
