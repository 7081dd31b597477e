"""Rules on the differences of programs and trees."""

from dataclasses import replace

import jax
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import CheckError, assert_no_regression, from_json, to_json, tree_report
from jax_array_info_core.errors import NotationError, UnsupportedValueError
from jax_array_info_core.layouts import MeshAxes, Spec
from jax_array_info_core.programs.gates import diff_with_rules, parse_rule
from jax_array_info_core.programs.sent_totals import totals_of
from jax_array_info_core.reports import (
    Collective,
    Donation,
    Origin,
    OutOfMemory,
    ProgramMemory,
    ProgramReport,
    ProgramValue,
    ShardingDescription,
    WorkShare,
)

pytestmark = pytest.mark.newest

MESH = MeshAxes(("fsdp", "tensor"), (4, 2))
MIB = 1 << 20


def value(path, *axes):
    got = ShardingDescription(type="NamedSharding", spec=Spec(axes), mesh=MESH)
    return ProgramValue(path=path, shape=(8, 8), dtype="float32", nbytes=64, got=got)


def gather(nbytes, *axes, **facts):
    facts = {"kind": "all-gather", "axes": axes or ("fsdp",), **facts}
    return Collective(group_size=4, dtype="int8", shape=(), sent_nbytes=nbytes, **facts)


def program(*collectives, **facts):
    sent = totals_of(collectives)
    facts = {"dot_flops": 1000, "arguments": (value("w", ("fsdp",)),), **facts}
    return ProgramReport(name="step", platform="cpu", mesh=MESH, collectives=collectives, sent=sent, **facts)


def memory(**facts):
    parts = {"argument_nbytes": MIB, "output_nbytes": MIB, "alias_nbytes": MIB, "temporary_nbytes": MIB}
    return program(memory=ProgramMemory(**{**parts, **facts}))


def result(rule, before, after):
    [found] = diff_with_rules(before, after, [parse_rule(rule)]).rules
    return ("passed" if found.passed else "failed") + f": {found.fact}"


GROWTH = {
    "sent": "failed: sent +128.0 KiB (1.0 MiB to 1.1 MiB), no growth allowed",
    "sent+5%": "failed: sent +12.5 % (1.0 MiB to 1.1 MiB), allowed +5 %",
    "sent+12.5%": "passed: sent +12.5 % (1.0 MiB to 1.1 MiB), allowed +12.5 %",
    "sent+12.46%": "failed: sent +12.5 % (1.0 MiB to 1.1 MiB), allowed +12.46 %",
    "sent+1MiB": "passed: sent +128.0 KiB (1.0 MiB to 1.1 MiB), allowed +1.0 MiB",
    "sent+131071": "failed: sent +128.0 KiB (1,048,576 to 1,179,648 bytes), allowed +128.0 KiB",
    "all-gather": "failed: all-gather +128.0 KiB (1.0 MiB to 1.1 MiB), no growth allowed",
    "all-gather:fsdp": "failed: all-gather over fsdp +128.0 KiB (1.0 MiB to 1.1 MiB), no growth allowed",
    "all-gather:tensor": "passed: all-gather over tensor unchanged (0.0 B), no growth allowed",
    "all-reduce": "passed: all-reduce unchanged (0.0 B), no growth allowed",
}
OVER_LINKS = {
    "sent@dcn": "failed: sent by DCN +1.0 MiB (1.0 MiB to 2.0 MiB), no growth allowed",
    "sent@dcn+1MiB": "passed: sent by DCN +1.0 MiB (1.0 MiB to 2.0 MiB), allowed +1.0 MiB",
    "sent@ici": "passed: sent by ICI -2.0 MiB (4.0 MiB to 2.0 MiB), no growth allowed",
    "all-gather:fsdp@dcn": "failed: all-gather over fsdp by DCN +1.0 MiB (1.0 MiB to 2.0 MiB), no growth allowed",
    "new-all-gather@ici": "passed: new all-gather by ICI: none",
    "all-gather:tensor@dcn": "passed: all-gather over tensor by DCN unchanged (0.0 B), no growth allowed",
}


