"""The reader of XLA's record of a compiled program."""

import importlib
import re
from pathlib import Path

import jax
import pytest
from google.protobuf import descriptor_pb2

from jax_array_info_core.xla.hlo.dataflow import Dataflow, Value
from jax_array_info_core.xla.hlo.messages import MESSAGES, PRIMITIVES, program_in
from jax_array_info_core.xla.hlo.module import Call, read_module
from tests.hlo_texts import EVERYWHERE, entry_of, module_of, records, stored

pytestmark = pytest.mark.newest


@pytest.mark.parametrize("where", EVERYWHERE)
def test_every_stored_program_is_read(where):
    """Operands and called computations are there, callees first, and each part has one result."""
    for record in records(where).values():
        module = read_module(record)
        assert module.device_count == 8
        assert module.unknown_types == ()
        seen = set()
        for computation in module.computations.values():
            assert computation.root in computation.instructions
            assert [one.parameter_number for one in computation.parameters] == [
                *range(len(computation.parameters))
            ]
            for one in computation.instructions:
                assert all(name in computation.by_name for name in one.operands)
                assert all(call.name in seen for call in one.calls)
                assert not one.opcode.startswith("async-") or len(one.calls) <= 1
            seen.add(computation.name)
        assert module.computations[module.entry].is_scheduled


@pytest.mark.parametrize("where", EVERYWHERE)
def test_parameters_have_the_names_of_the_arguments(where):
    names = [one.op_name for one in stored(where, "step").parameters()]
    assert names == ["params['wi']", "params['wo']", "x"]


@pytest.mark.parametrize("where", EVERYWHERE)
def test_donated_arguments_are_aliases_of_outputs(where):
    assert [tuple(one) for one in stored(where, "donated").aliases] == [(0, 0), (1, 1)]
    assert stored(where, "donor").aliases == ()


def test_elements_of_one_parameter_are_donated_by_their_place():
    """So JAX passes thousands of arguments on TPU."""
    aliased = "input_output_alias={ {1}: (0, {5}, may-alias) }"
    module = entry_of("ROOT %p = (f32[], f32[]) parameter(0)", header=aliased)
    assert [tuple(one) for one in module.aliases] == [(1, 5)]


ASYNC = """HloModule m, is_scheduled=true

%one {
  %a = f32[16]{0} parameter(0)
  ROOT %s = f32[4]{0} slice(%a), slice={[0:4]}
}

%two {
  %b = f32[16]{0} parameter(0)
  %n = f32[16]{0} negate(%b)
  ROOT %t = f32[4]{0} slice(%n), slice={[0:4]}
}

ENTRY %main {
  %p = f32[16]{0} parameter(0)
  %start = ((f32[16]{0}), f32[4]{0}, u32[]) async-start(%p), calls=%one
  %update = ((f32[16]{0}), f32[4]{0}, u32[]) async-update(%start)
  %done = f32[4]{0} async-done(%update)
  %both = ((f32[16]{0}), f32[4]{0}, u32[]) async-start(%p), calls=%two
  ROOT %end = f32[4]{0} async-done(%both)
}
"""


def test_an_asynchronous_operation_is_that_of_what_it_starts():
    module = module_of(ASYNC)
    opcodes = {one.name: one.opcode for one in module.computations["main"].instructions}
    assert [opcodes[name] for name in ("start", "update", "done")] == [
        "slice-start",
        "slice-update",
        "slice-done",
    ]
    assert [opcodes[name] for name in ("both", "end")] == ["async-start", "async-done"]
    assert [*module.computations] == ["two", "main"]
    assert module.computations["main"].by_name["both"].calls == (Call("two", "callee"),)


LATE = """HloModule m, is_scheduled=true

%inner {
  %x = f32[16]{0} parameter(0)
  %y = s32[4]{0} parameter(1)
  ROOT %g = f32[4]{0} gather(%x, %y)
}

%wrapped {
  %c = f32[16]{0} parameter(0)
  %d = s32[4]{0} parameter(1)
  ROOT %k = f32[4]{0} call(%c, %d), to_apply=%inner
}

ENTRY %main {
  %p = f32[16]{0} parameter(0)
  %i = s32[4]{0} parameter(1)
  %start = ((), (), (s32[1])) async-start(), calls=%wrapped
  BINDINGS
  %done = f32[4]{0} async-done(%bound)
  ROOT %n = f32[4]{0} negate(%done)
}
"""
BINDINGS = {
    "one": "%bound = ((f32[16]{0}, s32[4]{0}), f32[4]{0}) async-update(%start, %p, %i)",
    "two": "%first = ((f32[16]{0}), ()) async-update(%start, %p)\n"
    "  %bound = ((f32[16]{0}, s32[4]{0}), f32[4]{0}) async-update(%first, %i)",
}


