"""Costs by line, and the order of the findings of a program."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.facts.reports.codes import CODES
from jax_array_info_core.facts.reports.findings import FLOORS, Finding
from jax_array_info_core.facts.reports.program import costs_of
from jax_array_info_core.facts.reports.program_memory import ProgramMemory, Temporary
from jax_array_info_core.facts.reports.work import WorkLine, WorkShare
from tests.sample_programs import gather, line, program, reduction

pytestmark = pytest.mark.newest

sizes = st.integers(0, 2**20)
unknown = st.none() | sizes
SENT = 2**20
"""Bytes that the program of the order of findings sends; it needs as many, and has as many FLOPs."""


@st.composite
def costly_programs(draw):
    """Return the report on a program whose lines send, keep and repeat."""
    places = st.integers(1, 6)
    collectives = draw(st.lists(st.builds(lambda at, nbytes: gather(None, at, nbytes), places, sizes)))
    temporaries = [
        Temporary(dtype="uint8", shape=(), nbytes=nbytes, count=count, origin=origin)
        for nbytes, count, origin in draw(
            st.lists(st.tuples(sizes, st.integers(1, 3), st.none() | st.builds(line, places)))
        )
    ]
    work = [
        WorkLine(origin=line(at), op="dot_general", flops=2 * flops, repeated_flops=flops, share=2.0)
        for at, flops in draw(st.lists(st.tuples(places, sizes), unique_by=lambda one: one[0]))
    ]
    live = sum(temporary.nbytes * temporary.count for temporary in temporaries)
    memory = ProgramMemory(temporary_nbytes=live, temporaries=tuple(temporaries), live_nbytes=live)
    flops = sum(one.flops for one in work)
    return program(
        *collectives, memory=memory, work=WorkShare(share=2.0, flops=flops, lines=tuple(work)), min_nbytes=1
    )


@given(costly_programs())
def test_lines_add_up_to_the_totals_of_the_report_and_the_costliest_stand_first(report):
    costs = costs_of(report)
    lines = costs.lines
    assert sum(row.sending_nbytes for row in lines) == report.sent.nbytes
    assert sum(row.live_nbytes for row in lines) == report.memory.live_nbytes
    assert sum(row.repeated_flops for row in lines) == sum(row.repeated_flops for row in report.work.lines)
    places = [row.origin and row.origin.line for row in lines]
    assert len(places) == len(set(places))
    assert None not in places[:-1]
    sums = [sum(costs.of_line(row)) for row in lines if row.origin is not None]
    assert sums == sorted(sums, reverse=True)


@given(costly_programs())
def test_the_first_line_names_the_largest_part_of_a_line(report):
    costs = costs_of(report)
    lines = costs.lines
    most = max((max(costs.of_line(row)) for row in lines if row.origin), default=0)
    places = [row.origin.place for row in lines if row.origin and max(costs.of_line(row)) == most]
    _, _, words = report.answer.partition("most: ")
    if words and "not known" not in words:
        assert any(f" at {place}" in words for place in places)


KINDS = [
    kind
    for kind, code in CODES.items()
    if code.code.startswith("JAI2") and (kind not in FLOORS or FLOORS[kind].nbytes is None)
]
"""Kinds of findings about programs, without those whose small costs are always accepted."""
findings = st.builds(
    Finding,
    kind=st.sampled_from(KINDS),
    problem=st.just("A problem."),
    remedy=st.just(""),
    nbytes=unknown,
    sent_nbytes=unknown,
    flops=unknown,
)


@given(st.lists(findings))
def test_errors_stand_first_then_the_findings_with_the_largest_part_of_a_cost(rows):
    memory = ProgramMemory(argument_nbytes=SENT, output_nbytes=0, temporary_nbytes=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jax_array_info_core.facts.reports.program._all_findings", lambda _: rows)
        report = program(reduction(("data",), 1, SENT), memory=memory, work=WorkShare(flops=SENT))
    assert sorted(map(id, report.findings)) == sorted(map(id, rows))

    def place(finding):
        first = finding.code in ("JAI209", "JAI210", "JAI211")
        parts = (finding.sent_nbytes, finding.nbytes, finding.flops)
        return not first, -max(part or 0 for part in parts)

    assert all(place(before) <= place(after) for before, after in pairwise(report.findings))
    order = [finding.severity for finding in report.findings if not place(finding)[1] and place(finding)[0]]
    assert order == sorted(order, key=["error", "warning", "advice"].index)


def test_a_finding_that_costs_more_than_each_line_is_all_that_the_first_line_names():
    report = program(reduction(("data",), 1, SENT), memory=ProgramMemory(argument_nbytes=SENT))
    assert report.answer == "no findings; most: 1.0 MiB sent at train.py:1 (100%)"
    finding = Finding(kind="repeated value", problem="", remedy="", sent_nbytes=SENT, nbytes=2**17)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jax_array_info_core.facts.reports.program._all_findings", lambda _: [finding])
        assert program(reduction(("data",), 1, SENT)).answer == "1 finding: JAI212 repeated-value"


@pytest.mark.parametrize("fields", [{"times": None, "depends_on_data": True}, {"times": None}])
def test_bytes_that_may_be_fewer_are_not_the_most(fields):
    assert program(reduction(("data",), 1, SENT, **fields)).answer == "no findings"
