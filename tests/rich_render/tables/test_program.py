"""Text for programs: a summary for the first screen, then tables."""

from dataclasses import replace

import jax.numpy as jnp
import pytest
from rich.cells import cell_len

from jax_array_info import (
    collect_reports,
    config,
    print_program,
    print_program_diff,
    to_text,
)
from jax_array_info.engine.render import render, text_of
from jax_array_info.reports import (
    Because,
    Donation,
    Origin,
    ProgramMemory,
    SourceLine,
    Temporary,
)
from tests.sample_programs import SCAN, STEP, TOO_LARGE, because, gather, leaf, line, program, reduction

pytestmark = pytest.mark.oldest_and_newest


def text(report, width=80):
    return "\n".join(line.rstrip() for line in to_text(report, width=width).splitlines())


def lines_with(report, words):
    return [line for line in text(report, 200).splitlines() if words in line]


@pytest.mark.parametrize("report", [STEP, SCAN, TOO_LARGE])
@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 160, 200])
def test_lines_are_within_the_width_at_any_width(report, width):
    assert max(map(cell_len, to_text(report, width=width).splitlines())) <= width


def test_long_tables_are_folded_with_the_sum_of_the_rest():
    report = program(*(gather(None, number, 2**20) for number in range(1, 31)), gather(None, 40, times=None))
    shown = text_of(render(report, max_rows=2), width=80)
    assert "29 more" in shown
    assert "28.0 MiB + ?" in shown
    assert "train.py:3 " not in shown
    assert "more" not in text_of(render(report, max_rows=None), width=80)
    with pytest.raises(ValueError, match="max_rows must be at least 0"):
        text_of(render(report, max_rows=-1))


def test_collectives_of_arguments_that_differ_in_indices_share_a_row():
    layers = [gather(f"params/layers_{number}/w", 3, 2**20) for number in range(12)]
    report = program(gather("params/head", 3, 2**21), *layers, gather("params/layers_0/b", 3, 2**10))
    shown = text_of(render(report, max_rows=2, width=160), width=160)
    rows = [line for line in shown.splitlines() if "all-gather" in line and "│" in line]
    assert ["params/layers_0-11/w ×12" in row for row in rows] == [True, False]
    assert "12.0 MiB" in rows[0]
    assert "params/head" in rows[1]
    assert "1 more" in shown


def test_collectives_have_the_operation_that_needs_them():
    rule = "ik,kj->ij"
    layers = [
        gather(
            f"layers/{number}/w",
            3,
            2**20,
            because=(because("conflict", rule, ("i", "x"), ("k", f"layers/{number}/w")),),
        )
        for number in range(12)
    ]
    whole = gather("x", 4, 2**10, because=(because("conflict", "ij->ij", ("j", "x"), op="sort"),))
    sums = because("sum", rule, ("k", "x"), ("k", "wi"), axes=("data", "fsdp"))
    summed = reduction(("fsdp",), 5, 2**10, "backward", because=(sums,))
    alike = reduction(
        ("data",), 6, 2**9, "backward", because=(replace(sums, operands=(), mesh_axes=("data",)),)
    )
    both = because("sum", "ij->", ("i", "x"), ("j", "x"), op="reduce_sum", axes=("data",))
    total = reduction(("data",), 6, 2**9, "backward", because=(both,))
    constraint = Because(
        kind="constraint", op="sharding_constraint", mesh_axes=("fsdp", "tensor"), origin=line(12)
    )
    output = replace(constraint, op="return", mesh_axes=("fsdp",))
    some, other = because("conflict", rule, ("i", "x"), ("k", "w"), axes=("fsdp",)).operands
    unknown = replace(other, name="", axis_origin=replace(other.axis_origin, kind=None, path=None))
    common = Because(
        kind="conflict", op="dot_general", mesh_axes=("fsdp",), rule=rule, operands=(some, unknown)
    )
    twice = (replace(common, operands=(some, other), origin=line(5)), replace(common, origin=line(6)))
    rest = [
        gather("y", 7, 2**8, because=(constraint,)),
        gather("z", 8, 2**7, because=(output,)),
        gather("u", 9, 2**6, because=(common,)),
        gather("v", 9, 2**5, because=twice),
    ]
    shown = text_of(
        render(program(*layers, whole, summed, alike, total, *rest), width=240, max_rows=None), width=240
    )
    rows = [line.split("│")[-2].strip() for line in shown.splitlines() if line.count("│") > 2]
    assert [row for row in rows if " in " in row or row.startswith("the ")] == [
        "'i' (x) and 'k' (layers/0-11/w) clash in ik,kj->ij",
        "'j' (x) is needed whole in sort ij->ij",
        "'k' is summed over data, fsdp in ik,kj->ij",
        "a dimension is summed in ik,kj->ij",
        "'i' and 'j' are summed in reduce_sum ij->",
        "the constraint of train.py:12 is not sharded over fsdp, tensor",
        "the requested output is not sharded over fsdp",
        "'i' (x) and 'k' clash in ik,kj->ij",
        "'i' (x) and 'k' (w) clash in ik,kj->ij of train.py:5; 'i' (x) and 'k' clash in ik,kj->ij of train.py:6",
    ]


