import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info_core.hlo.flops import counted_flops
from jax_array_info_core.hlo.loops import executions
from jax_array_info_core.hlo.module import Alias, ArrayShape, Frame, Instruction
from jax_array_info_core.hlo.read import clipped, may_send, read_module
from tests.hlo_texts import EVERYWHERE, text, texts

pytestmark = pytest.mark.oldest_and_newest

# Programs of the other versions have tables of stack frames.
WITHOUT_FUNCTIONS = ("0.4.38", "0.5.3", "0.6.2", "0.7.2")

NONSENSE = (
    "nonsense",
    "  %lost = f32[8] ",
    "  %lost = f99[8]{0} add(%a, %b)",
    "  %lost = f32[8]{0} add(%a, %b",
    "12 {file_location_id=}",
    '7 "half',
)


def instructions(module):
    """Return the instructions of all computations."""
    return [one for computation in module.computations.values() for one in computation.instructions]


def one(line):
    """Return the instruction of a line, and the unread lines."""
    module = read_module(f"HloModule m\n\nENTRY %main () -> f32[] {{\n{line}\n}}\n")
    return next(iter(instructions(module)), None), module.unread


@pytest.mark.parametrize("where", EVERYWHERE)
def test_every_line_of_every_version_is_read(where):
    for name, program in texts(where).items():
        module = read_module(program)
        assert module.unread == (), name
        assert module.device_count == 8
        assert module.entry in module.computations
        lines = [line for line in program.splitlines() if line.startswith(("  %", "  ROOT %"))]
        assert len(instructions(module)) == len(lines)
        assert all(computation.root for computation in module.computations.values())


@pytest.mark.parametrize("where", EVERYWHERE)
def test_operands_and_called_computations_have_their_names(where):
    for program in texts(where).values():
        module = read_module(program)
        for computation in module.computations.values():
            for instruction in computation.instructions:
                assert set(instruction.operands) <= set(computation.by_name)
                for key in ("calls", "body", "condition", "to_apply"):
                    name = instruction.attributes.get(key)
                    assert name is None or name.removeprefix("%") in module.computations


@pytest.mark.parametrize("where", EVERYWHERE)
def test_parameters_have_the_paths_of_the_arguments(where):
    parameters = tuple(read_module(text(where, "step")).parameters())
    assert [one.op_name for one in parameters] == ["params['wi']", "params['wo']", "x"]
    assert [one.shapes[0].dims for one in parameters] == [(128, 512), (512, 128), (8, 64, 256)]
    assert [one.shapes[0].nbytes for one in parameters] == [262_144, 262_144, 524_288]


@pytest.mark.parametrize("where", EVERYWHERE)
def test_the_lines_of_a_program_are_those_of_its_source(where):
    module = read_module(text(where, "step"))
    frames = {frame for one in instructions(module) for frame in one.frames}
    assert {frame.file for frame in frames} == {"/home/user/step.py"}
    innermost = {one.frames[0] for one in instructions(module) if one.frames}
    if where in WITHOUT_FUNCTIONS:
        assert {frame.function for frame in frames} == {""}
        assert {26, 31} <= {frame.line for frame in innermost}
    else:
        assert Frame("/home/user/step.py", 26, "loss") in innermost
        assert Frame("/home/user/step.py", 31, "step.<locals>.<lambda>") in innermost


@pytest.mark.parametrize("where", ["0.8.3", "0.10.2", "0.12.0.1", "v5p", "h100"])
def test_a_stack_leads_from_the_innermost_line_to_the_outermost(where):
    stacks = {one.frames for one in instructions(read_module(text(where, "scan_in_scan")))}
    longest = max(stacks, key=len)
    functions = [frame.function for frame in longest]
    assert functions[0] == "nested.<locals>.inner"
    assert functions[-2:] == ["<lambda>", "keep"]
    order = ["nested.<locals>.inner", "nested.<locals>.outer", "nested", "<lambda>", "keep"]
    assert sorted(functions, key=order.index) == functions


@pytest.mark.parametrize("where", EVERYWHERE)
def test_aliases_and_donors_are_those_of_the_header(where):
    donated = read_module(text(where, "donated"))
    assert donated.aliases == (Alias(0, 0), Alias(1, 1))
    assert donated.buffer_donors == ()
    donor = read_module(text(where, "donor"))
    assert donor.aliases == ()
    assert donor.buffer_donors == (0,)


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_line_of_nonsense_in_any_place_is_unread_and_the_rest_is_read(where):
    lines = text(where, "donated").splitlines()
    whole = read_module("\n".join(lines))
    for place in range(len(lines) + 1):
        nonsense = NONSENSE[place % len(NONSENSE)]
        damaged = read_module("\n".join([*lines[:place], nonsense, *lines[place:]]))
        assert damaged.unread == (nonsense.strip(),)
        assert damaged.computations == whole.computations
        assert (damaged.name, damaged.entry, damaged.aliases) == (whole.name, whole.entry, whole.aliases)


