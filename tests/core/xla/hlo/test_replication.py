"""The axes along which values of devices differ, and the operations that all devices repeat."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.xla.hlo.collectives import movements
from jax_array_info_core.xla.hlo.dataflow import Dataflow
from jax_array_info_core.xla.hlo.replica_groups import Axes
from jax_array_info_core.xla.hlo.replication import Replication
from tests.hlo_texts import module_of

SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=3).filter(
    lambda sizes: max(sizes) > 1
)


def places(axes):
    """Return the places of all devices along the axes, of shape (axes, devices)."""
    count = axes.count(axes.all)
    return np.array(np.unravel_index(np.arange(count), axes.lengths))


@pytest.mark.newest
@given(SIZES, st.data())
def test_groups_along_axes_span_these_axes_and_their_devices(sizes, data):
    axes = Axes(dict(enumerate(sizes)))
    chosen = data.draw(st.integers(0, axes.all))
    others = [bit for bit in range(len(axes.lengths)) if not chosen >> bit & 1]
    keys = places(axes)[others]
    _, number = (
        np.unique(keys, axis=1, return_inverse=True) if others else (None, np.zeros(math.prod(sizes), int))
    )
    groups = np.argsort(number.ravel(), kind="stable").reshape(-1, axes.count(chosen))
    assert axes.spanned(groups) == chosen
    assert axes.exchanged(groups) == chosen
    assert groups.shape[1] == axes.count(chosen)


@pytest.mark.newest
@given(SIZES, st.data())
def test_of_any_groups_devices_along_spanned_axes_are_together_and_no_others_exchange(sizes, data):
    axes = Axes(dict(enumerate(sizes)))
    count = math.prod(sizes)
    size = data.draw(st.sampled_from([one for one in range(1, count + 1) if count % one == 0]))
    groups = np.array(data.draw(st.permutations(range(count)))).reshape(-1, size)
    number = np.empty(count, int)
    number[groups] = np.arange(len(groups))[:, None]
    spanned, exchanged = axes.spanned(groups), axes.exchanged(groups)
    at = places(axes)
    for bit in range(len(axes.lengths)):
        same = np.delete(at, bit, 0)
        for one in range(count):
            along = np.flatnonzero((same == same[:, [one]]).all(0))
            assert not spanned >> bit & 1 or len(set(number[along])) == 1
        differ = any(len(set(at[bit, group])) > 1 for group in groups)
        assert exchanged >> bit & 1 or not differ


@pytest.mark.newest
@given(SIZES, st.data())
def test_values_differ_along_the_axes_that_they_depend_on(sizes, data):
    axes = Axes(dict(enumerate(sizes)))
    chosen = data.draw(st.integers(0, axes.all))
    bits = [bit for bit in range(len(axes.lengths)) if chosen >> bit & 1]
    values = np.stack([np.zeros(math.prod(sizes), int), *places(axes)[bits]], axis=1)
    assert axes.varied(values) == chosen


@pytest.mark.newest
def test_groups_that_are_not_known_span_no_axes_and_exchange_along_all():
    axes = Axes({"x": 2, "y": 4})
    for groups in (None, np.array([[0, 1]]), np.array([[-1, 0, 1, 2, 3, 4, 5, 6]])):
        assert axes.spanned(groups) == 0
        assert axes.exchanged(groups) == axes.all


def repeated(body, shape="f32[64,64]", before=""):
    """Return the names of what eight devices repeat in a program that gathers a sharded argument."""
    module = module_of(
        f"""HloModule jit_f, is_scheduled=true, num_partitions=8
{before}
ENTRY %main (a: f32[8,64]) -> {shape} {{
  %a = f32[8,64]{{1,0}} parameter(0), metadata={{op_name="a"}}
  %whole = f32[64,64]{{1,0}} all-gather(%a), channel_id=1, replica_groups=[1,8]<=[8], dimensions={{0}}, use_global_device_ids=true
  {body}
}}
"""
    )
    moved, unread = movements(Dataflow(module))
    assert not unread
    found = Replication(module, moved, {"x": 8}, [{"x"}]).repeated()
    return [one.instruction.name for one in found]


def call(target, operand="whole"):
    return f'f32[64,64]{{1,0}} custom-call(%{operand}), custom_call_target="{target}"'


KERNELS = (
    "lapack_spotrf_ffi",
    "__cublas$lt$matmul",
    "tpu_custom_call",
    "Qr",
    "my_library_fast_sweep",
    "TopK",
)
MARKS = (
    *(
        "AllocateBuffer",
        "AssumeGatherIndicesInBound",
        "ConcatBitcast",
        "MoveToHost",
        "PadToStatic",
        "Sharding",
    ),
    *("SliceToDynamic", "X64Combine", "annotate_device_placement", "SPMDFullToShardShape"),
)


@pytest.mark.newest
@pytest.mark.parametrize("target", KERNELS + MARKS)
def test_a_custom_call_of_a_gathered_array_is_repeated_if_it_has_a_kernel(target):
    assert repeated(f"ROOT %made = {call(target)}") == (["made"] if target in KERNELS else [])


@pytest.mark.newest
def test_a_kernel_after_a_mark_is_repeated():
    mark = call("annotate_device_placement")
    assert repeated(f"%mark = {mark}\n  ROOT %made = {call('Eigh', 'mark')}") == ["made"]


@pytest.mark.newest
def test_a_kernel_on_what_differs_again_is_not_repeated():
    own = "f32[64,64]{1,0} broadcast(%number), dimensions={}"
    number = "%id = u32[] partition-id()\n  %number = f32[] convert(%id)"
    both = "f32[64,64]{1,0} add(%whole, %own)"
    assert (
        repeated(f"{number}\n  %own = {own}\n  %both = {both}\n  ROOT %made = {call('Eigh', 'both')}") == []
    )


@pytest.mark.newest
def test_a_kernel_on_parts_from_a_table_of_offsets_is_not_repeated_and_the_whole_is_used_in_parts():
    table = "%table = s32[8]{0} constant({0, 8, 16, 24, 32, 40, 48, 56})"
    number = "%id = u32[] partition-id()\n  %number = s32[] convert(%id)"
    entry = "%entry = s32[1]{0} dynamic-slice(%table, %number), dynamic_slice_sizes={1}"
    place = "%place = s32[] bitcast(%entry)\n  %zero = s32[] constant(0)"
    part = "%part = f32[8,64]{1,0} dynamic-slice(%whole, %place, %zero), dynamic_slice_sizes={8,64}"
    made = 'ROOT %made = f32[8,64]{1,0} custom-call(%part), custom_call_target="Qr"'
    body = "\n  ".join([table, number, entry, place, part, made])
    assert repeated(body, "f32[8,64]") == ["whole"]


@pytest.mark.newest
def test_a_kernel_of_an_exchanged_array_is_not_repeated():
    exchanged = (
        "f32[64,64]{1,0} collective-permute(%whole), channel_id=2, "
        "source_target_pairs={{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7},{7,0}}"
    )
    assert repeated(f"%next = {exchanged}\n  ROOT %made = {call('Eigh', 'next')}") == []


GATHER = "channel_id=2, replica_groups=[1,8]<=[8], dimensions={0}, use_global_device_ids=true"
NUMBER = "%id = u32[] partition-id()\n  %number = s32[] convert(%id)\n  %zero = s32[] constant(0)"


@pytest.mark.newest
def test_a_fusion_of_a_value_that_a_loop_makes_differ_is_not_repeated_though_an_alike_one_is_known():
    before = f"""
