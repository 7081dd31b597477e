"""Codes of findings: each is found, is not found without its cause, and can be ignored."""

import json
import re
from dataclasses import replace
from importlib import resources

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import check_report, from_json, log_report, to_json, tree_report
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.facts.pages.blocks import Rule, Sentence, Verbatim
from jax_array_info_core.facts.pages.explained import explained_page
from jax_array_info_core.facts.reports.codes import CODES, code_of
from jax_array_info_core.geometry.layouts.spec import Spec
from jax_array_info_core.reports import (
    Donation,
    LargeBuffer,
    LostBatch,
    OutOfMemory,
    Rematerialization,
    RepeatedValue,
    WorkLine,
    WorkShare,
)
from tests.sample_programs import SCAN, STEP, WHY, leaf, program

pytestmark = pytest.mark.newest

W = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
ADAM = {"params": {"w": W}, "opt_state": {"mu": {"w": W}}}
FSDP = {"mesh": {"fsdp": 8}, "specs": P("fsdp")}
OUTPUT = leaf("outputs", "fsdp")
DONATION = Donation(path="w", nbytes=2**20, reason="unused")

PROGRAMS = {
    "JAI201": program(outputs=(replace(OUTPUT, lost_axes=("data",), like="w"),)),
    "JAI202": program(outputs=(replace(OUTPUT, reason="XLA chose another sharding"),)),
    "JAI203": replace(SCAN, outputs=()),
    "JAI204": program(constraints=tuple(replace(one, got=None) for one in SCAN.constraints)),
    "JAI205": program(outputs=(replace(OUTPUT, replaces="w"),)),
    "JAI206": program(donations=(DONATION,)),
    "JAI207": program(donatable=(replace(DONATION, output="outputs"),)),
    "JAI208": program(
        rematerializations=(
            Rematerialization(
                before=None,
                after=None,
                before_text="{replicated}",
                after_text="{maximal}",
                shape=(8,),
                dtype="float32",
                op="add",
                nbytes=32,
            ),
        )
    ),
    "JAI209": replace(
        STEP,
        out_of_memory=OutOfMemory(
            message="full",
            required_nbytes=3,
            available_nbytes=2,
            buffers=(LargeBuffer(nbytes=3, shape=(3,), dtype="int8"),),
        ),
    ),
    "JAI210": program(unread=("?",)),
    "JAI211": program(donations=(replace(DONATION, shares_with=("embed",)),)),
    "JAI212": program(
        repeated=(RepeatedValue(op="fft", shape=(8,), dtype="complex64", nbytes=64, repeated_nbytes=56),)
    ),
    "JAI213": program(
        work=WorkShare(
            share=8.0,
            flops=8 * 10**9,
            whole_flops=8 * 10**9,
            repeated_flops=7 * 10**9,
            lines=(WorkLine(op="dot_general", flops=8 * 10**9, repeated_flops=7 * 10**9, share=8.0),),
        )
    ),
    "JAI301": WHY,
    "JAI302": WHY,
    "JAI303": WHY,
    "JAI304": replace(
        WHY,
        lost_batches=(
            LostBatch(
                mesh_axis="data",
                path="tokens",
                shape=(8, 8, 8),
                dtype="float32",
                dimension=0,
                before=Spec((("data",), ())),
                after=Spec(((), (), ("data",))),
                taken_by="embed",
                op="gather",
                nbytes=2**20,
                expected=Spec((("data",), (), ())),
            ),
        ),
    ),
}


def codes(report):
    return [one.code for one in report.findings]


def test_each_code_of_a_tree_is_in_the_answer_and_can_be_ignored():
    """``test_remedies`` finds each code."""
    odd = jax.ShapeDtypeStruct((1001, 64), jnp.float32)
    options = {"mesh": {"data": 2, "fsdp": 8}, "hbm_nbytes": 1024}
    options["specs"] = {"w": P(), "odd": P("fsdp"), "wrong": P("fdsp")}
    options["expect"] = {"w": P("fsdp"), "odd": None, "wrong": None}
    tree = {"w": W, "odd": odd, "wrong": W}
    report = check_report(tree, **options)
    assert codes(report) == ["JAI108", "JAI104", "JAI106", "JAI101", "JAI103", "JAI105"]
    assert [one.severity for one in report.findings] == ["error"] * 3 + ["warning"] * 3
    for code in codes(report):
        assert code in report.answer
        ignored = check_report(tree, **options, ignore_codes=code)
        assert codes(ignored) == [one for one in codes(report) if one != code]
        assert ignored.ignored_codes == (code,)
        assert f"ignored codes: {code}" in str(ignored)


def test_elements_that_are_not_finite_are_found_in_a_report_with_statistics():
    tree = {"w": jnp.array([1.0, jnp.nan])}
    assert codes(check_report(tree_report(tree, statistics=True))) == ["JAI110"]
    assert codes(check_report(tree)) == []


