import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info import to_text
from jax_array_info_core import program_diff_report
from jax_array_info_core.layouts import MeshAxes, Spec
from jax_array_info_core.programs.sent_totals import totals_of
from jax_array_info_core.reports import (
    Collective,
    Donation,
    Origin,
    OutOfMemory,
    ProgramMemory,
    ProgramReport,
    ProgramValue,
    SentBytes,
    SentTotals,
    ShardingDescription,
    WorkShare,
)

pytestmark = pytest.mark.newest

MESH = MeshAxes(("fsdp", "one"), (8, 1))


def value(path, *axes, dtype="float32"):
    sharding = ShardingDescription(type="NamedSharding", spec=Spec(axes), mesh=MESH)
    return ProgramValue(path=path, shape=(8, 8), dtype=dtype, nbytes=64, got=sharding)


def sent(*parts):
    by = tuple(
        SentBytes(kind=kind, axes=axes, nbytes=nbytes, unknown_count=unknown)
        for kind, axes, nbytes, unknown in parts
    )
    return SentTotals(
        nbytes=sum(one.nbytes for one in by),
        unknown_count=sum(one.unknown_count for one in by),
        by_kind_and_axes=by,
    )


BEFORE = ProgramReport(
    name="step",
    platform="cpu",
    mesh=MESH,
    arguments=(value("params/w", ("fsdp",)),),
    outputs=(value("outputs", ("fsdp",)),),
    sent=sent(("all-gather", ("fsdp",), 100, 0), ("all-reduce", ("fsdp",), 7, 0)),
    memory=ProgramMemory(temporary_nbytes=1000),
    donations=(Donation(path="params/w", nbytes=64, output="outputs"),),
    dot_flops=10,
)


def test_a_program_has_no_difference_to_itself_or_to_equivalent_specs():
    assert program_diff_report(BEFORE, BEFORE).is_empty
    alike = replace(BEFORE, arguments=(value("params/w", ("fsdp", "one"), ()),))
    assert program_diff_report(BEFORE, alike).is_empty


def test_bytes_by_kind_and_axes_are_compared_the_largest_difference_first():
    after = replace(BEFORE, sent=sent(("all-gather", ("fsdp",), 90, 0), ("reduce-scatter", ("fsdp",), 50, 0)))
    diff = program_diff_report(BEFORE, after)
    assert [(one.kind, one.before, one.after) for one in diff.sent] == [
        ("reduce-scatter", 0, 50),
        ("all-gather", 100, 90),
        ("all-reduce", 7, 0),
    ]
    assert (diff.sent_nbytes_before, diff.sent_nbytes_after) == (107, 140)


def test_an_unknown_number_of_bytes_is_no_number():
    after = replace(BEFORE, sent=sent(("all-gather", ("fsdp",), 100, 1), ("all-reduce", ("fsdp",), 7, 0)))
    diff = program_diff_report(BEFORE, after)
    assert [(one.kind, one.before, one.after) for one in diff.sent] == [("all-gather", 100, None)]
    assert diff.sent_nbytes_after is None
    assert diff.unknown == ("second program: 1 collective runs an unknown number of times",)


COLLECTIVES = st.builds(
    Collective,
    kind=st.sampled_from(["all-gather", "all-reduce"]),
    axes=st.sampled_from([None, ("fsdp",)]),
    group_size=st.just(8),
    dtype=st.just("float32"),
    shape=st.just((8,)),
    sent_nbytes=st.integers(0, 3),
    times=st.sampled_from([1, None]),
    origin=st.sampled_from([None, *(Origin(file="a.py", line=line, function="f") for line in (1, 2))]),
)
KNOWN_IN_PART = (
    {"unread": ("%k = custom-call(%b)",)},
    {"reason": "the platform does not hand out the compiled program"},
    {"out_of_memory": OutOfMemory(message="too large")},
)


@given(st.lists(st.lists(COLLECTIVES, max_size=3), min_size=2, max_size=2), st.sampled_from(KNOWN_IN_PART))
def test_what_a_program_that_is_known_in_part_sends_is_no_number(rows, unknown):
    one, other = (replace(BEFORE, collectives=tuple(row), sent=totals_of(row)) for row in rows)
    one = replace(one, **unknown)
    for diff, side in (
        (program_diff_report(one, other), "before"),
        (program_diff_report(other, one), "after"),
    ):
        assert getattr(diff, f"sent_nbytes_{side}") is None
        changes = [*diff.sent, *(line for change in diff.sent for line in change.lines)]
        assert [getattr(change, side) for change in changes] == [None] * len(changes)
        assert diff.unknown


