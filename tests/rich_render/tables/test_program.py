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


def test_a_step_fits_the_first_screen_of_80_columns():
    expected = """
1 finding: JAI201 lost-mesh-axes
step (train.py:14), 8 CPU devices: data=2, fsdp=2, tensor=2
sent per device and call: 2.8 MiB (backward 1.5 MiB, unknown pass 768.0 KiB,
  forward 512.0 KiB)
    1.0 MiB  all-reduce over fsdp
  768.0 KiB  all-gather over fsdp
  512.0 KiB  all-reduce over data
  512.0 KiB  all-reduce over tensor
memory per device: about 6.4 MiB = arguments 1.0 MiB + outputs 768.0 KiB +
  temporaries 4.6 MiB (the CPU backend reports no peak); code 21.0 KiB
largest temporaries, 3.5 MiB live at once (estimated from the schedule):
    3.0 MiB  float32[8,64,512] ×3  train.py:9 loss
  512.0 KiB  float32[256,512]  train.py:10 loss
matmul and convolution FLOPs: 1,610,612,736 per device and call
as requested: 3 arguments
chosen by XLA: 2 outputs
On CPU, temporaries differ from those of an accelerator, and no reduce-scatter
  is formed.
On CPU, bfloat16 collectives are float32.
── JAI201 lost-mesh-axes: 512.0 KiB per device ─────────────────────────────────
1 output is replicated over fsdp; the argument that it replaces is sharded over
it.
Request the sharding of the argument: with out_shardings of jax.jit, or with
jax.lax.with_sharding_constraint where the output is made.
  512.0 KiB  outputs/wi
               float32[256,1024]  P(None, 'tensor')
               params/wi is sharded over fsdp
                                 collectives
┏━━━━━━━━━━━┳━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━┓
┃     total ┃ collective    ┃ array                       ┃ line             ┃
┡━━━━━━━━━━━╇━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━┩
│ 512.0 KiB │ all-gather    │ float32[256,512]            │ train.py:9 loss  │
│           │   over fsdp   │   2 collectives × 256.0 KiB │                  │
│           │               │   params/wi                 │                  │
│ 256.0 KiB │ all-gather    │ float32[256,512]            │ train.py:10 loss │
│           │   over fsdp   │   params/wo                 │                  │
│   1.0 MiB │ all-reduce    │ float32[16,64,256]          │ train.py:9 loss  │
│           │   over fsdp   │   2 collectives × 512.0 KiB │   backward       │
│ 512.0 KiB │ all-reduce    │ float32[16,64,256]          │ train.py:10 loss │
│           │   over tensor │                             │   forward        │
│ 512.0 KiB │ all-reduce    │ float32[16,64,256]          │ train.py:9 loss  │
│           │   over data   │                             │   backward       │
└───────────┴───────────────┴─────────────────────────────┴──────────────────┘
                      shardings that XLA chose
┏━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┓
┃ value      ┃ array             ┃ per device ┃ sharding            ┃
┡━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━┩
│ outputs/wi │ float32[256,1024] │  512.0 KiB │ P(None, 'tensor')   │
│ outputs/wo │ float32[1024,256] │  256.0 KiB │ P('tensor', 'fsdp') │
└────────────┴───────────────────┴────────────┴─────────────────────┘
"""
    assert text(STEP) == expected.strip("\n")
    assert len(text(STEP).partition("collectives\n")[0].splitlines()) <= 30


