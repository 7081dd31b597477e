"""Programs for several slices, in the text that libtpu 0.0.50 prints: what crosses slices, and what stays inside.

The programs run on two slices of four devices, whose ids begin with 100000 and 200000.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.geometry.layouts.links import Places
from jax_array_info_core.geometry.layouts.spec import MeshAxes
from jax_array_info_core.programs.collectives import ProgramDevices
from jax_array_info_core.programs.sent_totals import totals_of
from jax_array_info_core.xla.hlo.collectives import movements
from jax_array_info_core.xla.hlo.dataflow import Dataflow, Value
from jax_array_info_core.xla.hlo.replica_groups import ProgramSlices
from tests.core.programs.collectives_of_text import collectives_of
from tests.hlo_texts import entry_of

pytestmark = pytest.mark.newest

RUNTIME = '_xla_host_transfer_handler_name="xla_megascale_runtime"'
SLICES = np.array([0] * 4 + [1] * 4)
IDS = np.array([100000, 100002, 100001, 100003, 200000, 200002, 200001, 200003])
MESH = MeshAxes(("dcn", "ici"), (2, 4))
EACH = '"{1,2}x{0:3}"'
LISTED = "{{100000,200000},{100002,200002},{100001,200001},{100003,200003}}"
RING = "{{100003->200000},{200003->100000}}"


def between(kind, operand, result, target=EACH, name="all-reduce.1_0", operand_name="p"):
    """Return the lines of a transfer of arrays of these types from slice to slice."""
    attributes = f'{RUNTIME},_xla_host_transfer_rendezvous="{name}",_xla_megascale_target={target}'
    attributes += f',_xla_megascale_transfer_type="{kind}"' if kind else ""
    ends = f"is_host_transfer=true, frontend_attributes={{{attributes}}}"
    done = f"is_host_transfer=true, frontend_attributes={{{RUNTIME}}}"
    return (
        f"%token = token[] after-all(), frontend_attributes={{MegascaleRendezvousKeyName={name!r}}}".replace(
            "'", '"'
        ),
        f"%send = ({operand}, u32[], token[]) send(%{operand_name}, %token), channel_id=2, {ends}",
        f"%recv = ({result}, u32[], token[]) recv(%token), channel_id=1, {ends}",
        f"%send-done = token[] send-done(%send), channel_id=2, {done}",
        f"%recv-done = ({result}, token[]) recv-done(%recv), channel_id=1, {done}",
        f"ROOT %array = {result} get-tuple-element(%recv-done), index=0",
    )


def module_with(*lines, parameter="f32[128,256]{1,0}"):
    first = f'  %p = {parameter} parameter(0), metadata={{op_name="x"}}'
    return entry_of(first, *lines, header="num_partitions=4")


def collectives(module, ids=IDS, slices=SLICES, mesh=MESH):
    devices = ProgramDevices(
        ids, Places(hosts=slices, slices=slices, coords=np.zeros((len(ids), 3), np.int64) + ids[:, None] % 10)
    )
    found, unread = collectives_of(module, mesh, {"x": "x"}, devices=devices)
    assert unread == ()
    return found


SHARD = "f32[128,256]{1,0}"
NBYTES = 128 * 256 * 4


@pytest.mark.parametrize(
    ("kind", "operand", "result", "target", "expected"),
    [
        ("ALL_REDUCE", SHARD, SHARD, EACH, ("all-reduce", ("dcn",), 2, NBYTES)),
        ("ALL_REDUCE", SHARD, SHARD, LISTED, ("all-reduce", ("dcn",), 2, NBYTES)),
        ("ALL_GATHER", SHARD, "f32[256,256]{1,0}", EACH, ("all-gather", ("dcn",), 2, NBYTES)),
        ("REDUCE_SCATTER", SHARD, "f32[64,256]{1,0}", EACH, ("reduce-scatter", ("dcn",), 2, NBYTES // 2)),
        ("ALL_TO_ALL", SHARD, SHARD, LISTED, ("all-to-all", ("dcn",), 2, NBYTES // 2)),
        (
            "ALL_TO_ALL",
            SHARD,
            SHARD,
            "{{100000,100002,100001,100003,200000,200002,200001,200003}}",
            ("all-to-all", ("dcn", "ici"), 8, NBYTES * 7 // 8),
        ),
        ("ONE_TO_ONE", SHARD, SHARD, RING, ("collective-permute", ("dcn", "ici"), 2, NBYTES)),
    ],
)
def test_a_transfer_between_slices_is_a_collective_once(kind, operand, result, target, expected):
    """Its bytes by hand: those of the collective among the slices, with an array of a device's shard."""
    (found,) = collectives(module_with(*between(kind, operand, result, target)))
    assert (found.kind, found.axes, found.group_size, found.sent_nbytes) == expected
    assert (found.link, found.path, found.is_async, found.count) == ("dcn", "x", True, 1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("all-reduce.1_0", "all-reduce"), ("all-gather_0", "all-gather"), ("all_to_all.15_0", "all-to-all")],
)
def test_without_a_type_the_name_of_the_rendezvous_tells_the_kind(name, kind):
    (found,) = collectives(module_with(*between(None, SHARD, SHARD, name=name)))
    assert found.kind == kind