%fused (p: f32[64,64]) -> f32[64,64] {{
  %p = f32[64,64]{{1,0}} parameter(0)
  ROOT %made = {call("Eigh", "p")}
}}

%body (q: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {{
  %q = (s32[], f32[64,64]{{1,0}}) parameter(0)
  %count = s32[] get-tuple-element(%q), index=0
  %value = f32[64,64]{{1,0}} get-tuple-element(%q), index=1
  %second = f32[64,64]{{1,0}} fusion(%value), kind=kLoop, calls=%fused
  %device = u32[] partition-id()
  %scalar = f32[] convert(%device)
  %next = f32[64,64]{{1,0}} broadcast(%scalar), dimensions={{}}
  ROOT %turned = (s32[], f32[64,64]{{1,0}}) tuple(%count, %next)
}}

%condition (r: (s32[], f32[64,64])) -> pred[] {{
  %r = (s32[], f32[64,64]{{1,0}}) parameter(0)
  ROOT %goes_on = pred[] constant(true)
}}
"""
    body = f"""{NUMBER}
  %scale = f32[] convert(%id)
  %own = f32[64,64]{{1,0}} broadcast(%scale), dimensions={{}}
  %first = f32[64,64]{{1,0}} fusion(%own), kind=kLoop, calls=%fused
  %state = (s32[], f32[64,64]{{1,0}}) tuple(%zero, %whole)
  %loop = (s32[], f32[64,64]{{1,0}}) while(%state), condition=%condition, body=%body
  ROOT %result = f32[64,64]{{1,0}} get-tuple-element(%loop), index=1"""
    assert repeated(body, before=before) == []


@pytest.mark.newest
def test_alike_fusions_with_a_collective_each_repeat_their_own_values():
    fused = f"""
%fused (p: f32[8,64], n: s32[], z: s32[]) -> f32[8,64] {{
  %p = f32[8,64]{{1,0}} parameter(0)
  %n = s32[] parameter(1)
  %z = s32[] parameter(2)
  %all = f32[64,64]{{1,0}} all-gather(%p), {GATHER}
  ROOT %part = f32[8,64]{{1,0}} dynamic-slice(%all, %n, %z), dynamic_slice_sizes={{8,64}}
}}
"""
    parts = "\n  ".join(
        f"%copy.{number} = f32[8,64]{{1,0}} copy(%a)\n"
        f"  %used.{number} = f32[8,64]{{1,0}} fusion(%copy.{number}, %number, %zero), kind=kLoop, calls=%fused"
        for number in (1, 2)
    )
    body = f"{NUMBER}\n  {parts}\n  ROOT %both = f32[8,64]{{1,0}} add(%used.1, %used.2)"
    assert repeated(body, "f32[8,64]", fused) == ["copy.1", "copy.2"]
