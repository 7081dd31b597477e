"""Values that are gathered whole only for each device to take its own part."""

import pytest

from jax_array_info_core.xla.hlo.collectives import movements
from jax_array_info_core.xla.hlo.dataflow import Dataflow
from jax_array_info_core.xla.hlo.resharding import replicated_values
from tests.hlo_texts import module_of

pytestmark = pytest.mark.newest

LOOP = """HloModule loop, num_partitions=2

%body (state: (s32[], f32[8], f32[4])) -> (s32[], f32[8], f32[4]) {
  %state = (s32[], f32[8], f32[4]) parameter(0)
  %turn = s32[] get-tuple-element(%state), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%turn, %one)
  %before = f32[8] get-tuple-element(%state), index=1
  %own = f32[4] get-tuple-element(%state), index=2
  %whole = f32[8] all-gather(%own), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  %device = u32[] partition-id()
  %number = s32[] convert(%device)
  %four = s32[] constant(4)
  %start = s32[] multiply(%number, %four)
  %part = f32[4] dynamic-slice(%whole, START), dynamic_slice_sizes={4}
  %used = f32[8] sine(%before)
  ROOT %after = (s32[], f32[8], f32[4]) tuple(%next, KEPT, %part)
}

%condition (state.1: (s32[], f32[8], f32[4])) -> pred[] {
  %state.1 = (s32[], f32[8], f32[4]) parameter(0)
  %turn.1 = s32[] get-tuple-element(%state.1), index=0
  %ten = s32[] constant(10)
  ROOT %goes.on = pred[] compare(%turn.1, %ten), direction=LT
}

ENTRY %main (x: f32[4], y: f32[8]) -> f32[4] {
  %x = f32[4] parameter(0)
  %y = f32[8] parameter(1)
  %zero = s32[] constant(0)
  %first = (s32[], f32[8], f32[4]) tuple(%zero, %y, %x)
  %loop = (s32[], f32[8], f32[4]) while(%first), condition=%condition, body=%body
  ROOT %result = f32[4] get-tuple-element(%loop), index=2
}
"""


def found(start, kept):
    dataflow = Dataflow(module_of(LOOP.replace("START", start).replace("KEPT", kept)))
    moved, _ = movements(dataflow)
    return [one.gathers[-1].instruction.name for one in replicated_values(dataflow, moved)]


def test_a_whole_value_of_which_each_device_takes_its_own_part_is_found_in_a_loop():
    assert found("%start", "%before") == ["whole"]


def test_a_whole_value_that_the_next_turn_uses_is_none():
    assert found("%start", "%whole") == []


def test_a_part_that_is_the_same_on_all_devices_is_not_an_own_one():
    assert found("%turn", "%before") == []
    assert found("%four", "%before") == []


def test_a_gather_that_starts_and_ends_apart_is_one(monkeypatch):
    line = next(line for line in LOOP.splitlines() if "all-gather(" in line)
    start = line.replace("%whole = f32[8]", "%begun = (f32[4], f32[8])").replace("gather(", "gather-start(")
    apart = f"{start}\n  %whole = f32[8] all-gather-done(%begun)"
    monkeypatch.setattr(f"{__name__}.LOOP", LOOP.replace(line, apart))
    assert found("%start", "%before") == ["begun"]
    assert found("%start", "%whole") == []