@pytest.mark.parametrize(("rule", "expected"), GROWTH.items(), ids=GROWTH)
def test_growth_of_bytes_sent(rule, expected):
    assert result(rule, program(gather(MIB)), program(gather(MIB + MIB // 8))) == expected


@pytest.mark.parametrize(("rule", "expected"), OVER_LINKS.items(), ids=OVER_LINKS)
def test_a_rule_counts_the_collectives_over_a_link(rule, expected):
    before = program(gather(MIB, link="dcn"), gather(4 * MIB, link="ici"))
    after = program(gather(2 * MIB, link="dcn"), gather(2 * MIB, link="ici"))
    assert result(rule, before, after) == expected


def divided(share, **facts):
    return program(work=WorkShare(share=share, **facts))


SHARES = {
    ("work", 1.0, 4.0): "failed: share of work 1.000 times to 4.000 times, allowed +5 %",
    ("work", 1.0, 1.0504): "passed: share of work 1.000 times to 1.050 times, allowed +5 %",
    ("work", 1.0, 1.051): "failed: share of work 1.000 times to 1.051 times, allowed +5 %",
    ("work", 4.0, 4.0): "passed: share of work 4.000 times to 4.000 times, allowed +5 %",
    ("work", 4.0, 1.0): "passed: share of work 4.000 times to 1.000 times, allowed +5 %",
    ("work+50%", 1.0, 1.5): "passed: share of work 1.000 times to 1.500 times, allowed +50 %",
    ("work+0%", 1.0, 1.001): "failed: share of work 1.000 times to 1.001 times, allowed +0 %",
    ("work", 1.0, None): "failed: share of work 1.000 times to unknown, allowed +5 %",
    ("work", None, 1.0): "failed: share of work unknown to 1.000 times, allowed +5 %",
}


@pytest.mark.parametrize(("rule", "before", "after"), SHARES)
def test_growth_of_the_share_of_work(rule, before, after):
    assert result(rule, divided(before), divided(after)) == SHARES[rule, before, after]


def test_a_share_of_work_that_is_unknown_has_its_reason():
    """It is that of one device, that of a saved report of an older version, or that of a refused program."""
    alone = divided(None, reason="there is one device")
    expected = "failed: share of work unknown (there is one device) to 4.000 times, allowed +5 %"
    assert result("work", alone, divided(4.0)) == expected
    older = "failed: share of work unknown to unknown, allowed +5 %"
    assert result("work", program(), program()) == older
    [found] = diff_with_rules(divided(1.0), divided(2.0, repeated_flops=5), [parse_rule("work")]).rules
    assert (found.before, found.after) == (0, 5)


def test_a_new_kind_has_no_growth_in_percent():
    expected = "failed: all-gather +1.0 MiB (0.0 B to 1.0 MiB), allowed +5 %"
    assert result("all-gather+5%", program(), program(gather(MIB))) == expected


def test_a_new_collective_is_found_although_others_shrink():
    """It is new of an argument, or of a function. More bytes of the same, and one that XLA splits, are not."""
    w, v = gather(4 * MIB, path="w"), gather(MIB, path="v")
    lines = [Origin(file="step.py", line=line, function=name) for line, name in ((3, "up"), (9, "down"))]
    up, down = (gather(MIB, "tensor", origin=line) for line in lines)
    smaller = replace(w, sent_nbytes=MIB)
    assert result("all-gather", program(w), program(smaller, v)).startswith("passed")
    assert result("new-all-gather", program(w), program(smaller, v)) == "failed: new all-gather: 1.0 MiB of v"
    assert result("new-all-gather", program(w, up), program(smaller, up, down)) == (
        "failed: new all-gather: 1.0 MiB, step.py:9 down"
    )
    assert result("new-collective", program(up), program(replace(up, count=2))) == (
        "failed: new collective: all-gather 1.0 MiB, step.py:3 up"
    )
    assert (
        result("new-all-gather:fsdp", program(w), program(w, down))
        == "passed: new all-gather over fsdp: none"
    )
    assert result("new-all-gather+1MiB", program(w), program(w, v)) == (
        "passed: new all-gather: 1.0 MiB of v, allowed +1.0 MiB"
    )
    moved = replace(up, origin=replace(lines[0], line=4), sent_nbytes=2 * MIB)
    for after in (program(moved), program(replace(up, count=2, sent_nbytes=MIB // 2)), program()):
        assert result("new-collective", program(up), after) == "passed: new collective: none"
    endless = replace(v, times=None)
    assert result("new-all-gather+1GiB", program(w), program(w, endless)) == (
        "failed: new all-gather: unknown of v, allowed +1.0 GiB"
    )
    unread = program(unread=("%x = f32[] all-gather(%y)",))
    assert result("new-all-gather", program(), unread) == "failed: new all-gather: unknown"


def test_an_improvement_breaks_no_rule():
    before = program(gather(MIB), memory=ProgramMemory(peak_nbytes=2 * MIB))
    after = program(memory=ProgramMemory(peak_nbytes=MIB), dot_flops=10)
    for rule, fact in {
        "all-gather": "all-gather -1.0 MiB (1.0 MiB to 0.0 B), no growth allowed",
        "sent+5%": "sent -100.0 % (1.0 MiB to 0.0 B), allowed +5 %",
        "memory": "memory -1.0 MiB (2.0 MiB to 1.0 MiB), no growth allowed",
        "flops+1%": "flops -99.0 % (1,000 to 10), allowed +1 %",
    }.items():
        assert result(rule, before, after) == f"passed: {fact}"
        assert_no_regression(before, after, fail_on=rule)


def test_memory_is_the_peak_or_else_the_sum_of_the_parts():
    assert result("memory+1GiB", memory(), memory(temporary_nbytes=3 * MIB)) == (
        "passed: memory +2.0 MiB (2.0 MiB to 4.0 MiB), allowed +1.0 GiB"
    )
    peaks = memory(peak_nbytes=MIB), memory(peak_nbytes=2 * MIB)
    assert result("memory", *peaks) == "failed: memory +1.0 MiB (1.0 MiB to 2.0 MiB), no growth allowed"
    # A peak is less than the sum of the parts: only equal figures are compared.
    assert result("memory", memory(), peaks[0]) == "passed: memory unchanged (2.0 MiB), no growth allowed"


UNREAD = {"unread": ("%k = f99[8] custom-call(%b)",)}
UNKNOWN = [
    ("sent+5%", program(gather(1, times=None)), "sent unknown (1.0 MiB to unknown), allowed +5 %"),
    ("all-gather", program(**UNREAD), "all-gather unknown (1.0 MiB to unknown), no growth allowed"),
    (
        "sent:tensor",
        program(gather(1, axes=None)),
        "sent over tensor unknown (0.0 B to unknown), no growth allowed",
    ),
    ("flops", program(dot_flops=None), "flops unknown (1,000 to unknown), no growth allowed"),
    ("memory", program(), "memory unknown (2.0 MiB to unknown), no growth allowed"),
    ("memory", memory(output_nbytes=None), "memory unknown (2.0 MiB to unknown), no growth allowed"),
    ("sharding", program(arguments=(replace(value("w"), got=None),)), "sharding: w (P('fsdp',) to unknown)"),
    (
        "sent",
        program(out_of_memory=OutOfMemory(message="too large")),
        "sent unknown (1.0 MiB to unknown), no growth allowed",
    ),
]


@pytest.mark.parametrize(("rule", "after", "fact"), UNKNOWN)
def test_what_is_unknown_breaks_a_rule(rule, after, fact):
    before = replace(program(gather(MIB)), memory=memory().memory)
    assert result(rule, before, after) == f"failed: {fact}"


def test_what_was_unknown_breaks_a_rule_unless_nothing_is_sent_now():
    before = program(gather(1, times=None))
    assert result("sent", before, program(gather(MIB))) == (
        "failed: sent unknown (unknown to 1.0 MiB), no growth allowed"
    )
    assert result("sent", before, program()) == "passed: sent unknown (unknown to 0.0 B), no growth allowed"


def test_another_sharding_breaks_the_rule_and_an_equivalent_one_does_not():
    before = program(outputs=(value("outputs/0"), value("outputs/1")))
    after = program(
        arguments=(value("w", ("fsdp",), ()), value("new")), outputs=(value("outputs/0", ("tensor",)),)
    )
    assert result("sharding", before, after) == "failed: sharding: outputs/0 (P() to P('tensor',))"
    assert result("sharding", before, program()) == "passed: sharding: none"
    hosted = replace(value("w", ("fsdp",)), memory_kind="pinned_host", is_in_host_memory=True)
    assert result("sharding", before, program(arguments=(hosted,))) == (
        "failed: sharding: w (P('fsdp',) to P('fsdp',) in pinned_host)"
    )


def test_a_lost_donation_breaks_the_rule_and_a_new_one_does_not():
    donated = program(donations=(Donation(path="w", nbytes=64, output="outputs"),))
    unused = program(donations=(Donation(path="w", nbytes=64, reason="dtype"),))
    assert result("donation", donated, unused) == (
        "failed: donation: w (reused for outputs to not reused, dtype)"
    )
    assert result("donation", donated, program()) == (
        "failed: donation: w (reused for outputs to not donated)"
    )
    assert result("donation", unused, donated) == "passed: donation: none"


def planned(dtype="float32", **specs):
    leaves = {path: jax.ShapeDtypeStruct((8, 16), dtype) for path in specs}
    return tree_report(leaves, mesh={"fsdp": 4}, specs=specs)


def test_rules_of_trees():
    before, after = planned(a=P("fsdp"), w=P("fsdp")), planned(w=P(), x=P(), y=P(), z=P(), zz=P())
    for rule, expected in {
        "memory+1KiB": "failed: memory +2.3 KiB (256.0 B to 2.5 KiB), allowed +1.0 KiB",
        "memory+900%": "passed: memory +900.0 % (256.0 B to 2.5 KiB), allowed +900 %",
        "added": "failed: added: x, y, z, and 1 more",
        "removed": "failed: removed: a",
        "changed": "failed: changed: w (P('fsdp',) to P())",
        "spec": "failed: spec: w (P('fsdp',) to P())",
        "dtype": "passed: dtype: none",
    }.items():
        assert result(rule, before, after) == expected
    assert result("dtype", before, planned("int8", a=P("fsdp"), w=P("fsdp"))) == (
        "failed: dtype: a (float32 to int8), w (float32 to int8)"
    )


def test_unknown_bytes_and_shardings_of_a_tree_break_its_rules():
    before = planned(w=P("fsdp"))
    row = replace(before.rows[0], unknown_because="traced", shard_nbytes=None, spec=None, sharding=None)
    after = replace(before, rows=(row,), unknown_count=1)
    assert result("spec", before, after) == "failed: spec: w (sharding unknown)"
    assert result("memory+1GiB", before, after) == (
        "failed: memory unknown (128.0 B to unknown), allowed +1.0 GiB"
    )
    assert result("shape", before, after) == "passed: shape: none"


def test_the_message_has_a_line_for_each_rule_broken_ones_first():
    with pytest.raises(CheckError) as error:
        assert_no_regression(program(), program(gather(MIB)), fail_on=("flops", "all-gather"))
    assert str(error.value) == (
        "failed: all-gather +1.0 MiB (0.0 B to 1.0 MiB), no growth allowed\n"
        "passed: flops unchanged (1,000), no growth allowed"
    )
    report = error.value.report
    assert [(one.rule, one.passed, one.before, one.after) for one in report.rules] == [
        ("flops", True, 1000, 1000),
        ("all-gather", False, 0, MIB),
    ]
    assert from_json(to_json(report)) == report


@pytest.mark.parametrize(
    ("rule", "position", "problem"),
    [
        ("send+5%", 0, "unknown rule 'send'"),
        ("", 0, "unknown rule ''"),
        ("memory:fsdp", 6, "a mesh axis follows only sent: or the name of a collective"),
        ("sent:", 4, "a mesh axis follows only sent: or the name of a collective"),
        ("memory@dcn", 6, "a link follows only sent@ or the name of a collective"),
        ("sent@wire", 0, "unknown rule 'sent@wire'"),
        ("@dcn", 0, "unknown rule '@dcn'"),
        ("sharding+5%", 8, "sharding accepts no growth"),
        ("sent+", 5, "expected a growth such as 5% or 10MiB"),
        ("sent+5x", 5, "expected a growth such as 5% or 10MiB"),
        ("sent+-5%", 5, "expected a growth such as 5% or 10MiB"),
        ("new-all-gather+5%", 15, "expected a growth such as 10MiB"),
        ("new-all-gathers", 0, "unknown rule 'new-all-gathers'"),
        ("work+1e9", 5, "expected a growth such as 10%"),
        ("flops+1GiB", 6, "expected a growth such as 5% or 1e9"),
    ],
)
def test_text_that_is_no_rule(rule, position, problem):
    with pytest.raises(NotationError) as error:
        parse_rule(rule)
    assert (error.value.text, error.value.position) == (rule, position)
    assert error.value.problem.startswith(f"{problem}: programs have the rules sent, memory, flops,")


def test_rules_that_do_not_apply():
    for rule, problem in {
        "added": "rule 'added' does not apply to programs: programs have the rules sent",
        "sent:data": "rule 'sent:data': 'data' is not a mesh axis: the meshes have 'fsdp', 'tensor'",
    }.items():
        with pytest.raises(UnsupportedValueError, match=problem):
            assert_no_regression(program(), program(), fail_on=rule)
    with pytest.raises(UnsupportedValueError, match="rule 'sent' does not apply to trees"):
        assert_no_regression(planned(), planned(), fail_on="sent")
    with pytest.raises(UnsupportedValueError, match="expected at least one rule"):
        assert_no_regression(program(), program(), fail_on=())
    with pytest.raises(UnsupportedValueError, match="expected a ProgramReport"):
        assert_no_regression(program(), planned(), fail_on="memory")


def test_an_unknown_link_breaks_a_rule_over_links():
    known, unknown = program(gather(MIB, link="dcn")), program(gather(MIB))
    assert result("sent@dcn", known, unknown).startswith("failed: sent by DCN unknown")
    assert result("sent", known, unknown).startswith("passed: sent")