@pytest.mark.parametrize(
    "change",
    [
        ('"ALL_REDUCE"', '"TWO_TO_ONE"'),
        ("{1,2}x{0:3}", "{1,3}x{0:3}"),
        ("{1,2}x{0:3}", "{1,2}"),
        ("{1,2}x{0:3}", "{0:999999}x{0:3}"),
        ("{1,2}x{0:3}", "{0:60000}x{0:60000}"),
        ("{1,2}x{0:3}", "{}x{}"),
        ('"{1,2}x{0:3}"', "{{}}"),
        ('_xla_megascale_target="{1,2}x{0:3}",', ""),
        ("%recv = ", "%other = "),
    ],
)
def test_a_transfer_that_is_not_understood_is_unread(change):
    lines = [line.replace(*change) for line in between("ALL_REDUCE", SHARD, SHARD)]
    if change[0].startswith("%recv"):
        lines = lines[:2]
    module = module_with(*lines)
    moved, unread = movements(Dataflow(module), ProgramSlices.of(IDS, SLICES))
    assert moved == []
    assert [line.startswith("%send = send(%p, %token)") for line in unread] == [True]


def test_a_transfer_to_the_host_is_none():
    lines = [line.replace("xla_megascale_runtime", "host") for line in between("ALL_REDUCE", SHARD, SHARD)]
    assert movements(Dataflow(module_with(*lines)), ProgramSlices.of(IDS, SLICES)) == ([], [])


def test_without_its_devices_a_transfer_has_its_bytes_and_unknown_axes_and_link():
    module = module_with(*between("ALL_REDUCE", SHARD, SHARD))
    (found,), unread = collectives_of(module, MESH, {})
    assert (found.kind, found.sent_nbytes, found.axes, found.link, unread) == (
        "all-reduce",
        NBYTES,
        None,
        None,
        (),
    )


GATHER = (
    "%gather = f32[512,256]{1,0} all-gather(%p), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0},"
    " use_global_device_ids=true"
)


def test_groups_of_one_slice_are_those_of_all():
    (found,) = collectives(module_with(GATHER))
    assert (found.axes, found.link, found.sent_nbytes) == (("ici",), "ici", 3 * NBYTES)


@pytest.mark.parametrize(
    ("groups", "axes"), [("{{0,2},{1,3}}", ("a",)), ("{{0,1},{2,3}}", ("b",)), ("{{0,1,2,3}}", ("a", "b"))]
)
def test_an_axis_over_slices_can_be_any_axis_of_the_mesh(groups, axes):
    """In a mesh a=2, d=2, b=2 with slices along d, a slice has every second pair of devices."""
    mesh = MeshAxes(("a", "d", "b"), (2, 2, 2))
    slices = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    ids = np.array([100000, 100002, 200000, 200002, 100001, 100003, 200001, 200003])
    inside = GATHER.replace("{{0,1,2,3}}", groups).replace("f32[512,256]", f"f32[{128 * 2 ** len(axes)},256]")
    (found,) = collectives(module_with(inside), ids, slices, mesh)
    assert (found.axes, found.link) == (axes, "ici")
    (found,) = collectives(module_with(*between("ALL_REDUCE", SHARD, SHARD)), ids, slices, mesh)
    assert (found.axes, found.link) == (("d",), "dcn")


def test_a_permute_inside_a_slice_and_one_between_slices_count_for_their_links():
    inside = f"%inside = {SHARD} collective-permute(%p), channel_id=1, source_target_pairs={{{{0,1}},{{1,2}},{{2,3}}}}"
    found = collectives(module_with(inside, *between("ONE_TO_ONE", SHARD, SHARD, RING)))
    assert {one.link: (one.axes, one.sent_nbytes) for one in found} == {
        "ici": (("ici",), NBYTES),
        "dcn": (("dcn", "ici"), NBYTES),
    }
    assert [(one.link, one.nbytes) for one in totals_of(found).by_link] == [("dcn", NBYTES), ("ici", NBYTES)]


def test_values_pass_a_transfer_between_slices():
    """What is computed from the received array is computed from the sent one."""
    negated = f"%negated = {SHARD} negate(%array)"
    dataflow = Dataflow(module_with(*between("ALL_REDUCE", SHARD, SHARD), negated))
    assert "negate" in [one.opcode for one in dataflow.consumers(Value("main", "p"))]
    assert "parameter" in [one.opcode for one in dataflow.producers(Value("main", "negated"))]
    argument = dataflow.argument(Value("main", "array"))
    assert argument is not None
    assert dataflow.instruction(argument).op_name == "x"


@given(st.integers(1, 3), st.integers(1, 4), st.data())
def test_groups_of_one_slice_are_lifted_device_by_device(slice_count, in_slice, data):
    slices = np.array(
        data.draw(st.permutations([number for number in range(slice_count) for _ in range(in_slice)]))
    )
    ids = np.arange(len(slices)) * 7
    size = data.draw(st.integers(1, in_slice))
    order = data.draw(st.permutations(range(in_slice)))
    groups = [order[start : start + size] for start in range(0, in_slice, size)]
    filled = np.array([[*one, *[-1] * (size - len(one))] for one in groups])
    program = ProgramSlices.of(ids, slices)
    found = program.everywhere(filled).tolist()
    members = [[at for at, number in enumerate(slices) if number == each] for each in range(slice_count)]
    expected = [[-1 if one < 0 else each[one] for one in row] for each in members for row in filled.tolist()]
    assert found == expected
    assert (
        program.positions(
            np.array(expected) * 7 * (np.array(expected) >= 0) - (np.array(expected) < 0)
        ).tolist()
        == found
    )
