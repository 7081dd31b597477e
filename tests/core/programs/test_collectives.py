"""Collectives in the programs of all versions of JAX: kinds, axes, bytes, executions, lines, paths and phases."""

from functools import cache

import pytest

from jax_array_info_core.facts.reports.collectives import Collective
from jax_array_info_core.facts.reports.program import ProgramReport, unknown_bytes
from jax_array_info_core.geometry.layouts.spec import MeshAxes
from jax_array_info_core.programs.sent_totals import runs_of, totals_of
from jax_array_info_core.xla.hlo.collectives import movements
from jax_array_info_core.xla.hlo.dataflow import Dataflow
from jax_array_info_core.xla.hlo.loops import executions
from jax_array_info_core.xla.hlo.messages import NEWEST_FIELD, hlo_classes, message_classes
from jax_array_info_core.xla.hlo.module import read_module
from tests.core.programs.collectives_of_text import DP, FSDP, collectives_of, of_module, of_text
from tests.hlo_texts import CPU, EVERYWHERE, module_of, records, stored

pytestmark = pytest.mark.newest

XY = MeshAxes(("x", "y"), (4, 2))
MESHES = {"convolution": DP, "uneven": DP, "donated": DP, "donor": DP, "rematerialized": XY}


@cache
def kept(where, program):
    """Return the collectives of a program in the test data."""
    return of_module(stored(where, program), MESHES.get(program, FSDP))


def by_kind_and_axes(found):
    return {(one.kind, one.axes): one.nbytes for one in totals_of(found).by_kind_and_axes}


OF_STEP = {
    ("all-gather", ("fsdp",)): 786_432,
    ("all-reduce", ("tensor",)): 524_288,
    ("all-reduce", ("fsdp",)): 1_048_576,
    ("all-reduce", ("data",)): 524_288,
}
SCATTERED = {key: nbytes for key, nbytes in OF_STEP.items() if key != ("all-reduce", ("fsdp",))} | {
    ("reduce-scatter", ("fsdp",)): 524_288
}


@pytest.mark.parametrize("version", CPU)
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("step", OF_STEP),
        ("scan_in_scan", {("all-reduce", ("tensor",)): 12 * 16_384}),
        ("convolution", {("all-gather", ("dp",)): 28_672}),
        ("uneven", {("all-gather", ("dp",)): 1_344}),
        ("rematerialized", {("all-gather", ("x",)): 6_144, ("all-gather", ("y",)): 8_192}),
    ],
)
def test_a_program_sends_the_same_bytes_in_each_version(version, program, expected):
    assert by_kind_and_axes(kept(version, program)) == expected


@pytest.mark.parametrize("version", CPU)
@pytest.mark.parametrize(
    ("program", "nbytes", "backward"),
    [("scan", 234_881_024, 167_772_160), ("checkpoint", 251_658_240, 184_549_376)],
)
def test_a_scan_sends_the_same_bytes_in_each_pass_in_each_version(version, program, nbytes, backward):
    """All of them four times: once per layer. What the backward pass recomputes belongs to it."""
    found = kept(version, program)
    totals = totals_of(found)
    assert totals.nbytes == nbytes
    assert {one.phase: one.nbytes for one in totals.by_phase} == {
        "backward": backward,
        "forward": nbytes - backward,
    }
    assert {one.times for one in found} == {4}


@pytest.mark.parametrize("where", EVERYWHERE)
def test_gathers_of_parameters_have_their_path_and_every_collective_has_a_line(where):
    """On JAX 0.12, the gathers have the name of the argument, and no line but that of their consumer."""
    for program in ("step", "scan", "checkpoint"):
        found = kept(where, program)
        assert {one.path for one in found if one.kind == "all-gather"} == {"params/wi", "params/wo"}
        assert all(one.path is None for one in found if one.kind != "all-gather")
        assert all(one.origin and one.origin.file.endswith("/step.py") for one in found)


def test_a_tpu_gathers_in_bfloat16_and_scatters_gradients():
    """v5e continues the gather of ``wo`` in several fusions; it counts once."""
    bytes_of = {}
    for where in ("v5p", "v5e"):
        found = kept(where, "step")
        bytes_of[where] = by_kind_and_axes(found)
        assert {one.dtype for one in found if one.kind == "all-gather"} == {"bfloat16"}
        assert any(one.is_async for one in found) == (where == "v5e")
    assert bytes_of["v5p"] == SCATTERED | {("all-gather", ("fsdp",)): 262_144}
    assert bytes_of["v5e"] == bytes_of["v5p"]
    for program in ("scan", "checkpoint"):
        assert by_kind_and_axes(kept("v5e", program)) == by_kind_and_axes(kept("v5p", program))