def test_the_share_of_work_is_compared_where_both_are_known():
    even = replace(BEFORE, work=WorkShare(share=1.0))
    uneven = replace(BEFORE, work=WorkShare(share=4.0, repeated_flops=96))
    diff = program_diff_report(even, uneven)
    [figure] = diff.figures
    assert (figure.name, figure.before, figure.after) == ("repeated_flops", 0, 96)
    assert (diff.work_share_before, diff.work_share_after, diff.unknown) == (1.0, 4.0, ())
    assert "share of work: 1.00 times before, 4.00 times after" in to_text(diff)
    alone = replace(BEFORE, work=WorkShare(reason="there is one device"))
    diff = program_diff_report(even, alone)
    assert (diff.figures, diff.work_share_after) == ((), None)
    assert diff.unknown == ("second program: share of work: there is one device",)
    older = program_diff_report(BEFORE, uneven)
    assert (older.figures, older.unknown) == ((), ())
    assert program_diff_report(alone, alone).unknown == ()


def test_memory_flops_shardings_and_donations_are_compared():
    after = replace(
        BEFORE,
        arguments=(value("params/w", ()),),
        outputs=(value("outputs", ("fsdp",), dtype="bfloat16"), value("outputs/1")),
        memory=ProgramMemory(temporary_nbytes=900),
        donations=(Donation(path="params/w", nbytes=64, reason="dtype"),),
        dot_flops=None,
    )
    diff = program_diff_report(BEFORE, after)
    assert [(one.name, one.before, one.after) for one in diff.figures] == [
        ("temporary_nbytes", 1000, 900),
        ("dot_flops", 10, None),
    ]
    assert [(one.path, one.before_type, one.after_type) for one in diff.shardings] == [
        ("params/w", "float32[8,8]", "float32[8,8]"),
        ("outputs", "float32[8,8]", "bfloat16[8,8]"),
        ("outputs/1", None, "float32[8,8]"),
    ]
    assert [(one.before.output, one.after.reason) for one in diff.donations] == [("outputs", "dtype")]


def test_values_that_can_only_be_renamed_are_compared_by_their_type_and_the_end_of_their_path():
    before = replace(
        BEFORE,
        outputs=(
            *(value(f"outputs/layers/{n}/w", ("fsdp",)) for n in range(2)),
            value("outputs/b", ("fsdp",), dtype="bfloat16"),
            value("outputs/old"),
        ),
        donations=(Donation(path="params/w", nbytes=64, output="outputs/b"),),
    )
    after = replace(
        before,
        arguments=(value("state/params/w", ("fsdp",)),),
        outputs=(
            *(value(f"outputs/0/layers/{n}/w", ("fsdp",)) for n in range(2)),
            value("outputs/0/b", (), dtype="bfloat16"),
            value("outputs/1/b", dtype="int8"),
            value("outputs/0/other"),
        ),
        donations=(Donation(path="state/params/w", nbytes=64, output="outputs/0/b"),),
    )
    diff = program_diff_report(before, after)
    assert diff.renamed == (
        ("params/w", "state/params/w"),
        ("outputs/layers/0/w", "outputs/0/layers/0/w"),
        ("outputs/layers/1/w", "outputs/0/layers/1/w"),
        ("outputs/b", "outputs/0/b"),
    )
    # One is sharded otherwise. Of the others, the ends or the types differ.
    assert [(one.path, one.before_type, one.after_type) for one in diff.shardings] == [
        ("outputs/0/b", "bfloat16[8,8]", "bfloat16[8,8]"),
        ("outputs/old", "float32[8,8]", None),
        ("outputs/1/b", None, "int8[8,8]"),
        ("outputs/0/other", None, "float32[8,8]"),
    ]
    assert diff.donations == ()
    only, first = replace(BEFORE, outputs=(value("outputs"),)), replace(BEFORE, outputs=(value("outputs/0"),))
    assert program_diff_report(only, first).renamed == (("outputs", "outputs/0"),)
    # Two values that end alike may be either.
    twice = replace(after, outputs=(value("outputs/0/w"), value("outputs/1/w")))
    once = replace(after, outputs=(value("outputs/w"),))
    assert program_diff_report(once, twice).renamed == ()
    assert program_diff_report(twice, once).renamed == ()


def test_a_program_that_does_not_fit_is_an_unknown_part():
    after = replace(BEFORE, memory=None, out_of_memory=OutOfMemory(message="too large"))
    assert program_diff_report(BEFORE, after).unknown == (
        "second program: it does not fit the memory of a device",
    )


def test_an_argument_called_outputs_is_no_output():
    before = replace(BEFORE, arguments=(value("outputs", ("fsdp",)),))
    after = replace(BEFORE, arguments=(value("outputs", ()),))
    assert [one.path for one in program_diff_report(before, after).shardings] == ["outputs"]


def donated(*donations, arguments=("a", "b")):
    """Return a program with donations as pairs of an argument and the output that reuses it, of 64 bytes."""
    return replace(
        BEFORE,
        arguments=tuple(value(path) for path in arguments),
        donations=tuple(Donation(path=path, nbytes=64, output=output) for path, output in donations),
    )