def test_an_attribute_that_is_not_understood_leaves_the_instruction_and_its_line():
    line = '%a = f32[8]{0} add(%b, %c), first={0}, second={{, metadata={op_name="x"}'
    instruction, unread = one(line)
    assert unread == (line,)
    assert (instruction.name, instruction.operands) == ("a", ("b", "c"))
    assert instruction.attributes == {"first": "{0}"}


def test_an_unread_line_is_clipped():
    module = read_module("HloModule m\n" + "x" * 1000 + "\nENTRY %e () -> f32[] {\n}\n")
    assert module.unread == ("x" * 300,)


@pytest.mark.parametrize(
    ("program", "unread"),
    [
        ("", ("the text has no HloModule",)),
        ("HloModule m\n", ("the text has no ENTRY",)),
        ("Traceback", ("Traceback", "the text has no HloModule")),
    ],
)
def test_a_text_without_a_program_says_so(program, unread):
    module = read_module(program)
    assert module.unread == unread
    assert tuple(module.parameters()) == ()


def test_a_computation_that_ends_with_the_text_is_kept():
    module = read_module("HloModule m\nENTRY %e () -> f32[] {\n  ROOT %a = f32[] constant(1)")
    assert module.computations["e"].root.literal == "1"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            "ROOT %t = (s32[], (f32[2]{0}, /*index=2*/bf16[4]{0})) tuple(%a, %b)",
            {"opcode": "tuple", "operands": ("a", "b"), "is_root": True, "groups": (0, 1, 1)},
            id="nested tuple",
        ),
        pytest.param(
            "%c = c64[2]{0} constant({(1, 2), (3, -4)})",
            {"literal": "{(1, 2), (3, -4)}", "operands": ()},
            id="complex literal",
        ),
        pytest.param(
            "%d = f32[8]{0} add(f32[8]{0:T(8,128)} %a, (f32[], s32[]) %b)",
            {"operands": ("a", "b")},
            id="operands with types",
        ),
        pytest.param(
            "%d = f32[8]{0} add(a, b.1)", {"operands": ("a", "b.1")}, id="operands without the sign"
        ),
        pytest.param("%i = s32[8]{0} iota(), iota_dimension=0", {"operands": ()}, id="no operands"),
        pytest.param(
            r"""%p = f32[8]{0} parameter(12), metadata={op_name="x[\'a\"b, {c\', \303\251]"}""",
            {"literal": "12", "op_name": """x['a"b, {c', é]"""},
            id="escapes",
        ),
        pytest.param(
            "%g = f32[8]{0} all-gather(%a), replica_groups=mesh['a_0'=2,'a_1'=4],"
            " device_ids=([4,2]T(1,0)) {'a_0','a_1':(2)2}, dimensions={0}",
            {
                "attributes": {
                    "replica_groups": "mesh['a_0'=2,'a_1'=4], device_ids=([4,2]T(1,0)) {'a_0','a_1':(2)2}",
                    "dimensions": "{0}",
                }
            },
            id="groups with device ids",
        ),
        pytest.param(
            "%s = f32[8]{0} slice(%a), slice={[0:8], [0:128]}, control-predecessors={%b, %c}",
            {"attributes": {"slice": "{[0:8], [0:128]}", "control-predecessors": "{%b, %c}"}},
            id="commas in braces",
        ),
        pytest.param(
            '%w = (s32[]) while(%a), body=%b, backend_config={"known_trip_count":{"n":"12"},"x":{"y":{}}}',
            {
                "attributes": {
                    "body": "%b",
                    "backend_config": '{"known_trip_count":{"n":"12"},"x":{"y":{}}}',
                    "known_trip_count": "12",
                }
            },
            id="trip count",
        ),
        pytest.param(
            '%f = f32[] add(%a, %b), frontend_attributes={x=", metadata={op_name=\\"no\\"}"},'
            ' metadata={op_type="add" op_name="yes" source_file="/a b.py" source_line=7}',
            {"op_name": "yes", "frames": (Frame("/a b.py", 7, ""),)},
            id="metadata in a string",
        ),
    ],
)
def test_the_parts_of_a_line(line, expected):
    instruction, unread = one(line)
    assert unread == ()
    assert {key: getattr(instruction, key) for key in expected} == expected


def test_an_instruction_has_all_parts_of_its_line():
    module = read_module(text("0.12.0.1", "reduce_scatter"))
    (scatter,) = (one for one in instructions(module) if one.opcode == "reduce-scatter")
    assert scatter == Instruction(
        name="reduce_scatter.7",
        opcode="reduce-scatter",
        shapes=(ArrayShape("float32", (16, 128), 8192),),
        groups=(),
        operands=("param.1",),
        attributes={
            "channel_id": "1",
            "replica_groups": "mesh['data'=2,'fsdp'=2,'tensor'=2] {'tensor'}",
            "use_global_device_ids": "true",
            "dimensions": "{0}",
            "to_apply": "%region_0.0",
        },
        op_name="jit(scatter)/shard_map/reduce_scatter",
        frames=(
            Frame("/home/user/step.py", 72, "scatter"),
            Frame("/home/user/step.py", 133, "<lambda>"),
            Frame("/home/user/step.py", 150, "keep"),
        ),
        literal="",
        is_root=True,
        column=11,
    )


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([("0.4.38", "cond"), ("0.12.0.1", "permute"), ("v5p", "donated")]), st.randoms())
def test_no_damage_raises(program, source: random.Random):
    damaged = text(*program)
    for _ in range(source.randint(1, 30)):
        place = source.randrange(len(damaged))
        kept = place + source.choice((0, 1, 5, 80))
        damaged = damaged[:place] + source.choice(("", *'{}()[]",=%\\ \n9x/*é')) + damaged[kept:]
    module = read_module(damaged)
    counted_flops(module, executions(module))
    assert tuple(module.parameters()) == tuple(sorted(module.parameters(), key=lambda one: int(one.literal)))