def test_print_program_shows_a_number_of_rows(capsys):
    report = program(*(gather(None, number, 2**20) for number in range(1, 31)))
    print_program(report)
    shown = capsys.readouterr().out
    assert "6 more" in shown
    assert len(shown.splitlines()) <= 40
    print_program(report, max_rows=3)
    assert "27 more" in capsys.readouterr().out
    with pytest.raises(ValueError, match="max_rows must be at least 0"):
        print_program(report, max_rows=-1)


def test_bytes_that_depend_on_data_are_a_bound():
    ragged = replace(
        gather(None, 1, 2**20, times=None, at_most=4), kind="ragged-all-to-all", depends_on_data=True
    )
    report = program(ragged)
    assert lines_with(report, "sent per device") == ["sent per device and call: ?, at most 4.0 MiB"]
    assert lines_with(report, "depend on data") == ["  ?: 1 collective sends bytes that depend on data"]
    assert "│ at most 4.0 MiB │ ≤ 1.0 MiB × 4 runs │ ragged-all-to-all" in text_of(
        render(report, width=160), width=160
    )


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (2**20, ""),
        (2**20 + 4, "; 4.0 B in the memory of outputs"),
        (2**20 + 512, "; 512.0 B in the memory of outputs"),
        (2**20 + 513, "; 513.0 B more than XLA allocates"),
    ],
)
def test_live_bytes_that_exceed_the_temporaries_have_a_reason(live, expected):
    memory = ProgramMemory(
        output_nbytes=512,
        temporary_nbytes=2**20,
        temporaries=(Temporary(shape=(256, 1024), dtype="float32", nbytes=2**20),),
        live_nbytes=live,
    )
    [shown] = lines_with(program(memory=memory), "largest temporaries")
    smaller = f", {live - 2**20}.0 B of them in smaller ones" if live > 2**20 else ""
    assert shown == (
        f"largest temporaries, 1.0 MiB live at once{smaller} (estimated from the schedule{expected})"
    )


def test_a_program_without_collectives_sends_nothing():
    assert lines_with(program(), "sent per device") == ["sent per device and call: none"]
    unread = program(unread=("?",))
    assert lines_with(unread, "sent per device") == [
        "sent per device and call: none in the lines that could be read"
    ]
    local = program(unread=("?",), unread_local=("?",))
    assert lines_with(local, "sent per device") == ["sent per device and call: none"]
    assert lines_with(local, "could not be read") == [
        "1 line without collectives could not be read. The figures do not include it."
    ]


def test_unknown_numbers_of_executions_are_bounded_where_possible():
    report = program(gather(None, 1, 2**20, times=None, at_most=3), gather(None, 2, 2**20))
    assert lines_with(report, "sent per device") == ["sent per device and call: 1.0 MiB + ?, at most 4.0 MiB"]
    report = program(gather(None, 1, 2**20, times=None))
    assert lines_with(report, "sent per device") == ["sent per device and call: ?"]
    assert lines_with(report, "unknown number") == ["  ?: 1 collective runs an unknown number of times"]


def test_leaves_that_differ_only_in_indices_share_an_entry():
    donations = [
        Donation(path=f"layers/{number}/w", nbytes=2**20, reason=f"dtype: outputs/{number}/w is bfloat16[8]")
        for number in range(3)
    ]
    report = program(donations=(Donation(path="head", nbytes=2**20, reason="unused"), *donations))
    assert lines_with(report, "donated:") == ["donated: 0 of 4 arguments reused"]
    assert text(report).splitlines()[8:11] == [
        "  3.0 MiB  layers/0-2/w ×3  dtype: outputs/0-2/w is bfloat16[8]",
        "  1.0 MiB  head             unused",
        "  ×n: n leaves; the bytes are their sum",
    ]


