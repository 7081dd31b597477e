"""Arrays that collectives move, and the bytes that a device sends."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.facts.reports.collectives import Collective
from jax_array_info_core.xla.hlo.collectives import movements, sent_nbytes, sent_parts
from jax_array_info_core.xla.hlo.dataflow import Dataflow
from tests.hlo_texts import entry_of

pytestmark = pytest.mark.newest


def moved(*lines, before=""):
    """Return the movements and the unread instructions of a program on 8 devices."""
    return movements(Dataflow(entry_of(*lines, before=before, header="num_partitions=8")))


P = '%p = f32[16]{0} parameter(0), metadata={op_name="x"}'
Q = "%q = bf16[4,2]{1,0} parameter(1)"


def rows(found):
    return [(one.kind, one.shape.dtype, one.shape.dims, one.sent_nbytes, one.group_size) for one in found]


@pytest.mark.parametrize(
    ("kind", "operand", "result", "size", "sent"),
    [
        ("all-gather", 100, 400, 4, 300),
        ("reduce-scatter", 400, 100, 4, 300),
        ("all-to-all", 400, 400, 4, 300),
        ("all-reduce", 400, 400, 4, 600),
        ("collective-permute", 400, 400, 4, 400),
        ("collective-broadcast", 400, 400, 4, 400),
        ("ragged-all-to-all", 400, 400, 4, 1200),
        ("all-reduce", 4, 4, 3, 6),
        ("all-reduce", 1, 1, 8, 2),
        ("all-gather", 1, 2, 3, 2),
        ("all-reduce", 400, 400, 1, 0),
        ("collective-permute", 400, 400, 1, 0),
    ],
)
def test_bytes_follow_the_formula_of_each_collective_rounded_up(kind, operand, result, size, sent):
    assert sent_nbytes(kind, operand, result, size) == sent


@given(st.sampled_from(["all-gather", "all-reduce", "all-to-all", "reduce-scatter"]), st.data())
def test_parts_of_bytes_are_exact_over_many_executions(kind, data):
    """No execution is rounded: only their sum is, up to a whole byte."""
    nbytes, size = data.draw(st.integers(0, 2**40)), data.draw(st.integers(2, 600))
    times = data.draw(st.integers(1, 2**20))
    sent, excess = sent_parts(kind, nbytes, nbytes, size)
    exact = Fraction(nbytes * (2 if kind == "all-reduce" else 1) * (size - 1), size)
    assert sent == sent_nbytes(kind, nbytes, nbytes, size) == -(-exact // 1)
    row = Collective(
        kind=kind,
        axes=None,
        group_size=size,
        dtype="int8",
        shape=(),
        sent_nbytes=sent,
        excess=excess,
        times=times,
    )
    assert row.total_nbytes == -(-exact * times // 1)


def test_a_combined_collective_has_one_movement_for_each_array():
    found, unread = moved(
        P,
        Q,
        "%r = (f32[16]{0}, bf16[4,2]{1,0}) all-reduce(%p, %q), channel_id=1, replica_groups=[2,4]<=[8],"
        " use_global_device_ids=true, to_apply=%add",
    )
    assert unread == []
    assert rows(found) == [
        ("all-reduce", "float32", (16,), 96, 4),
        ("all-reduce", "bfloat16", (4, 2), 24, 4),
    ]
    assert [one.value.element for one in found] == [0, 1]


def test_a_start_has_its_operands_before_its_results():
    """One array is (operand, result), several are ((operands), (results)); a done moves nothing."""
    one, _ = moved(
        P,
        "%s = (f32[16]{0}, f32[64]{0}) all-gather-start(%p), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0},"
        " use_global_device_ids=true",
        "%d = f32[64]{0} all-gather-done(%s)",
    )
    assert rows(one) == [("all-gather", "float32", (64,), 192, 4)]
    two, _ = moved(
        P,
        Q,
        "%s = ((f32[16]{0}, bf16[4,2]{1,0}), (f32[64]{0}, bf16[16,2]{1,0})) all-gather-start(%p, %q), channel_id=1,"
        " replica_groups=[2,4]<=[8], dimensions={0}, use_global_device_ids=true",
    )
    assert rows(two) == [
        ("all-gather", "float32", (64,), 192, 4),
        ("all-gather", "bfloat16", (16, 2), 48, 4),
    ]
    permute, _ = moved(
        P,
        "%s = (f32[16]{0}, f32[16]{0}, u32[], u32[]) collective-permute-start(%p), channel_id=1,"
        " source_target_pairs={{0,1},{1,0}}",
    )
    assert rows(permute) == [("collective-permute", "float32", (16,), 64, 2)]
    assert all(movement.is_async for movement in (*one, *two, *permute))


def test_a_collective_in_an_asynchronous_computation_is_asynchronous():
    found, _ = moved(
        P,
        "%s = ((f32[16]{0}), f32[4]{0}, u32[]) async-start(%p), calls=%wrapped",
        "%d = f32[4]{0} async-done(%s)",
        before="%wrapped (a: f32[16]) -> f32[4] {\n  %a = f32[16]{0} parameter(0)\n  ROOT %r = f32[4]{0}"
        " reduce-scatter(%a), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0},"
        " use_global_device_ids=true, to_apply=%add\n}\n",
    )
    assert rows(found) == [("reduce-scatter", "float32", (4,), 48, 4)]
    assert found[0].is_async


def test_an_all_to_all_of_one_array_for_each_device_is_one_movement():
    found, _ = moved(
        P,
        "%r = (f32[16]{0}, f32[16]{0}) all-to-all(%p, %p), channel_id=1, replica_groups=[4,2]<=[8]",
    )
    assert rows(found) == [("all-to-all", "float32", (2, 16), 64, 2)]
    array, _ = moved(
        Q, "%r = bf16[4,2]{1,0} all-to-all(%q), channel_id=1, replica_groups=[4,2]<=[8], dimensions={0}"
    )
    assert rows(array) == [("all-to-all", "bfloat16", (4, 2), 8, 2)]


def test_bytes_below_one_per_element_are_packed():
    found, _ = moved(
        "%p = s4[15]{0} parameter(0)",
        "%r = s4[15]{0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1}}",
    )
    assert rows(found) == [("collective-permute", "int4", (15,), 8, 2)]


@pytest.mark.parametrize("pairs", ["{}", "{{0,0},{1,1}}"])
def test_a_permute_without_two_devices_sends_nothing(pairs):
    found, _ = moved(P, f"%r = f32[16]{{0}} collective-permute(%p), source_target_pairs={pairs}")
    assert rows(found) == [("collective-permute", "float32", (16,), 0, 1)]


def test_groups_of_replicas_are_all_devices():
    """Without use_global_device_ids, ``{{0}}`` is the one replica of the program, with all its partitions."""
    found, _ = moved(P, "%r = f32[16]{0} all-reduce(%p), channel_id=1, replica_groups={{0}}, to_apply=%add")
    assert rows(found) == [("all-reduce", "float32", (16,), 112, 8)]
    alone, _ = moved(P, "%r = f32[16]{0} all-reduce(%p), replica_groups={{0}}, to_apply=%add")
    assert rows(alone) == [("all-reduce", "float32", (16,), 0, 1)]
    every, _ = moved(P, "%r = f32[16]{0} all-reduce(%p), channel_id=1, replica_groups={}, to_apply=%add")
    assert rows(every) == [("all-reduce", "float32", (16,), 112, 8)]


def test_the_largest_of_uneven_groups_counts():
    found, _ = moved(
        P,
        "%r = f32[16]{0} all-reduce(%p), channel_id=1, replica_groups={{0,1,2,3},{4,5},{6},{7}},"
        " use_global_device_ids=true, to_apply=%add",
    )
    assert rows(found) == [("all-reduce", "float32", (16,), 96, 4)]


def test_a_send_to_a_device_counts_and_one_to_the_host_does_not():
    pairs = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}'
    lines = (P, "%t = token[] after-all()", "%s = (f32[16]{0}, u32[], token[]) send(%p, %t), channel_id=1, ")
    to_device, unread = moved(*lines[:2], lines[2] + pairs)
    assert rows(to_device) == [("send", "float32", (16,), 64, 3)]
    to_host, also_unread = moved(*lines[:2], lines[2] + "is_host_transfer=true")
    assert to_host == unread == also_unread == []


def test_a_ragged_all_to_all_moves_its_first_operand():
    found, _ = moved(
        P,
        "%o = f32[32]{0} parameter(1)",
        "%i = s32[4]{0} parameter(2)",
        "%r = f32[32]{0} ragged-all-to-all(%p, %o, %i, %i, %i, %i), channel_id=1, replica_groups=[2,4]<=[8]",
    )
    assert rows(found) == [("ragged-all-to-all", "float32", (16,), 192, 4)]
    assert found[0].depends_on_data


SCATTER = """%all-reduce-scatter (i: f32[16]) -> f32[4] {
  %i = f32[16]{0} parameter(0)
  %r = f32[16]{0} all-reduce(%i), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=%add
  %at = s32[] parameter(1)
  ROOT %part = f32[4]{0} dynamic-slice(%r, %at), dynamic_slice_sizes={4}
}
"""


def test_an_all_reduce_of_which_a_fusion_takes_a_part_is_a_reduce_scatter():
    found, _ = moved(
        P,
        "%z = s32[] constant(0)",
        "%f = f32[4]{0} fusion(%p, %z), calls=%all-reduce-scatter",
        before=SCATTER,
    )
    assert rows(found) == [("reduce-scatter", "float32", (4,), 48, 4)]


def test_an_all_reduce_whose_part_is_taken_outside_stays_one():
    found, _ = moved(
        P,
        "%z = s32[] constant(0)",
        "%r = f32[16]{0} all-reduce(%p), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true,"
        " to_apply=%add",
        "%f = f32[4]{0} dynamic-slice(%r, %z), dynamic_slice_sizes={4}",
    )
    assert rows(found) == [("all-reduce", "float32", (16,), 96, 4)]


def gather(name, computation, target):
    return f"""%{computation} (a: f32[16]) -> f32[64] {{
  %a.{name} = f32[16]{{0}} parameter(0)
  %g.{name} = f32[64]{{0}} all-gather(%a.{name}), channel_id=7, replica_groups=[2,4]<=[8], dimensions={{0}}, use_global_device_ids=true
  ROOT %r.{name} = {target}
}}

