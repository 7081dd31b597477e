"""Facts that are found once for a program, and for the fused computations with the same content."""

import pytest

from jax_array_info_core.xla.hlo.buffers import elementwise_parameters, fused_updates
from jax_array_info_core.xla.hlo.collectives import _moving
from jax_array_info_core.xla.hlo.dataflow import Dataflow
from jax_array_info_core.xla.hlo.flops import costs
from jax_array_info_core.xla.hlo.loops import executions
from jax_array_info_core.xla.hlo.module import _content, calling, read_module
from jax_array_info_core.xla.hlo.schedule import schedule_of
from tests.hlo_texts import EVERYWHERE, records

pytestmark = pytest.mark.newest

FACTS = (calling, costs, _moving, elementwise_parameters, fused_updates)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_computations_with_the_same_content_have_the_same_facts(where):
    for record in records(where).values():
        module = read_module(record)
        for one in module.computations.values():
            for find in FACTS:
                assert one.once(find) == find(one), (one.name, find)
            assert one.where(calling) == [each for each in one.instructions if each.calls]


def test_a_function_runs_once_for_a_content_and_for_each_scheduled_computation():
    for record in records("0.12.0.1").values():
        module, seen = read_module(record), []

        def note(computation, seen=seen):
            seen.append(computation.name)
            return len(seen)

        found = {one.name: one.once(note) for one in module.computations.values()}
        assert {one.name: one.once(note) for one in module.computations.values()} == found
        scheduled = [one for one in module.computations.values() if one.is_scheduled]
        fused = {_content(one.message) for one in module.computations.values() if not one.is_scheduled}
        assert len(seen) == len(scheduled) + len(fused)
        assert {one.name for one in scheduled} <= set(seen)


def _first(message):
    return message.instructions[0]


def _renumber(message):
    message.root_id += 1000
    for one in message.instructions:
        one.id += 1000
        one.operand_ids[:] = [number + 1000 for number in one.operand_ids]


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        (lambda message: setattr(message, "name", "other"), True),
        (lambda message: setattr(message, "id", 12345), True),
        (_renumber, True),
        (lambda message: setattr(_first(message), "name", "other"), True),
        (lambda message: setattr(_first(message).metadata, "op_name", "jit(f)/other"), True),
        (lambda message: setattr(_first(message), "opcode", "constant"), False),
        (lambda message: setattr(_first(message), "parameter_number", 7), False),
        (lambda message: _first(message).shape.dimensions.append(3), False),
        (lambda message: setattr(_first(message).shape, "element_type", 3), False),
        (lambda message: setattr(_first(message).shape.layout, "memory_space", 5), False),
        (lambda message: setattr(message, "root_id", _first(message).id), False),
        (lambda message: message.instructions[-1].operand_ids.pop(), False),
        (lambda message: message.instructions[-1].operand_ids.reverse(), False),
        (lambda message: message.instructions[-1].called_computation_ids.append(1), False),
        (lambda message: setattr(message.instructions[-1], "backend_config", b"other"), False),
    ],
)
def test_names_ids_and_metadata_make_no_other_content(change, is_same):
    for record in records("0.12.0.1").values():
        for one in read_module(record).computations.values():
            used = [*one.message.instructions[-1].operand_ids]
            if one.is_scheduled or len(set(used)) < 2:
                continue
            message = type(one.message)()
            message.CopyFrom(one.message)
            change(message)
            assert (_content(message) == _content(one.message)) == is_same


def test_what_a_program_is_made_into_is_kept_with_it():
    one, other = (read_module(records("0.12.0.1")["step"]) for _ in range(2))
    for make in (Dataflow, executions, schedule_of):
        assert one.once(make) is one.once(make)
        assert one.once(make) is not other.once(make)