def test_a_gpu_combines_gathers_of_several_arrays():
    """Arrays of a combined collective are separate rows."""
    assert by_kind_and_axes(kept("h100", "step")) == SCATTERED


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize(
    ("program", "expected", "times"),
    [
        ("reduce_scatter", {("reduce-scatter", ("tensor",)): 8_192}, 1),
        ("all_to_all", {("all-to-all", ("fsdp",)): 8_192}, 1),
        ("permute", {("collective-permute", ("data",)): 5 * 16_384}, 5),
        ("donated", {}, None),
        ("donor", {}, None),
    ],
)
def test_small_programs_send_the_same_bytes_everywhere(where, program, expected, times):
    found = kept(where, program)
    assert by_kind_and_axes(found) == expected
    assert all(one.times == times for one in found)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_the_length_of_a_loop_that_depends_on_data_is_unknown(where):
    found = kept(where, "while")
    in_loop = [one for one in found if one.within]
    assert {(one.times, one.at_most, one.total_nbytes) for one in in_loop} == {(None, None, None)}
    assert {one.times_within for one in in_loop} == {1}
    # The condition runs once more than the body.
    assert {one.times for one in found if not one.within} <= {1}
    total = totals_of(found)
    assert total.nbytes == sum(one.total_nbytes for one in found if not one.within)
    assert total.unknown_count == sum(one.count for one in in_loop)
    (loop,) = total.per_iteration
    assert (loop.nbytes, loop.is_bound) == (sum(one.sent_nbytes * one.count for one in in_loop), False)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_branch_runs_at_most_once(where):
    found = kept(where, "cond")
    assert found
    assert {(one.times, one.at_most, one.total_nbytes) for one in found} == {(None, 1, None)}


def test_without_a_mesh_or_with_another_one_there_are_no_axes():
    program = stored("0.12.0.1", "step")
    for mesh in (None, MeshAxes(("x",), (4,))):
        found = of_module(program, mesh)
        assert {one.axes for one in found} == {None}
        assert totals_of(found).nbytes == 2_883_584


def test_axes_are_those_of_the_mesh_that_is_given():
    """XLA names axes of its own mesh: only positions count."""
    renamed = of_module(stored("0.12.0.1", "reduce_scatter"), MeshAxes(("a", "tensor", "b"), (2, 2, 2)))
    assert [one.axes for one in renamed] == [("b",)]
    halves = of_module(stored("0.12.0.1", "reduce_scatter"), MeshAxes(("all",), (8,)))
    assert [one.axes for one in halves] == [("all:(4)2",)]


def test_lines_of_hidden_files_stand_in_only_where_there_are_no_others():
    message = hlo_classes()["HloModuleProto"].FromString(records("0.12.0.1")["step"])
    files = message.stack_frame_index.file_names
    assert "/home/user/step.py" in files
    files[:] = ["/usr/lib/python3/dist-packages/jax/step.py"] * len(files)
    installed = of_module(read_module(message.SerializeToString()))
    assert {one.origin.file for one in kept("0.12.0.1", "step")} == {"/home/user/step.py"}
    assert {one.origin.file for one in installed} == {"/usr/lib/python3/dist-packages/jax/step.py"}


def test_totals_add_up_and_begin_with_the_most_bytes():
    found = kept("0.12.0.1", "checkpoint")
    assert [one.total_nbytes for one in found] == sorted((one.total_nbytes for one in found), reverse=True)
    totals = totals_of(found)
    for name in ("by_kind_and_axes", "by_phase"):
        rows = getattr(totals, name)
        assert sum(row.nbytes for row in rows) == totals.nbytes
        assert [row.nbytes for row in rows] == sorted((row.nbytes for row in rows), reverse=True)


def test_totals_count_what_is_unknown():
    facts = {"kind": "all-gather", "group_size": 2, "dtype": "float32", "shape": (2,), "sent_nbytes": 4}
    known = Collective(**facts, axes=("x",), count=3, times=5)
    unknown = Collective(**facts, axes=("y",), count=2, times=None)
    totals = totals_of([known, unknown])
    assert (totals.nbytes, totals.unknown_count) == (60, 2)
    assert [(row.axes, row.nbytes, row.unknown_count) for row in totals.by_kind_and_axes] == [
        (("x",), 60, 0),
        (("y",), 0, 2),
    ]