PALLAS = r"""HloModule jit_f, is_scheduled=true, frontend_attributes={note={
"a": 1
}}

%other (p: f32[8]) -> f32[8] {
  ROOT %p = f32[8]{0} parameter(0), metadata={op_name="x"}
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0), metadata={op_name="x"}
  %kernel = (f32[8]{0}, f32[8]{0}) custom-call(%x), custom_call_target="tpu_custom_call", frontend_attributes={kernel_metadata={
"xprof_metadata":"{\"block_q\": 128, \"note\": \"a } b\"}",
"nested": {
"deep": [{"a": {"b": {"c": {"d": {"e": 1}}}}}]
}
}}, metadata={op_name="f/pallas_call" source_file="/f.py"
source_line=7}, backend_config={"custom_call_config":{
"body": "TUzv"
}}
  %part = f32[8]{0} get-tuple-element(%kernel), index=1, frontend_attributes={note="one
} two {
"}, metadata={op_name="f/part"}
  ROOT %sum = f32[8]{0} add(%part, %x), metadata={op_name="f/add"}
}
"""


def test_an_attribute_ends_where_its_quotes_and_braces_end_not_at_a_line():
    module = read_module(PALLAS)
    assert module.unread == ()
    assert [one.name for one in instructions(module)] == ["p", "x", "kernel", "part", "sum"]
    kernel, part = module.computations["main"].instructions[1:3]
    assert [*kernel.attributes] == ["custom_call_target", "frontend_attributes", "backend_config"]
    assert kernel.attributes["backend_config"] == '{"custom_call_config":{\n"body": "TUzv"\n}}'
    assert (kernel.op_name, kernel.frames) == ("f/pallas_call", (Frame("/f.py", 7, ""),))
    assert part.attributes == {"index": "1", "frontend_attributes": '{note="one\n} two {\n"}'}
    assert (part.op_name, part.operands) == ("f/part", ("kernel",))


@pytest.mark.parametrize("mark", '"{}()')
def test_a_missing_quote_or_brace_hides_no_instruction_silently(mark):
    def facts(module):
        return {
            name: [(one.name, one.opcode, one.operands, one.op_name) for one in computation.instructions]
            for name, computation in module.computations.items()
        }

    whole = facts(read_module(PALLAS))
    for place, character in enumerate(PALLAS):
        if character == mark:
            damaged = read_module(PALLAS[:place] + PALLAS[place + 1 :])
            assert damaged.unread or facts(damaged) == whole, PALLAS[place - 20 : place + 20]


def test_a_line_of_nonsense_in_an_attribute_of_several_lines_hides_no_instruction_silently():
    lines = PALLAS.splitlines()
    names = {one.name for one in instructions(read_module(PALLAS))}
    for place in range(len(lines) + 1):
        for nonsense in NONSENSE:
            damaged = read_module("\n".join([*lines[:place], nonsense, *lines[place:]]))
            assert damaged.unread or {one.name for one in instructions(damaged)} == names


def test_an_instruction_that_stays_open_ends_before_the_next():
    lines = '  %a{0} = f32[8]{{0}} add(%b, %c), first={{"x"\n"y'
    many = "\n".join(lines.format(number) for number in range(20_000))
    end = "  ROOT %r = f32[8]{0} add(%b, %c)"
    module = read_module(f"HloModule m\n\nENTRY %main () -> f32[] {{\n{many}\n{end}\n}}\n")
    assert len(module.unread) == 40_000
    assert module.computations["main"].root.name == "r"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%a = f99[8] add(%b)", False),
        ("ROOT %a = (f99[8], f32[8]{0}) fusion(%b), kind=kLoop, calls=%send", False),
        ("%g = f99[8] all-gather-start(%b)", True),
        ("%g = f99[8] collective-permute(%b)", True),
        ("%g = (f99[8], token[]) recv(%b)", True),
        ("%g = f99[8] custom-call(%b)", True),
        ("%g = f99[8] mystery(%b), replica_groups={{0,1}}", True),
        ("ENTRY nonsense", True),
        ("the text has no ENTRY", True),
        ("7 {file_location_id=}", False),
        ("%t = (" + "f99[8], " * 100 + "s32[]) tuple(%a)", False),
        ("%t = (" + "f99[8], " * 100 + "s32[]) custom-call(%a)", True),
    ],
)
def test_a_line_may_send_if_it_is_a_collective_a_custom_call_or_unknown(line, expected):
    assert may_send(clipped(line)) == expected