def test_the_summary_has_each_finding_with_its_reason():
    expected = """
fits: needs 13.0 GiB of 15.8 GiB per device; 5 findings: JAI201 lost-mesh-axes,
  JAI203 padded-constraint, JAI206 unused-donation, JAI208 full-replication,
  JAI210 unread-lines
train_step (train.py:14), v5e:2x4, 8 TPU devices: data=2, fsdp=2, tensor=2
sent per device and call: 65.0 MiB + ? (backward 65.0 MiB, unknown pass 28.0 B +
  ?)
  64.0 MiB + ?  all-gather over fsdp
       1.0 MiB  all-reduce over data, fsdp
        16.0 B  collective-permute over unknown axes
        12.0 B  all-to-all over tensor:(2)4
  ?: 3 collectives run an unknown number of times
memory per device: 13.0 GiB at the peak (arguments 8.0 GiB + outputs 8.0 GiB +
  temporaries, VMEM and constants 1.0 GiB - reused by donation 4.0 GiB); 5.0 GiB
  allocated for temporaries; code 1.0 MiB
largest temporaries, 4.0 GiB live at once (estimated from the schedule):
    1.0 GiB  bfloat16[4,8,256,2048]  line unknown  kept by a loop
    1.0 GiB  bfloat16[4,8,256,1024] ×2  train.py:21 block
  341.3 MiB  bfloat16[4,8,256,682]  train.py:22 block  kept by a loop
  512.0 MiB  bfloat16[4,8,256,512] ×2  line unknown
  and 4 more, 692.4 MiB
saved for the backward pass by JAX: 2.4 GiB per device, by line:
    1.0 GiB  line unknown  1 array, stacked by a loop
  512.0 MiB  train.py:21 block  2 arrays  named hidden
  341.3 MiB  train.py:22 block  1 array, stacked by a loop
  256.0 MiB  line unknown  2 arrays
  and 2 more lines, 375.5 MiB
offloaded to host memory for the backward pass: 512.0 MiB per device, by line:
  512.0 MiB  train.py:19 block  1 array
live when the backward pass begins: 2.5 GiB (estimated from the schedule;
  16.0 MiB more in VMEM)
matmul and convolution FLOPs: at least 1.6 G; 2 kernels of train.py:9 loss not
  counted; dot of train.py:14 train_step runs an unknown number of times
as requested: 25 arguments and 1 constraint
chosen by XLA: 25 outputs
removed by JAX as unused: batch/mask
donated: 12 of 25 arguments reused, 24.0 MiB per device
── JAI201 lost-mesh-axes: 6.0 MiB per device ───────────────────────────────────
24 outputs are replicated over fsdp; the arguments that they replace are sharded
over it.
Request the sharding of the argument: with out_shardings of jax.jit, or with
jax.lax.with_sharding_constraint where the output is made.
  3.0 MiB  outputs/0/layers/0-11/wi ×12
             float32[256,1024]  P(None, 'tensor')
             state/layers/0-11/wi is P('fsdp', 'tensor')
  3.0 MiB  outputs/0/layers/0-11/wo ×12
             float32[256,1024]  P(None, 'tensor')
             state/layers/0-11/wo is P('fsdp', 'tensor')
  ×n: n leaves; the bytes are their sum
── JAI203 padded-constraint ────────────────────────────────────────────────────
XLA pads the values of 12 sharding constraints.
Use shapes that the mesh axes divide, or constrain another axis.
  train.py:33 block ×12
    float32[17,16]  requested P('data',)
    inside the program, XLA pads axis 0 to 24: axis 0 of shape (17, 16) is not
    divisible by mesh axis 'data' of size 8: 17 % 8 = 1. Pad it to 24, or leave
    it unsharded.
── JAI206 unused-donation: 24.0 MiB per device ─────────────────────────────────
Donating 13 arguments of 24.0 MiB per device saves no memory.
Do not donate them, or return outputs of the same shape, dtype and sharding.
  24.0 MiB  state/layers/0-11/wi ×12
              dtype: no output has dtype float32 and shape (256, 1024)
  ×n: n leaves; the bytes are their sum
  and 1 more below 1%, 4.0 B
── JAI208 full-replication: 16.0 KiB per device ────────────────────────────────
3 values are resharded by full replication (XLA: involuntary full
rematerialization): each device holds the whole array for a while (the largest
takes at least 16.0 KiB), and sends at least 28.0 KiB per call.
Constrain the value to one of the two shardings where it is made: then none is
needed.
  16.0 KiB each  sharding_constraint ×2
                   float32[16,16,16]
                   the whole of shards float32[8,16,4], from P('data', None,
                   'tensor') to P(None, ('data', 'tensor'))  train.py:40 block
                 unknown operation
                   bfloat16[64,8192,3000]
                   the shard, from {devices=[1,64,4]<=[256]
                   last_tile_dim_replicate} to {replicated}
── JAI210 unread-lines ─────────────────────────────────────────────────────────
2 lines could not be read. The figures do not include them.
Update jax-array-info, or report the lines with your version of JAX.
  %x.1 = f32[8]{0} mystery(f32[8]{0} %y), replica_groups=???
  ENTRY nonsense
"""
    assert text(SCAN).startswith(expected.strip("\n") + "\n")