def at(line, name=None):
    """Return the metadata of an instruction."""
    op_name = "" if name is None else f'op_name="{name}" '
    return f'metadata={{{op_name}source_file="/home/user/step.py" source_line={line}}}'


def of_lines(*lines):
    """Return the collectives of a program on 8 devices of an argument ``w``."""
    return of_text(text_of(*lines))


def text_of(*lines):
    """Return the text of a program on 8 devices of an argument ``w``."""
    body = "\n".join(f"  {line}" for line in lines)
    return (
        "HloModule jit_f, num_partitions=8\n\n"
        "%sum {\n  %l = f32[] parameter(0)\n  %m = f32[] parameter(1)\n  ROOT %n = f32[] add(%l, %m)\n}\n\n"
        "ENTRY %main {\n"
        f'  %w = f32[16]{{0}} parameter(0), metadata={{op_name="w"}}\n{body}\n}}\n'
    )


GATHER = (
    "%g = f32[32]{0} all-gather(%w), channel_id=1, replica_groups=[4,2]<=[8], dimensions={0},"
    " use_global_device_ids=true"
)


def test_a_collective_without_a_line_has_that_of_its_first_consumer():
    """What only copies or casts has no line, either."""
    (row,) = of_lines(
        GATHER + ', metadata={op_name="w"}',
        "%h = bf16[32]{0} convert(%g)",
        "%k = bf16[32]{0} negate(%h), " + at(7, "jit(f)/jvp()/neg"),
        "ROOT %r = bf16[32]{0} negate(%k), " + at(9, "jit(f)/transpose(jvp())/neg"),
    )
    assert (row.origin.line, row.phase, row.path) == (7, "forward", "w")


def test_at_the_end_of_a_program_a_collective_has_the_line_of_its_producer():
    (row,) = of_lines(
        "%n = f32[16]{0} negate(%w), " + at(5, "jit(f)/transpose(jvp())/neg"),
        "ROOT " + GATHER.replace("(%w)", "(%n)"),
    )
    assert (row.origin.line, row.phase, row.path) == (5, "backward", None)


def test_a_gather_has_the_line_of_the_operation_that_needs_the_whole_array():
    """The partitioner gives the gather the line of the operation that computes its operand."""
    needs = "%d = f32[] dot(%c, %c), lhs_contracting_dims={0}, rhs_contracting_dims={0}, " + at(
        9, "jit(f)/dot"
    )
    changes = "%d = f32[32]{0} sine(%c), " + at(9, "jit(f)/sin")
    for user, line, is_near in ((needs, 9, False), (changes, 5, True)):
        (row,) = of_lines(
            "%n = f32[16]{0} negate(%w), " + at(5, "jit(f)/neg"),
            GATHER.replace("(%w)", "(%n)") + ", " + at(5, "jit(f)/neg"),
            "%c = f32[32]{0} convert(%g)",
            user,
            "ROOT %r = f32[32]{0} negate(%d)",
        )
        assert (row.origin.line, row.origin.is_near) == (line, is_near)


def test_what_both_passes_use_is_gathered_in_the_forward_pass():
    """Even where the backward pass uses it directly, and the forward pass a copy."""
    (row,) = of_lines(
        GATHER + ', metadata={op_name="w"}',
        "%c = f32[32]{0} copy(%g)",
        "%d = f32[32]{0} copy(%c)",
        "%k = f32[32]{0} negate(%d), " + at(7, "jit(f)/jvp()/neg"),
        "ROOT %r = f32[32]{0} add(%k, %g), " + at(7, "jit(f)/transpose(jvp())/add"),
    )
    assert row.phase == "forward"


def test_what_only_the_backward_pass_uses_is_gathered_in_it():
    """Even where it is named for the forward pass, which computes its operand."""
    (row,) = of_lines(
        "%n = f32[16]{0} negate(%w), " + at(5, "jit(f)/jvp()/neg"),
        GATHER.replace("(%w)", "(%n)") + ", " + at(5, "jit(f)/jvp()/neg"),
        "ROOT %r = f32[32]{0} sine(%g), " + at(7, "jit(f)/transpose(jvp())/sin"),
    )
    assert row.phase == "backward"


def test_a_gather_of_the_user_belongs_to_the_pass_of_its_name():
    (row,) = of_lines(
        GATHER + ", " + at(5, "jit(f)/jvp(shard_map)/all_gather"),
        "ROOT %r = f32[32]{0} sine(%g), " + at(7, "jit(f)/transpose(jvp())/sin"),
    )
    assert row.phase == "forward"


