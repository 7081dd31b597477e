"""Tests of reports on measured changes: which figures they name, and which findings they resolve."""

import json
from dataclasses import replace

import pytest

from jax_array_info_core import from_json, to_json
from jax_array_info_core.facts.reports.advice import gain, price
from jax_array_info_core.layouts import MeshAxes
from jax_array_info_core.programs.advice.search import resolved_by
from jax_array_info_core.reports import (
    AdviceReport,
    Donation,
    ProgramFigures,
    ProgramReport,
    Rematerialization,
    Remedy,
    RemedyPlace,
)
from tests.goldens import NAMES, stored

pytestmark = pytest.mark.newest

MIB = 2**20
BASE = ProgramFigures(sent_nbytes=100 * MIB, memory_nbytes=200 * MIB, flops=1000, xla_flops=1000)
KEY = "JAI208 full-replication"
REMEDY = Remedy(
    kind="constraint",
    place=RemedyPlace(file="/home/me/step.py", line=19),
    expression="x @ w",
    code='jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P(("data", "fsdp"))))',
    before=BASE,
    after=replace(BASE, sent_nbytes=50 * MIB),
    resolved=(KEY,),
)
ADVICE = AdviceReport(name="step", platform="cpu", base=BASE, remedies=(REMEDY,), tried=24)
PROGRAM = ProgramReport(
    name="step",
    platform="cpu",
    mesh=MeshAxes(("data", "fsdp"), (2, 4)),
    donations=(Donation(path="x", nbytes=2**21, reason="no output is left"),),
    rematerializations=(
        Rematerialization(before=None, after=None, shape=(8, 4), dtype="float32", op="add", nbytes=2**20),
    ),
)


def changed(**figures):
    return replace(REMEDY, after=replace(BASE, **figures))


def test_a_change_resolves_the_findings_whose_codes_the_changed_program_lacks():
    """Fewer values do not resolve a finding."""
    assert resolved_by(PROGRAM, PROGRAM) == ()
    assert resolved_by(PROGRAM, replace(PROGRAM, rematerializations=())) == (KEY,)
    more = replace(PROGRAM, rematerializations=PROGRAM.rematerializations * 2)
    assert resolved_by(more, PROGRAM) == resolved_by(replace(PROGRAM, donations=()), PROGRAM) == ()


def test_a_program_has_one_finding_of_each_code_that_a_change_resolves():
    for name in NAMES:
        report, _ = stored(name)
        if isinstance(report, ProgramReport):
            codes = [finding.code for finding in report.findings if finding.code != "JAI210"]
            assert len(codes) == len({*codes}), name


def test_the_gain_is_that_of_the_bytes_sent_if_they_are_fewer():
    assert gain(REMEDY) == "100.0 MiB → 50.0 MiB sent per device and call (-50%)"
    assert gain(changed(memory_nbytes=150 * MIB)) == "200.0 MiB → 150.0 MiB of memory per device (-25%)"
    assert gain(changed(flops=900)) == "1,000 → 900 FLOPs per device and call (-10%)"
    assert gain(changed(xla_flops=500)) == "1,000 → 500 FLOPs per device and call, by XLA's count (-50%)"
    assert gain(changed(sent_nbytes=96 * MIB)) == gain(changed(sent_nbytes=None)) == ""


def test_a_figure_that_falls_by_a_factor_of_three_is_in_the_gain():
    fewer = {"sent_nbytes": 90 * MIB, "memory_nbytes": 60 * MIB}
    sent, memory = gain(changed(**fewer, xla_flops=900)).split(", ")
    assert sent == "100.0 MiB → 90.0 MiB sent per device and call (-10%)"
    assert memory == "200.0 MiB → 60.0 MiB of memory per device (-70%)"
    few = replace(
        REMEDY, before=replace(BASE, sent_nbytes=300), after=replace(BASE, sent_nbytes=0, memory_nbytes=MIB)
    )
    assert gain(few) == "200.0 MiB → 1.0 MiB of memory per device (-100%)"


def test_none_helps_only_if_all_were_tried():
    none = replace(ADVICE, remedies=())
    assert none.answer == replace(none, candidates=24).answer == "none of 24 candidates helps"
    some = replace(none, candidates=162, untried=138)
    assert some.answer == "no change tried helps; 24 of 162 candidates tried, ranked without Shardy"
    assert replace(some, is_ranked=True).answer.endswith("; 24 of 162 candidates tried, best first")
    assert replace(some, remedies=(REMEDY,)).answer.startswith("1 change helps: 100.0 MiB → 50.0 MiB sent")
    assert replace(none, unproved=2).answer == "none of 24 candidates is proved to help"
    assert replace(none, tried=0, failed=2).answer == "no change was measured"
    assert ADVICE.answer.endswith("; all 24 candidates tried")


def test_a_trade_says_what_is_better_and_what_is_worse():
    fewer = {"sent_nbytes": 50 * MIB}
    assert price(changed(**fewer, memory_nbytes=211 * MIB)) == "fewer bytes sent for more memory"
    assert price(changed(**fewer, memory_nbytes=210 * MIB)) == "fewer bytes sent"
    more = replace(BASE, sent_nbytes=0)
    noise = replace(REMEDY, before=more, after=replace(more, sent_nbytes=MIB, memory_nbytes=MIB))
    assert price(noise) == "less memory"
    noise = replace(noise, after=replace(noise.after, sent_nbytes=2 * MIB, flops=10))
    assert price(noise) == "less memory and fewer FLOPs for more bytes sent"
    small = replace(more, memory_nbytes=8 * MIB)
    few = replace(small, memory_nbytes=2 * MIB, sent_nbytes=MIB // 2)
    assert price(replace(REMEDY, before=small, after=few)) == "less memory for more bytes sent"


def test_a_trade_that_costs_less_or_has_a_third_of_a_figure_is_in_the_answer():
    def answer(**figures):
        return replace(ADVICE, remedies=(), trades=(changed(**figures),)).answer

    price = "1 change helps at a price: 100.0 MiB → {} MiB sent per device and call ({})"
    assert answer(sent_nbytes=50 * MIB, flops=1100).startswith(price.format("50.0", "-50%"))
    assert answer(sent_nbytes=33 * MIB, memory_nbytes=300 * MIB).startswith(price.format("33.0", "-67%"))
    assert answer(sent_nbytes=34 * MIB, memory_nbytes=300 * MIB) == "none of 24 candidates helps"
    assert answer(sent_nbytes=110 * MIB, memory_nbytes=150 * MIB) == "none of 24 candidates helps"


def test_fields_of_later_versions_are_ignored_and_numbers_have_bounds():
    fields = json.loads(to_json(ADVICE))
    fields["later"] = fields["remedies"][0]["later"] = 1
    assert from_json(json.dumps(fields)) == ADVICE
    for place, value in (("tried", -1), ("seconds", -1.0), ("device_count", 0)):
        with pytest.raises(ValueError, match="not a valid AdviceReport"):
            from_json(json.dumps({**fields, place: value}))
    fields["remedies"][0]["kind"] = "guess"
    with pytest.raises(ValueError, match="not a valid AdviceReport"):
        from_json(json.dumps(fields))