def test_donations_that_are_reused_in_both_programs_are_no_difference():
    """By which of several equal outputs is the choice of XLA; the bytes follow from the sharding."""
    before = donated(("a", "outputs/0"), ("b", "outputs/1"))
    after = donated(("a", "outputs/1"), ("b", "outputs/0"))
    after = replace(after, donations=tuple(replace(one, nbytes=32) for one in after.donations))
    assert program_diff_report(before, after).donations == ()
    neither = donated(("a", None)), replace(donated(("a", None)), donations=(Donation(path="a", nbytes=1),))
    assert program_diff_report(*neither).donations == ()


def test_a_donation_of_an_argument_that_the_other_program_lacks():
    before, after = donated(("a", "outputs"), ("b", None)), donated(arguments=("a",))
    changes = program_diff_report(before, after).donations
    assert [(one.path, one.after, one.is_absent_after) for one in changes] == [
        ("a", None, False),
        ("b", None, True),
    ]
    assert [one.is_absent_before for one in program_diff_report(after, before).donations] == [False, True]


def gather(nbytes, line, function="loss", code="", **facts):
    origin = Origin(file="/src/train.py", line=line, function=function, code=code) if line else None
    facts = {"kind": "all-gather", "axes": ("fsdp",), **facts}
    return Collective(group_size=8, dtype="int8", shape=(), sent_nbytes=nbytes, origin=origin, **facts)


def moving(*collectives):
    return replace(BEFORE, collectives=collectives, sent=totals_of(collectives))


def test_lines_of_sent_bytes_are_matched_within_functions_the_largest_change_first():
    before = moving(gather(100, 3), gather(8, 4, "step"), gather(5, 9, "same"))
    after = moving(
        gather(90, 13),
        gather(70, 14),
        gather(5, 19, "same"),
        gather(1, None),
        gather(9, 14, kind="all-to-all"),
    )
    [gathers, exchange] = program_diff_report(before, after).sent
    assert [(str(one.origin), one.before, one.after) for one in gathers.lines] == [
        ("train.py:14 loss", 0, 70),
        ("train.py:13 loss", 100, 90),
        ("train.py:4 step", 8, 0),
        ("None", 0, 1),
    ]
    assert [(str(one.origin), one.before, one.after) for one in exchange.lines] == [
        ("train.py:14 loss", 0, 9)
    ]


def test_lines_of_unknown_bytes_come_first():
    before, after = moving(gather(100, 3)), moving(gather(1, 3), gather(2, 5, "step", times=None))
    [change] = program_diff_report(before, after).sent
    assert [(one.origin.line, one.before, one.after) for one in change.lines] == [(5, 0, None), (3, 100, 1)]


def changed_lines(before, after):
    """Return the line, and the bytes before and after, of each changed line of an all-gather."""
    [change] = program_diff_report(moving(*before), moving(*after)).sent
    return [(one.origin.line, one.before, one.after) for one in change.lines]


def test_a_line_that_an_inserted_line_moves_is_the_same_line():
    before = [
        gather(10, 3, code="    a = f(x)"),
        gather(20, 4, code="    b = g(a)"),
        gather(30, 6, code="    c = h(b)"),
    ]
    after = [
        gather(10, 3, code="    a = f(x)"),
        gather(5, 4, code="    a = constrain(a)"),
        gather(20, 5, code="        b = g(a)"),
        gather(31, 7, code="    c = h(b)"),
    ]
    assert changed_lines(before, after) == [(4, 0, 5), (7, 30, 31)]
    assert changed_lines(after, before) == [(4, 5, 0), (6, 31, 30)]


def test_a_line_that_is_edited_alone_is_the_same_line():
    before = [gather(10, 3, code="a = f(x)"), gather(20, 4, code="b = g(a)")]
    after = [gather(10, 3, code="a = f(x)"), gather(25, 4, code="b = g(a, axis=1)")]
    assert changed_lines(before, after) == [(4, 20, 25)]


def test_lines_of_unknown_text_are_aligned_by_the_distance_that_they_moved():
    before = [gather(10, 3), gather(20, 4), gather(30, 6)]
    assert changed_lines(before, [gather(10, 13), gather(20, 14), gather(31, 16)]) == [(16, 30, 31)]
    assert changed_lines(before, [gather(1, 2), gather(10, 4), gather(20, 5), gather(30, 7)]) == [(2, 0, 1)]
    assert changed_lines(before, [gather(20, 4), gather(30, 6)]) == [(3, 10, 0)]


def test_lines_of_a_huge_function_are_compared_by_their_numbers():
    before, after = (
        [gather(nbytes, step * at) for at in range(1, 20_000)] for nbytes, step in ((1, 1), (2, 2))
    )
    start = time.process_time()
    changes = changed_lines(before, after)
    assert time.process_time() - start < 10
    assert (4, 1, 2) in changes


def test_a_cell_that_runs_again_has_the_same_lines():
    def cell(number, nbytes):
        origin = Origin(file=f"/tmp/{number}.py", line=2, function="loss", cell=number)
        return replace(gather(nbytes, 2), origin=origin)

    assert changed_lines([cell(3, 10)], [cell(4, 30)]) == [(2, 10, 30)]