def test_the_bytes_of_a_ragged_all_to_all_are_a_bound():
    rows = of_lines(
        "%s = s32[8]{0} iota(), iota_dimension=0",
        "ROOT %r = f32[32]{0} ragged-all-to-all(%w, %w, %s, %s, %s, %s), channel_id=1, replica_groups=[1,8]<=[8]",
    )
    (row,) = rows
    assert (row.shape, row.path, row.sent_nbytes, row.depends_on_data) == ((16,), "w", 448, True)
    assert (row.total_nbytes, row.times, row.at_most, row.bound_nbytes) == (None, None, 1, 448)
    totals = totals_of(rows)
    assert (totals.nbytes, totals.unknown_count) == (0, 1)
    report = ProgramReport(name="f", platform="tpu", collectives=rows, sent=totals)
    assert [*unknown_bytes(report)] == ["1 collective sends bytes that depend on data"]


def test_each_array_of_a_combined_collective_has_its_own_line_and_the_collective_counts_once():
    text = text_of(
        "%a = f32[8]{0} negate(%w)",
        "%all = (f32[16]{0}, f32[8]{0}) all-reduce(%w, %a), channel_id=1, replica_groups={}, to_apply=%sum, "
        + at(3, "jit(f)/transpose(jvp())/dot_general"),
        "%x = f32[16]{0} get-tuple-element(%all), index=0, " + at(3, "jit(f)/transpose(jvp())/dot_general"),
        "%y = f32[8]{0} get-tuple-element(%all), index=1, " + at(4, "jit(f)/jvp()/dot_general"),
        "ROOT %r = f32[16]{0} add(%x, %y), " + at(8),
    )
    module = module_of(text)
    assert runs_of(movements(module.once(Dataflow))[0], executions(module)) == 1
    assert [(row.shape, row.origin.line, row.phase, row.path) for row in of_text(text)] == [
        ((16,), 3, "backward", "w"),
        ((8,), 4, "forward", None),
    ]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("jit(f)/jvp()/dot_general", "forward"),
        ("jit(f)/jit(main)/jvp(while)/body/dot_general", "forward"),
        ("jit(f)/transpose(jvp())/dot_general", "backward"),
        ("jit(f)/vmap(transpose(jvp(g)))/dot_general", "backward"),
        ("jit(f)/transpose(jvp())/while/body/checkpoint/rematted_computation/dot_general", "backward"),
        ("jit(f)/dot_general", None),
        ("jit(f)/jit(transpose)/transpose", None),
        ("jit(my_jvp)/transpose[permutation=(1, 0)]", None),
    ],
)
def test_the_phase_is_that_of_the_name(name, phase):
    (row,) = of_lines(GATHER + ", " + at(1, name))
    assert row.phase == phase


def test_equal_collectives_are_one_row():
    second = GATHER.replace("%g", "%h").replace("channel_id=1", "channel_id=2")
    (row,) = of_lines(GATHER + ", " + at(1), second + ", " + at(1))
    assert (row.count, row.sent_nbytes, row.total_nbytes) == (2, 64, 128)
    assert len(of_lines(GATHER + ", " + at(1), second + ", " + at(2))) == 2


Later = message_classes("later", {"Later": f"groups {NEWEST_FIELD + 1} string"})["Later"]


@pytest.mark.parametrize("is_newer", [False, True])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_groups_that_are_not_understood_are_unread_and_the_rest_is_reported(where, is_newer):
    """Those of more devices than there are, and those that may be in a field of a later version."""
    message = hlo_classes()["HloModuleProto"].FromString(records(where)["step"])
    (entry,) = (one for one in message.computations if one.name == message.entry_computation_name)
    (parameter,) = (
        one for one in entry.instructions if one.opcode == "parameter" and not one.parameter_number
    )
    added = entry.instructions.add(
        name="nonsense", opcode="all-gather", shape=parameter.shape, operand_ids=[parameter.id], id=2**40
    )
    if is_newer:
        added.MergeFromString(Later(groups="[1,8]<=[8]").SerializeToString())
    else:
        added.replica_groups.add(replica_ids=range(99))
    for one in message.schedule.sequences:
        if one.key == entry.id:
            one.value.instruction_ids.append(added.id)
    module = read_module(message.SerializeToString())
    found, unread = collectives_of(module, FSDP, {})
    assert totals_of(found).nbytes == totals_of(kept(where, "step")).nbytes
    assert unread == (f"%nonsense = all-gather(%{parameter.name})",)
