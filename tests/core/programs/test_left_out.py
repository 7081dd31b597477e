"""Parts of a report that raise: each is left out alone, and no gate passes without the part that it needs."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import jax_array_info_core.facts.reports.program as facts
import jax_array_info_core.programs.program_report as report_module
from jax_array_info import to_text
from jax_array_info_core import (
    CheckError,
    assert_donated,
    assert_no_collective,
    assert_no_regression,
    assert_sent,
    assert_work_divided,
    from_json,
    metrics,
    program_diff_report,
    program_report,
    to_json,
)
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.programs.because import Reasons
from jax_array_info_core.programs.gates import diff_with_rules, parse_rule
from jax_array_info_core.programs.report_parts import OF_PARTS, PARTS
from jax_array_info_core.reports import LeftOut
from tests.programs import abstract, line

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

INNER = {
    "reasons of collectives": (Reasons, "of"),
    "lost mesh axes": (report_module, "with_lost_axes"),
    "constraints": (report_module, "constraints_of"),
    "what the next call gets": (report_module, "passed_on"),
    "all that the compiled program tells": (report_module, "read_module"),
    "findings": (facts, "_findings"),
}
"""Parts of other functions than those of the table."""
FIELDS = {
    "FLOPs": {
        *("dot_flops", "known_dot_flops", "dot_totals", "fft_totals", "decompositions", "uncounted_flops"),
        *("xla_flops", "costs"),
    },
    "collectives": {"collectives", "sent", "unread", "unread_local", "costs"},
    "replicated values": {"rematerializations"},
    "repeated values": {"repeated"},
    "share of work": {"work"},
    "lost batches": {"lost_batches"},
    "donations": {"donations", "donatable"},
    "memory": {"memory", "timeline"},
    "schedule": {"timeline"},
    "parameters": {"parameters"},
    "costs": {"costs"},
    "constraints": {"constraints"},
    "what the next call gets": {"passed_on"},
    "all that the compiled program tells": {
        *OF_PARTS,
        *("xla_flops", "work", "timeline", "parameters", "costs"),
    },
    "findings": {"findings"},
}
"""Fields that are None without a part."""
SOME = {
    "constraints": {"collectives"},
    "memory": {"costs"},
    "values kept for the backward pass": {"memory", "costs"},
    "temporaries": {"memory"},
    "reasons of collectives": {"collectives"},
    "all that the compiled program tells": {"constraints", "reason"},
}
"""Fields of which a part is missing."""
DERIVED = {"left_out", "caveats", "findings"}


def step(state, x):
    """Return an updated state; a gather and a sum are sent, and what is kept for the backward pass."""
    loss = lambda w: jnp.sum(jnp.tanh(jax.lax.with_sharding_constraint(x, P("dp")) @ w) ** 2)  # noqa: E731
    return state - jax.grad(loss)(state)


def reported(error=None, part=None, monkeypatch=None):
    """Return the report on a step, with a part that raises an error."""

    def fails(*_, **__):
        raise error

    if part is not None:
        with monkeypatch.context() as patch:
            patch.setattr(*INNER[part], fails) if part in INNER else patch.setitem(PARTS, part, fails)
            return reported()
    mesh = line()
    with jax.set_mesh(mesh):
        jitted = jax.jit(step, donate_argnums=0)
        arguments = abstract(mesh, P("dp"), (512, 512)), abstract(mesh, P("dp"), (1024, 512))
        return program_report(jitted, *arguments, timeline=True)


@pytest.fixture(scope="module", autouse=True)
def sound():
    """The report without an error. Its program is compiled once."""
    compiled_of, known = report_module.compiled_of, []
    with pytest.MonkeyPatch.context() as patch:

        def compiled_once(*args, **options):
            known.append(known[0] if known else compiled_of(*args, **options))
            return known[0]

        patch.setattr(report_module, "compiled_of", compiled_once)
        yield reported()


@pytest.mark.parametrize("part", [*PARTS, *INNER])
def test_a_part_that_raises_is_left_out_and_the_rest_is_told(part, sound, monkeypatch):
    report = reported(IndexError("list index\nout of range"), part, monkeypatch)
    assert report.left_out == (LeftOut(part=part, error="out of range"),)
    [caveat] = {*report.caveats} - {*sound.caveats}
    assert caveat == f"Left out: {part}, because of an error in jax-array-info (out of range)."
    pairs = {
        field.name: (getattr(report, field.name), getattr(sound, field.name))
        for field in dataclasses.fields(report)
    }
    different = {name for name, (one, other) in pairs.items() if one != other} - DERIVED
    assert different - SOME.get(part, set()) <= FIELDS.get(part, set())
    lost = {name for name, (one, other) in pairs.items() if one is None and other is not None}
    assert lost >= FIELDS.get(part, set())
    read = json.loads(to_json(report))
    assert all(read[name] is None for name in lost)
    assert caveat in read["caveats"]
    assert from_json(to_json(report)) == report
    text = " ".join(to_text(report, width=300).split())
    assert caveat in text
    assert f"left out: {part}" in text.partition("step (")[0]
    assert "no findings" not in text


@pytest.mark.parametrize("part", ["temporaries", "values kept for the backward pass"])
def test_the_memory_without_a_part_has_its_figures(part, sound, monkeypatch):
    memory = reported(ValueError(), part, monkeypatch).memory
    assert memory.allocated_nbytes == sound.memory.allocated_nbytes
    if part == "temporaries":
        assert (memory.temporaries, memory.live_nbytes, memory.elsewhere) == (None, None, None)
    else:
        assert memory.saved is None
        assert sound.memory.saved.nbytes


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), UnsupportedValueError("refused")])
def test_interrupts_full_memory_and_refusals_are_raised(error, monkeypatch):
    for part in ("schedule", *INNER):
        with pytest.raises(type(error)):
            reported(error, part, monkeypatch)


RULES = {
    "sent": "collectives",
    "sent@dcn": "collectives",
    "all-gather": "collectives",
    "all-gather:dp": "collectives",
    "new-collective": "collectives",
    "memory": "memory",
    "memory+1GiB": "memory",
    "flops": "FLOPs",
    "work": "share of work",
    "donation": "donations",
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_without_its_part_says_so_and_fails(rule, sound, monkeypatch):
    part = RULES[rule]
    for name in (part, "all that the compiled program tells"):
        report = reported(IndexError("lost"), name, monkeypatch)
        for before, after, place in ((sound, report, "second"), (report, sound, "first")):
            [result] = diff_with_rules(before, after, [parse_rule(rule)]).rules
            assert (result.passed, result.is_left_out) == (False, True)
            assert f"{place} program: Left out: {name}" in result.fact
            with pytest.raises(CheckError, match=f"Left out: {name}"):
                assert_no_regression(before, after, rule)
    [result] = diff_with_rules(sound, sound, [parse_rule(rule)]).rules
    assert (result.passed, result.is_left_out) == (True, False)


def test_assertions_metrics_and_differences_lack_what_is_left_out(sound, monkeypatch):
    without = {part: reported(IndexError("lost"), part, monkeypatch) for part in (*PARTS, *INNER)}
    for part in ("collectives", "all that the compiled program tells"):
        with pytest.raises(CheckError, match=f"Left out: {part}"):
            assert_no_collective(without[part], "all-to-all")
        with pytest.raises(CheckError, match=f"Left out: {part}"):
            assert_sent(without[part], "1GiB")
    with pytest.raises(CheckError, match="Left out: donations"):
        assert_donated(without["donations"], "state")
    assert_donated(without["collectives"], "state")
    assert_work_divided(without["collectives"])
    for part in ("share of work", "all that the compiled program tells"):
        with pytest.raises(CheckError, match=f"Left out: {part}"):
            assert_work_divided(without[part])
    names = {part: {*metrics(sound)} - {*metrics(report)} for part, report in without.items()}
    assert names["collectives"] == {
        "jax_array_info/program/sent_bytes",
        "jax_array_info/program/collective_count",
    }
    assert names["findings"] == {"jax_array_info/program/finding_count"}
    assert names["FLOPs"] == {"jax_array_info/program/dot_flops"}
    assert names["share of work"] == {
        "jax_array_info/program/work_share",
        "jax_array_info/program/repeated_flops",
    }
    assert len(names["memory"]) >= 4
    for part, report in without.items():
        diff = program_diff_report(sound, report)
        assert any(f"second program: Left out: {part}" in words for words in diff.unknown)
        assert f"Left out: {part}" in " ".join(to_text(diff, width=300).split())