"""


def test_a_collective_that_asynchronous_fusions_continue_counts_once():
    start = gather(
        "1", "start", '(f32[16]{0}, f32[64]{0}) custom-call(%g.1), custom_call_target="AsyncCollectiveStart"'
    )
    step = gather("2", "async_collective_fusion", "(f32[16]{0}, f32[64]{0}) tuple(%a.2, %g.2)")
    done = gather("3", "done", 'f32[64]{0} custom-call(%a.3, %g.3), custom_call_target="AsyncCollectiveDone"')
    fusions = (
        P,
        "%s = (f32[16]{0}, f32[64]{0}) fusion(%p), kind=kCustom, calls=%start",
        "%a = f32[16]{0} get-tuple-element(%s), index=0",
        "%c = (f32[16]{0}, f32[64]{0}) fusion(%a), kind=kCustom, calls=%async_collective_fusion",
        "%b = f32[16]{0} get-tuple-element(%c), index=0",
        "%d = f32[64]{0} fusion(%b), kind=kCustom, calls=%done",
    )
    found, _ = moved(*fusions, before=start + step + done)
    assert rows(found) == [("all-gather", "float32", (64,), 192, 4)]
    assert found[0].is_async


def test_another_collective_with_the_channel_of_an_asynchronous_one_counts_too():
    """TPU gives the sum of an all-reduce-scatter fusion the channel of a gather."""
    start = gather(
        "1", "start", '(f32[16]{0}, f32[64]{0}) custom-call(%g.1), custom_call_target="AsyncCollectiveStart"'
    )
    done = gather("3", "done", 'f32[64]{0} custom-call(%a.3, %g.3), custom_call_target="AsyncCollectiveDone"')
    found, _ = moved(
        P,
        "%s = (f32[16]{0}, f32[64]{0}) fusion(%p), kind=kCustom, calls=%start",
        "%b = f32[16]{0} get-tuple-element(%s), index=0",
        "%d = f32[64]{0} fusion(%b), kind=kCustom, calls=%done",
        "%z = s32[] constant(0)",
        "%f = f32[4]{0} fusion(%p, %z), calls=%all-reduce-scatter",
        before=start + done + SCATTER.replace("channel_id=1", "channel_id=7"),
    )
    assert sorted(row[0] for row in rows(found)) == ["all-gather", "reduce-scatter"]


def test_equal_channels_alone_do_not_make_collectives_one():
    """A function that is called twice may have its channel twice."""
    line = "%{} = f32[16]{{0}} all-reduce(%p), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=%add"
    found, _ = moved(P, line.format("a"), line.format("b"))
    assert len(found) == 2


@pytest.mark.parametrize(
    "line",
    [
        "%r = f32[16]{0} all-reduce(%p), channel_id=1, replica_groups={{0,9}}, to_apply=%add",
        "%r = f32[16]{0} collective-permute(%p), source_target_pairs={{0,1}}, slice_sizes={{8}}",
        "%r = (f32[16]{0}, f32[64]{0}) all-gather(%p), channel_id=1, replica_groups=[2,4]<=[8]",
        "%r = f32[16]{0} all-somersault(%p), channel_id=1, replica_groups=[2,4]<=[8]",
        "%r = (f32[16]{0}, u32[], token[]) send(%p), channel_id=1",
    ],
)
def test_a_collective_that_is_not_understood_is_unread_and_not_zero(line):
    found, unread = moved(P, line)
    assert found == []
    assert len(unread) == 1
    assert unread[0].startswith("%r = ")
    assert len(unread[0]) <= 300


def test_a_kernel_that_copies_to_other_devices_is_unread():
    def kernel(configuration):
        return moved(
            P,
            '%k = f32[16]{0} custom-call(%p), custom_call_target="tpu_custom_call",'
            f' backend_config={{"custom_call_config":{{"body":"TUzvUg==",{configuration}"needs_layout_passes":true}}}}',
        )

    for written in ('"has_communication":true,', '"has_communication": true,'):
        assert kernel(written) == ([], ['%k = custom-call(%p), custom_call_target="tpu_custom_call"'])
    for local in ('"has_communication":false,', ""):
        assert kernel(local) == ([], [])
