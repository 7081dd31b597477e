"""Tests of reports on measured changes: which figures they name, and which findings they resolve."""

import json
from dataclasses import replace

import pytest

from jax_array_info_core import from_json, to_json
from jax_array_info_core.facts.reports.advice import finding_key, gain, price, tried_words
from jax_array_info_core.layouts import MeshAxes
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
    proof="source",
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


def remedy_of(code, advice):
    return next(one.remedy for one in replace(PROGRAM, advice=advice).findings if one.code == code)


def changed(**figures):
    return replace(REMEDY, after=replace(BASE, **figures))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (REMEDY.code, 'tried: P(("data", "fsdp")) at step.py:19 sends 50.0 instead of 100.0 MiB'),
        (
            "f(x, jax.sharding.PartitionSpec(None, 'x'))",
            "tried: P(None, 'x') at step.py:19 sends 50.0 instead of 100.0 MiB",
        ),
        ("jax.reshard(x, out)", "tried: jax.reshard(x, out) at step.py:19 sends 50.0 instead of 100.0 MiB"),
    ],
)
def test_a_finding_names_the_first_measured_change_that_resolves_it(code, said):
    other = replace(REMEDY, code="P('other')", resolved=())
    advice = replace(ADVICE, remedies=(other, replace(REMEDY, code=code), replace(REMEDY, code="P('later')")))
    assert remedy_of("JAI208", advice) == said


def test_a_change_of_arguments_is_for_their_paths():
    place = RemedyPlace(path="p/0/w", paths=("p/0/w", "p/1/w"))
    remedy = replace(changed(memory_nbytes=100 * MIB), kind="argument", place=place, code="P('data', None)")
    advice = replace(ADVICE, remedies=(remedy,))
    said = "tried: P('data', None) for p/0/w and 1 more needs 100.0 instead of 200.0 MiB of memory"
    assert remedy_of("JAI208", advice) == said
    assert said in "".join(map(str, replace(PROGRAM, advice=advice).findings))


@pytest.mark.parametrize("remedies", [(), (replace(REMEDY, resolved=("JAI212 repeated-value",)),)])
def test_a_finding_has_no_fix_if_changes_were_tried_and_none_resolves_it(remedies):
    report = replace(PROGRAM, advice=replace(ADVICE, remedies=remedies))
    assert remedy_of("JAI208", report.advice) == ""
    (finding,) = (one for one in report.findings if one.code == "JAI208")
    assert str(finding).splitlines()[0].endswith(finding.problem)


def test_other_fixes_stay_and_so_do_all_if_nothing_was_tried():
    before = {one.code: one.remedy for one in PROGRAM.findings}
    assert {*before} == {"JAI206", "JAI208"}
    assert remedy_of("JAI206", ADVICE) == before["JAI206"]
    for advice in (None, replace(ADVICE, remedies=(), reason="the program runs on one device")):
        assert remedy_of("JAI208", advice) == before["JAI208"]


def test_a_program_has_one_finding_of_each_key_that_advice_resolves():
    for name in NAMES:
        report, _ = stored(name)
        if isinstance(report, ProgramReport):
            keys = [finding_key(one) for one in report.findings if one.code not in ("JAI210",)]
            assert len(keys) == len({*keys}), name
    assert KEY in map(finding_key, PROGRAM.findings)


def test_the_gain_is_that_of_the_bytes_sent_if_they_are_fewer():
    assert gain(REMEDY) == "100.0 MiB → 50.0 MiB sent per device and call (-50%)"
    assert gain(changed(memory_nbytes=150 * MIB)) == "200.0 MiB → 150.0 MiB of memory per device (-25%)"
    assert gain(changed(flops=900)) == "1,000 → 900 FLOPs per device and call (-10%)"
    assert gain(changed(xla_flops=500)) == "1,000 → 500 FLOPs per device and call, by XLA's count (-50%)"
    assert gain(changed(sent_nbytes=96 * MIB)) == gain(changed(sent_nbytes=None)) == ""
    assert tried_words(replace(ADVICE, remedies=(replace(REMEDY, resolved=()),)), PROGRAM.findings[0]) == ""


def test_no_try_is_not_the_answer_that_none_helps():
    assert replace(ADVICE, remedies=()).answer == "24 changes tried, none helps"
    assert replace(ADVICE, remedies=(), unproved=2).answer == "24 changes tried, none is proved to help"
    assert replace(ADVICE, remedies=(), tried=0, failed=2).answer == "no change was measured"


def test_a_trade_says_what_is_better_and_what_is_worse():
    fewer = {"sent_nbytes": 50 * MIB}
    assert price(changed(**fewer, memory_nbytes=211 * MIB)) == "fewer bytes sent for more memory"
    assert price(changed(**fewer, memory_nbytes=210 * MIB)) == "fewer bytes sent"
    more = replace(BASE, sent_nbytes=0)
    noise = replace(REMEDY, before=more, after=replace(more, sent_nbytes=1024, memory_nbytes=MIB))
    assert price(noise) == "less memory"
    noise = replace(noise, after=replace(noise.after, sent_nbytes=1025, flops=10))
    assert price(noise) == "less memory and fewer FLOPs for more bytes sent"


def test_fields_of_later_versions_are_ignored_and_numbers_have_bounds():
    fields = json.loads(to_json(ADVICE))
    fields["later"] = fields["remedies"][0]["later"] = 1
    assert from_json(json.dumps(fields)) == ADVICE
    assert from_json(to_json(replace(PROGRAM, advice=ADVICE))).advice == ADVICE
    for place, value in (("tried", -1), ("seconds", -1.0), ("device_count", 0)):
        with pytest.raises(ValueError, match="not a valid AdviceReport"):
            from_json(json.dumps({**fields, place: value}))
    fields["remedies"][0]["kind"] = "guess"
    with pytest.raises(ValueError, match="not a valid AdviceReport"):
        from_json(json.dumps(fields))