@pytest.mark.parametrize("updates", BINDINGS)
def test_an_asynchronous_operation_starts_where_it_gets_its_operands(updates):
    """As on a TPU's SparseCore, whose starts have none."""
    module = module_of(LATE.replace("BINDINGS", BINDINGS[updates]))
    main = module.computations["main"]
    assert [str(one) for one in main.instructions] == [
        "%p = parameter()",
        "%i = parameter()",
        "%start = call-start(%p, %i)",
        "%done = call-done(%start)",
        "%n = negate(%done)",
    ]
    assert main.by_name["start"].calls == (Call("inner", "callee"),)
    assert [shape.dims for shape in main.by_name["start"].shapes] == [(16,), (4,), (4,)]
    dataflow = Dataflow(module)
    for name in ("p", "i"):
        used = {one.opcode for one in dataflow.consumers(Value("main", name))}
        assert used == {"gather", "call-start", "call-done", "negate"}
    assert {one.name for one in dataflow.producers(Value("main", "done"))} >= {"g", "p", "i"}


@pytest.mark.parametrize(("kind", "value"), [("s32", -7), ("u64", 2**40), ("s8", None), ("f32", None)])
def test_the_integer_of_a_constant(kind, value):
    module = entry_of(f"ROOT %c = {kind}[] constant({value or 3})")
    assert module.computations["main"].root.integer == value


def test_a_dumped_program_is_the_one_in_its_message():
    record = records("0.12.0.1")["step"]
    size = len(record)
    dumped = b"\x0a" + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + record
    assert read_module(program_in(dumped)[0]).entry == read_module(record).entry


def described(name):
    """Return XLA's descriptions of the messages in a file, which jaxlib's library contains."""
    root = Path(importlib.import_module("jaxlib").__file__).parent
    key = b"\n" + bytes([len(name)]) + name.encode()
    for library in sorted(root.rglob("*.so"), key=lambda path: -path.stat().st_size)[:3]:
        data = library.read_bytes()
        start = data.find(key)
        while start >= 0:
            end = _end_of_fields(data, start)
            file = descriptor_pb2.FileDescriptorProto()
            if end > start and file.MergeFromString(data[start:end]) and file.message_type:
                return {message.name: message for message in file.message_type}
            start = data.find(key, start + 1)
    return {}


def _end_of_fields(data, start):
    """Return the end of the fields that a FileDescriptorProto can have."""
    at = start
    while at < len(data):
        tag, place = _number(data, at)
        if not 1 <= tag >> 3 <= 12 or tag & 7 not in (0, 2):
            break
        size, place = _number(data, place)
        at = place + size if tag & 7 == 2 else place
        if tag >> 3 == 12:
            break
    return at


def _number(data, at):
    shift = value = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def with_inner(messages):
    found = dict(messages)
    for message in messages.values():
        found |= with_inner({one.name: one for one in message.nested_type})
    return found


OLDER = {"HloInstructionProto.dot_sparsity", "CollectiveDeviceListProto.iota"}
"""Fields that newer versions no longer have."""
CHANGED = {"sparsity_config", "dot_sparsity"}
"""Messages of which only the size is asked for."""


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="older versions lack some of the fields")
def test_the_fields_have_the_numbers_that_they_have_inside_jaxlib():
    messages = with_inner(described("xla/xla_data.proto") | described("xla/service/hlo.proto"))
    assert messages
    for name, fields in MESSAGES.items():
        known = {field.name: field for field in messages[name].field}
        for text in fields.split(","):
            field, number, kind = text.split()
            if f"{name}.{field}" in OLDER:
                assert field not in known
                continue
            found = known[field]
            assert found.number == int(number), (name, field)
            assert (found.label == found.LABEL_REPEATED) == kind.startswith("*"), (name, field)
            xla = found.type_name.rpartition(".")[2] or found.Type.Name(found.type)[5:].lower()
            ours = kind.removeprefix("*")
            is_same = ours == xla or (ours == "int32" and found.type == found.TYPE_ENUM) or field in CHANGED
            assert is_same, (name, field, xla)


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="older versions lack some of the types")
def test_the_types_of_elements_have_the_numbers_that_they_have_inside_jaxlib():
    source = Path(importlib.import_module("jaxlib").__file__).parent / "xla_client.py"
    numbers = {match[1].lower(): int(match[2]) for match in re.finditer(r"(\w+) = (\d+)", source.read_text())}
    hlo = importlib.import_module("jaxlib._hlo")
    for name in ("F32", "BF16", "S4", "U64", "C128", "F8E4M3FN", "TOKEN"):
        assert PRIMITIVES[int(getattr(hlo.PrimitiveType, name).value)] == name.lower(), numbers
