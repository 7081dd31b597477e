"""Mistakes in programs: each is named by a finding with its line, and the right program has none."""

from pathlib import Path

import jax
import pytest

from jax_array_info_core import program_report
from jax_array_info_core.facts.reports.line_costs import Costs
from tests.planted import PLANTED, checked, transformer
from tests.planted.registry import lines_of

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

FINDINGS = [
    (transformer.training, "activations", "JAI304", "lookup"),
    (transformer.training, "activations", "JAI213", "activations"),
    (transformer.training, "moments", "JAI107", "moments"),
    (transformer.training, "logits", "JAI213", "logits"),
    (transformer.training, "gradient", "JAI201", "gradient"),
    (transformer.experts, "experts", "JAI213", "experts"),
    (transformer.decoding, "cache", "JAI206", None),
]
"""Programs with a mistake, the code of the finding that names it, and the mark of its lines."""
HARMLESS = [(transformer.training, "outputs"), (transformer.experts, None), (transformer.decoding, None)]
_REPORTS = {}


def report_of(make, mistake):
    """Return the report on a program; each is compiled once."""
    if (make, mistake) not in _REPORTS:
        mesh, jitted, *arguments = make(mistake)
        with jax.set_mesh(mesh):
            _REPORTS[make, mistake] = program_report(jitted, *arguments)
    return _REPORTS[make, mistake]


def marked(mark):
    """Return the lines of the programs with a mark."""
    lines = Path(transformer.__file__).read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if mark in line.partition("  # ")[2].split(", ")}


@pytest.mark.parametrize(("make", "mistake", "code", "mark"), FINDINGS)
def test_a_mistake_of_a_model_is_named_with_its_line(make, mistake, code, mark):
    findings = report_of(make, mistake).findings
    if mark is None:
        assert code in {finding.code for finding in findings}
    else:
        assert lines_of(findings, code, transformer.__file__) & marked(mark), findings


@pytest.mark.parametrize("mistake", ["spec", "embedding", "carry"])
def test_a_mistake_without_a_finding_is_among_the_first_lines_of_the_page(mistake):
    report = report_of(transformer.training, mistake)
    first = Costs(report.collectives, report.memory, report.work).lines[:3]
    assert {line.origin.line for line in first if line.origin is not None} & marked(mistake)


@pytest.mark.parametrize(("make", "mistake"), HARMLESS)
def test_a_program_without_a_mistake_that_costs_has_the_findings_of_the_right_one(make, mistake):
    codes, right = ({finding.code for finding in report_of(make, name).findings} for name in (mistake, None))
    assert codes == right
    assert codes <= {"JAI208"}
    assert report_of(make, mistake).work.share == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize("name", [*PLANTED][::10])
def test_a_mistake_of_a_simulation_is_named_with_its_line(name):
    checked(PLANTED[name])