def test_a_tree_that_is_sharded_and_fits_has_no_code():
    assert codes(check_report(ADAM, **FSDP, hbm_nbytes="1GiB", expect=P("fsdp"))) == []


@pytest.mark.parametrize("code", PROGRAMS)
def test_a_code_of_a_program_is_found_and_ignored(code):
    report = PROGRAMS[code]
    assert code in codes(report)
    assert code in report.answer
    ignored = replace(report, ignored_codes=(code,))
    assert codes(ignored) == [one for one in codes(report) if one != code]
    assert code not in ignored.answer


def test_a_program_as_requested_has_no_code():
    assert codes(program()) == []
    assert program().answer == "no findings"


def test_values_that_are_sharded_as_far_as_possible_have_no_code():
    summed = replace(WHY.lost[0], reason="contracted", nbytes=0)
    assert codes(replace(WHY, conflicts=(), lost=(summed,), replicated=())) == []


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Some donated buffers were not usable: float32[8,64].", "JAI206"),
        ("[SPMD] Involuntary full rematerialization in other words", "JAI210"),
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 3.00G of 2.00G hbm.", "JAI209"),
    ],
)
def test_a_code_of_a_log_is_found_and_ignored(line, code):
    assert codes(log_report([line])) == [code]
    ignored = log_report([line], ignore_codes=[code])
    assert (codes(ignored), ignored.ignored_codes) == ([], (code,))
    assert codes(log_report(["step 1"])) == []


def test_errors_come_before_warnings_and_advice():
    report = program(donations=(DONATION,), donatable=(replace(DONATION, output="outputs"),))
    assert [one.severity for one in report.findings] == ["warning", "advice"]


@pytest.mark.parametrize("codes", ["JAI999", ["JAI101", 3], 3])
def test_unknown_codes_are_an_error_with_the_known_ones(codes):
    with pytest.raises(UnsupportedValueError, match="is not the code of a finding: use JAI101, JAI102, "):
        check_report({"w": W}, ignore_codes=codes)


def test_a_code_is_known_by_its_text_or_its_name_in_any_case():
    for text in ("jai101", "JAI101", "replicated-leaf", "Replicated-Leaf"):
        assert code_of(text) == CODES["avoidable replication"]
    assert code_of("{replicated}") is None
    with pytest.raises(UnsupportedValueError, match=r"'JAI999' is neither .* use JAI101, JAI102, "):
        code_of("JAI999")
    with pytest.raises(UnsupportedValueError, match=r"'full-replicaton' is neither .* use full-replication"):
        code_of("full-replicaton")


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.code)
def test_the_page_of_a_code_has_its_sections_and_neither_links_nor_ticks(code):
    blocks = [*explained_page(code)]
    titles = [block.title for block in blocks if isinstance(block, Rule)]
    assert code.text.startswith(f"# {code.code} {code.name}\n\n{code.meaning} Severity: {code.severity}.\n")
    assert code.page == f"findings/{code.code}.md"
    assert titles == [str(code), "What it means", "Why it matters", "What to do", "Example"]
    assert blocks[1].text == f"{code.meaning} Severity: {code.severity}."
    words = " ".join(block.text for block in blocks if isinstance(block, Sentence))
    assert not re.search(r"`|\]\(|#|\*\*", words)
    examples = "\n".join(block.text for block in blocks if isinstance(block, Verbatim))
    assert f"{code.code} {code.name}" in examples
    assert "```" not in examples


def test_codes_names_and_pages_are_unique():
    found = list(CODES.values())
    assert len({one.code for one in found}) == len({one.name for one in found}) == len(found)
    files = resources.files("jax_array_info_core.facts") / "explained"
    assert {path.name for path in files.iterdir()} == {f"{one.code}.md" for one in found}


def test_json_has_the_code_the_page_and_both_forms_of_the_fix():
    report = check_report({"w": W}, mesh={"fsdp": 8}, specs=P())
    made = json.loads(to_json(report))
    finding = made["findings"][0]
    assert (finding["code"], finding["page"]) == ("JAI101", "findings/JAI101.md")
    assert "pass replicated_over=('fsdp',)." in finding["remedy"]
    assert "pass --replicated-over fsdp." in finding["shell_remedy"]
    for name in ("code", "page", "shell_remedy"):
        del finding[name]
    for name in ("syntax", "ignored_codes", "max_replicated", "min_nbytes", "fewer_devices_nbytes"):
        del made[name]
    old = from_json(json.dumps(made))
    assert (codes(old), old.findings[0].page) == (codes(report), "findings/JAI101.md")
    finding["code"] = "JAI102"
    assert from_json(json.dumps(made)).findings[0].code == "JAI101"


def test_findings_of_a_program_in_json_are_those_of_its_facts():
    made = json.loads(to_json(PROGRAMS["JAI206"]))
    assert [one["code"] for one in made["findings"]] == ["JAI206"]
    made["donations"] = []
    assert from_json(json.dumps(made)).findings == ()
    del made["findings"]
    assert from_json(json.dumps(made)).findings == ()