def test_values_as_asked_are_counted_and_not_listed():
    report = program(
        arguments=tuple(leaf(f"params/{number}", "fsdp") for number in range(12)),
        outputs=tuple(leaf(f"outputs/{number}", "fsdp") for number in range(12)),
    )
    assert lines_with(report, "as requested") == ["as requested: 12 arguments and 12 outputs"]
    assert "params" not in text(report)


def test_a_program_on_one_device_has_no_shardings():
    report = program(mesh=None, device_count=1, outputs=(leaf("outputs", asked=False),))
    assert (
        text(report)
        == """no findings
step (train.py:14), 1 CPU device
memory per device: about 0.0 B = arguments 0.0 B (the CPU backend reports no
  peak)
sent per device and call: none"""
    )


def test_keyword_arguments_of_print_program_belong_to_the_function():
    def scaled(x, *, factor):
        return x * factor

    with collect_reports() as reports:
        print_program(scaled, jnp.zeros(3), factor=2.0)
        print_program(STEP)
        print_program_diff(STEP, STEP)
    assert [type(report).__name__ for report in reports] == ["ProgramReport", "ProgramReport", "ProgramDiff"]
    assert [value.path for value in reports[0].arguments] == ["x", "factor"]
    assert reports[1] is STEP


def test_a_report_is_printed_as_it_is(capsys):
    print_program(STEP)
    assert "\nstep (train.py:14), 8 CPU devices" in capsys.readouterr().out
    for options in ({"topology": "v5e:2x4"}, {"x": 3}):
        with pytest.raises(TypeError, match="printed as it is"):
            print_program(STEP, **options)
    with pytest.raises(ValueError, match="max_rows must be at least 0"):
        print_program_diff(STEP, STEP, max_rows=-1)


def test_arguments_that_could_be_donated_are_named_by_their_first_keys():
    paths = [one.path for one in SCAN.arguments][:3]
    donatable = tuple(Donation(path=path, nbytes=2**20, output="outputs/1") for path in paths)
    report = replace(STEP, donatable=donatable)
    assert "Outputs could reuse 3.0 MiB per device of arguments that are not donated.\n" in text(report)
    assert "  3.0 MiB  state  3 leaves\n" in text(report)
    small = replace(STEP, donatable=(replace(donatable[0], nbytes=4),))
    accepted = "accepted: 4.0 B per device not donated, below the limit of 1.0 MiB"
    assert accepted in text(small)
    assert "JAI207" not in text(small)
    assert accepted not in text(replace(small, ignored_codes=("JAI207",)))


def test_updates_with_another_sharding_recompile_at_the_next_call():
    (number,) = (number for number, one in enumerate(STEP.outputs) if one.like == "params/wi")
    moved = replace(STEP.outputs[number], replaces="params/wi")
    outputs = (*STEP.outputs[:number], moved, *STEP.outputs[number + 1 :])
    moved = render(replace(STEP, outputs=outputs), width=200, max_rows=None)
    shown = " ".join(text_of(moved, width=200).split())
    assert "1 argument returns with another sharding: the next call compiles again." in shown
    assert "params/wi float32[256,1024] passed as P('fsdp', 'tensor'), returned as P(None, 'tensor')" in shown
    assert "JAI205" not in text(STEP)


def test_unrecorded_requests_are_not_left_to_the_compiler():
    values = (replace(one, asked=None, is_asked_known=False, like=None, lost_axes=()) for one in STEP.outputs)
    arguments = (replace(one, asked=None, is_asked_known=False) for one in STEP.arguments)
    report = replace(STEP, arguments=tuple(arguments), outputs=tuple(values), constraints=None)
    shown = " ".join(text(report, width=200).split())
    assert "chosen by XLA" not in shown
    assert "requested shardings are not recorded in a Compiled: " in shown


def test_lines_have_as_many_callers_as_asked_for_and_their_named_scopes(monkeypatch):
    main, step = (
        SourceLine(file="train.py", line=line, function=name) for line, name in ((9, "main"), (7, "step"))
    )
    library = SourceLine(file="/site-packages/flax/linear.py", line=3, function="dense")
    origin = Origin(file="train.py", line=2, function="block", callers=(step, main), skipped=(library,))
    scopes = ("layers_0/mlp", "layers_1/mlp", "layers_2/mlp", "head")
    row = gather(None, 1)
    report = program(replace(row, origin=origin, scopes=scopes))
    assert "linear.py:3 dense from train.py:2 block │ layers_0-2/mlp, head" in text(report, 200)
    monkeypatch.setattr(config, "callers", 3)
    assert "linear.py:3 dense from train.py:2 block from train.py:7 step from train.py:9 main │" in text(
        report, 200
    )
