"""The memory of compiled programs along the schedule, and how it agrees with the report on the program."""

import functools
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core import from_json, program_report, program_timeline_report, to_json
from jax_array_info_core.arrays.origins.origins import UserLines
from jax_array_info_core.compat.programs import MemoryStatistics
from jax_array_info_core.errors import ReportFormatError
from jax_array_info_core.programs.memory import timeline_of
from jax_array_info_core.reports import ProgramTimelineReport
from tests.core.programs.test_memory import memory_of
from tests.hlo_texts import EVERYWHERE, stored
from tests.programs import refuse

pytestmark = pytest.mark.newest


def abstract(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def layer(x, w):
    return jax.nn.gelu(x @ w["wi"]) @ w["wo"]


def loss(is_checkpointed, ws, x):
    block = jax.checkpoint(layer) if is_checkpointed else layer
    return jnp.mean(jax.lax.scan(lambda x, w: (x + block(x, w), None), x, ws)[0] ** 2)


def step(is_checkpointed, ws, x):
    grads = jax.grad(functools.partial(loss, is_checkpointed))(ws, x)
    return jax.tree.map(lambda w, g: w - 0.1 * g, ws, grads)


WEIGHTS = {"wi": abstract(4, 64, 256), "wo": abstract(4, 256, 64)}
BATCH = abstract(128, 64)


def by_line(rows):
    found = {}
    for origin, nbytes in rows:
        place = None if origin is None else (origin.file, origin.line, origin.function)
        found[place] = found.get(place, 0) + nbytes
    return found


def check(timeline):
    """Check what holds for each timeline: sums, sizes, and the text form."""
    for point in range(len(timeline.points)):
        assert sum(one.nbytes[point] for one in timeline.series) == timeline.total_nbytes[point]
        lines = [one for one in timeline.series if one.kind in ("line", "other lines")]
        assert sum(one.nbytes[point] for one in lines) == timeline.live_nbytes[point]
    assert len(timeline.points) <= 480
    assert sum(one.kind == "line" for one in timeline.series) <= 12
    assert all(min(one.nbytes) >= 0 for one in timeline.series)
    assert timeline.peak_nbytes == max(timeline.total_nbytes)
    assert from_json(to_json(timeline)) == timeline


@pytest.mark.parametrize("is_donated", [False, True])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_the_peak_is_that_of_the_report_on_the_program(is_checkpointed, is_donated):
    """Bytes, lines and XLA's total, for a scan whose residuals are stacked, with and without checkpoint."""
    f = jax.jit(functools.partial(step, is_checkpointed), donate_argnums=(0,) if is_donated else ())
    report = program_report(f, WEIGHTS, BATCH, timeline=True)
    timeline, memory = report.timeline, report.memory
    check(timeline)
    assert max(timeline.live_nbytes) == timeline.live_nbytes[timeline.peak] == memory.live_nbytes
    assert timeline.total_nbytes[timeline.peak] == timeline.needed_nbytes == memory.needed_nbytes
    assert (timeline.needed_source, timeline.excess_nbytes) == ("sum", 0)
    lines = {one.name: one.nbytes for one in timeline.series if one.kind != "line"}
    assert set(lines["arguments"]) == {memory.argument_nbytes}
    assert (max(lines["outputs"]) < 1024) is is_donated  # XLA's table of the outputs
    at_peak = by_line(
        (one.origin, one.nbytes[timeline.peak]) for one in timeline.series if one.kind == "line"
    )
    expected = by_line((one.origin, one.nbytes * one.count) for one in memory.temporaries)
    others = expected.pop(None, 0)
    others += sum(expected.pop(place) for place in list(expected) if place not in at_peak)
    assert {place: nbytes for place, nbytes in at_peak.items() if nbytes} == expected
    assert others <= memory.live_nbytes / 1000
    assert lines.get("other lines", [0] * 1000)[timeline.peak] == others
    assert program_timeline_report(f, WEIGHTS, BATCH) == timeline


@pytest.mark.parametrize("program", ["scan", "checkpoint", "step"])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_both_scans_on_all_versions_and_accelerators(where, program):
    module, lines = stored(where, program), UserLines()
    figures = MemoryStatistics(
        argument_nbytes=2**30, output_nbytes=2**28, alias_nbytes=0, temporary_nbytes=2**28
    )
    for statistics in (figures, replace_peak(figures), None):
        memory = memory_of(module, statistics, "gpu", lines)
        timeline = timeline_of(ProgramTimelineReport(name="step", platform="gpu"), memory, module, lines)
        check(timeline)
        assert max(timeline.live_nbytes) == timeline.live_nbytes[timeline.peak] == memory.live_nbytes
        if statistics is None:
            assert (timeline.needed_source, timeline.peak_nbytes) == ("unknown", memory.live_nbytes)
        else:
            assert timeline.peak_nbytes == memory.needed_nbytes + timeline.excess_nbytes


def replace_peak(figures):
    return figures._replace(peak_nbytes=2**30 + 2**29)


def of_scan(platform, figures):
    """Return the live bytes of the stored scan, and its timeline with XLA's figures, made from these bytes."""
    module, lines = stored("0.12.0.1", "scan"), UserLines()
    live = memory_of(module, None, platform, lines).live_nbytes
    memory = memory_of(module, figures(live), platform, lines)
    return live, timeline_of(ProgramTimelineReport(name="step", platform=platform), memory, module, lines)


def test_temporary_values_in_the_memory_of_outputs_are_counted_once():
    """XLA allocates less for temporary values than are live: the rest is in the memory of outputs."""
    live, timeline = of_scan("cpu", lambda live: MemoryStatistics(10, 1000, 0, live - 300))
    [outputs] = [one.nbytes for one in timeline.series if one.kind == "outputs"]
    assert outputs[timeline.peak] == 700
    assert max(outputs) == 1000
    assert timeline.peak_nbytes == 10 + 1000 + live - 300
    assert not any(one.kind == "not in the schedule" for one in timeline.series)


def test_what_xla_needs_beyond_the_schedule_is_shown():
    _, timeline = of_scan("cpu", lambda live: MemoryStatistics(10, 0, 0, live + 77))
    [rest] = [set(one.nbytes) for one in timeline.series if one.kind == "not in the schedule"]
    assert rest == {77}


def test_an_estimate_above_the_peak_of_xla_has_an_excess():
    _, timeline = of_scan(
        "gpu", lambda live: MemoryStatistics(argument_nbytes=10, output_nbytes=5, peak_nbytes=live)
    )
    assert (timeline.needed_source, timeline.excess_nbytes) == ("peak", 10)


def test_calls_of_a_line_from_several_places_are_one_series():
    def block(x):
        return jnp.sort(x @ x.T)

    def both(x):
        return block(x)[:3], block(x + 1)[:5], block(x + 2)[:7]

    timeline = program_timeline_report(both, abstract(64, 64))
    check(timeline)
    places = [
        (one.origin.file, one.origin.line, one.origin.function) for one in timeline.series if one.origin
    ]
    assert len(places) == len(set(places))


def test_a_program_that_does_not_fit_has_no_points(monkeypatch):
    refuse(monkeypatch)
    timeline = program_timeline_report(lambda x: x + 1, BATCH)
    assert timeline.points == timeline.series == ()
    assert timeline.out_of_memory.available_nbytes is not None
    assert (timeline.peak_nbytes, timeline.peak_words) == (None, "")


@pytest.mark.parametrize(
    "change",
    [
        {"points": (2, 1)},
        {"operations": ("add",)},
        {"live_nbytes": ()},
        {"total_nbytes": (1, 2, 3)},
        {"peak": 2},
    ],
    ids=str,
)
def test_points_that_contradict_each_other_are_refused(change):
    report = ProgramTimelineReport(
        name="step",
        platform="cpu",
        points=(1, 5),
        operations=("add", "dot"),
        live_nbytes=(0, 0),
        total_nbytes=(0, 0),
        peak=1,
    )
    assert from_json(to_json(report)) == report
    with pytest.raises(ValueError, match="point"):
        replace(report, **change)
    with pytest.raises(ReportFormatError, match="point"):
        from_json(json.dumps({**json.loads(to_json(report)), **change}))