def test_columns_are_stacked_until_the_table_fits():
    expected = """
                                  collectives
┏━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
┃            total ┃ collective         ┃ array                                ┃
┡━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
│         64.0 MiB │ all-gather         │ float32[256,512]                     │
│                  │   over fsdp        │   2 collectives × 8.0 MiB × 4 runs   │
│                  │   backward, async  │   params/wi                          │
│                  │                    │   train.py:9 loss                    │
│ at most 32.0 MiB │ all-gather         │ float32[256,512]                     │
│                  │   over fsdp        │   8.0 MiB × ≤ 4 runs                 │
│                  │                    │   params/layers/0/attention/query/   │
│                  │                    │     kernel                           │
│                  │                    │   train.py:121 loss                  │
│                ? │ all-gather         │ float32[256,512]                     │
│                  │   over fsdp        │   2 collectives × 4.0 MiB × ? runs   │
│                  │                    │   train.py:122 loss                  │
│          1.0 MiB │ all-reduce         │ float32[16,64,256]                   │
│                  │   over data, fsdp  │   2 collectives × 512.0 KiB          │
│                  │   backward         │   train.py:9 loss                    │
│           16.0 B │ collective-permute │ bfloat16[8]                          │
│                  │   over groups of 4 │                                      │
│           12.0 B │ all-to-all         │ bfloat16[8]                          │
│                  │   over tensor:(2)4 │                                      │
└──────────────────┴────────────────────┴──────────────────────────────────────┘
                  temporaries live at the highest point
┏━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━┓
"""
    assert expected.strip("\n") in text(SCAN)
    assert "│ at most 32.0 MiB │ 8.0 MiB × ≤ 4 runs" in text(SCAN, 200)


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
    shown = text_of(render(program(*layers, whole, summed, alike, total, *rest), width=240), width=240)
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
    assert "10 more" in capsys.readouterr().out
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
    assert shown.endswith(f"live at once (estimated from the schedule{expected}):")


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
    assert text(report).splitlines()[-3:] == [
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
    report = replace(SCAN, donatable=donatable)
    assert "Outputs could reuse 3.0 MiB per device of arguments that are not donated.\n" in text(report)
    assert "  3.0 MiB  state  3 leaves\n" in text(report)
    small = replace(SCAN, donatable=(replace(donatable[0], nbytes=4),))
    accepted = "accepted: 4.0 B per device not donated, below the limit of 1.0 MiB"
    assert accepted in text(small)
    assert "JAI207" not in text(small)
    assert accepted not in text(replace(small, ignored_codes=("JAI207",)))


def test_updates_with_another_sharding_recompile_at_the_next_call():
    (number,) = (number for number, one in enumerate(STEP.outputs) if one.like == "params/wi")
    moved = replace(STEP.outputs[number], replaces="params/wi")
    outputs = (*STEP.outputs[:number], moved, *STEP.outputs[number + 1 :])
    shown = " ".join(text(replace(STEP, outputs=outputs), width=200).split())
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
