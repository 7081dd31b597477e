"""Errors of Explicit mode: each program raises, and each edit of its explanation runs and equals NumPy."""

import jax
import numpy as np
import pytest

from jax_array_info_core import log_report
from jax_array_info_core.programs.raised.explain import explanation_of
from jax_array_info_core.programs.raised.kinds import KINDS
from tests.core.programs.raised.explicit_programs import FILE, Program, programs, source_of
from tests.core.programs.raised.test_devices import KINDS_OF_DEVICES

pytestmark = [
    pytest.mark.newest,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(jax.__version_info__ < (0, 9), reason="the wordings are those from JAX 0.9 on"),
]

ALL = [*programs(FILE), *programs(FILE.with_name("more_programs.toml"))]
SINCE = {
    "16_cumsum_on_sharded_dim": ((0, 10), "does not raise"),
    "17_cumsum_no_axis": ((0, 10), "does not raise"),
    "18_top_k": ((0, 10), "raises the error of a spec that does not divide"),
    "22_tile": ((0, 10), "does not raise"),
    "44_bincount_out_sharding": ((0, 10), "has no such parameter"),
    "vmapped": ((0, 10), "does not raise"),
    "rows_set_with_other_sharding": ((0, 10), "does not raise"),
    "batches_of_an_operator": ((0, 10), "does not raise"),
    "einsum_with_batch_in_other_places": ((0, 11), "does not raise"),
}
"""First version with the error, and what earlier ones do. All others have it in 0.9.2, 0.10.2, 0.11.2 and 0.12.0."""


def name_of(program):
    return program["name"]


@pytest.mark.parametrize(
    "program", {program["kind"]: program for program in reversed(ALL)}.values(), ids=name_of
)
def test_each_edit_runs_and_equals_numpy(program):
    """Of each kind of errors the first program; ``tests/fuzz`` has the others."""
    assert_edits_are_right(program)


def assert_edits_are_right(program):
    first, before = SINCE.get(program["name"], ((0, 9), ""))
    if jax.__version_info__ < first:
        pytest.skip(f"JAX {jax.__version__} {before}: the error is there since {'.'.join(map(str, first))}")
    run = Program(source_of(program), program["want"])
    explanation = explanation_of(run.error())
    # Earlier versions refuse some programs for another reason, with the same remedy.
    assert explanation.kind == program["kind"] or jax.__version_info__ < (0, 12)
    assert explanation.edits, "no edit"
    for edit in explanation.edits:
        assert run.edited(explanation, edit).is_right(), edit.code
    known = [edit.sent_nbytes for edit in explanation.edits if edit.sent_nbytes is not None]
    assert known == sorted(known)


def test_each_kind_has_a_program():
    assert {kind.name for kind in KINDS} == {one["kind"] for one in ALL} | KINDS_OF_DEVICES


def explained(source, want="A"):
    from tests.core.programs.raised.explicit_programs import PREAMBLE

    return explanation_of(Program(PREAMBLE + source, want).error())


def test_the_line_the_operands_the_rule_and_the_edits():
    found = explained(
        """
@jax.jit
def model(params, x):
    h = jnp.tanh(x)
    return params["w"].T @ params["w"] + h
def bad():
    return model({"w": put(A, "x")}, put(A, "y"))
"""
    )
    assert found.line == PLACE + 4
    assert found.function == "model"
    assert found.expression == 'params["w"].T @ params["w"]'
    assert [(one.expression, one.type, one.made) for one in found.operands] == [
        ('params["w"].T', "f32[8,8@x]", "argument of model"),
        ('params["w"]', "f32[8@x,8]", "argument of model"),
    ]
    assert found.rule == (
        'params["w"].T @ params["w"] contracts a sharded dimension, '
        "so the sharding of its result must be given"
    )
    assert [(one.code, one.sent_nbytes) for one in found.edits] == [
        # 8 x 8 floats are 256 bytes: 3/4 of them, twice, for the all-reduce. XLA makes no reduce-scatter of it
        # on the CPU.
        ('jnp.matmul(params["w"].T, params["w"], out_sharding=P(None, None))', 384),
        ('jnp.matmul(params["w"].T, params["w"], out_sharding=P("x", None))', 384),
        ('jnp.matmul(params["w"].T, params["w"], out_sharding=P(None, "x"))', 384),
    ]


PLACE = 9
"""Lines of the preamble."""


def test_an_augmented_assignment_is_an_operation():
    found = explained(
        """
def bad():
    z = put(A, "x")
    z += put(A, "y"); return z
"""
    )
    assert (found.line, found.expression) == (PLACE + 3, 'z += put(A, "y")')
    assert found.rule.startswith('z += put(A, "y") needs operands')
    assert [(one.expression, one.type, one.made.partition(":")[2]) for one in found.operands] == [
        ("z", "f32[8@x,8]", str(PLACE + 2)),
        ('put(A, "y")', "f32[8@y,8]", ""),
    ]
    assert [(one.code, one.sent_nbytes) for one in found.edits] == [
        # The other way round is 128 bytes, and z over x and y would be 32: twice that is the most.
        ('z += reshard(put(A, "y"), P("x", None))', 64),
    ]


def test_no_edit_calls_a_function_twice():
    found = explained(
        """
z, x = {"sum": None}, [0]
def once():
    x.pop()
    return "sum"
def bad():
    z["sum"] = put(A, "x")
    z[once()] += put(A, "y")
"""
    )
    assert found.expression == 'z[once()] += put(A, "y")'
    assert not any(edit.code.count("once()") > 1 for edit in found.edits)


def test_a_sharding_comes_from_a_line():
    found = explained(
        """
@jax.jit
def add(x, y):
    h = reshard(x, P("y"))
    return h + y
def bad():
    return add(put(A, "x"), put(A, "x"))
"""
    )
    assert [one.made.partition(":")[2] for one in found.operands[:1]] == [str(PLACE + 3)]
    assert found.operands[1].made == "argument of add"


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ("for _ in range(1):\n        h = h * 2\n    return h + y", ""),
        ("if True:\n        h = h * 2\n    else:\n        h = h * 3\n    return h + y", ""),
        ("h = h + y\n    return h", "argument of f"),
    ],
)
def test_no_line_is_named_in_doubt(body, made):
    found = explained(
        f"""
def f(h, y):
    {body}
def bad():
    return f(put(A, "x"), put(A, "y"))
"""
    )
    assert found.operands[0].made == made


def test_a_primitive_that_the_user_did_not_write_is_named_with_the_call():
    found = explained(
        """
S = A @ A.T + 100 * np.eye(8, dtype=np.float32)
def bad():
    return jnp.linalg.cholesky(put(S, "x"))
"""
    )
    assert found.rule.startswith("add in jnp.linalg.cholesky would have the type f32[8@x,8@x]")


def test_the_text_of_an_expression_stands_first_in_its_line():
    source = """
def bad():
    x, y = put(A, "x"), put(A, "y"); z = (x + x) + (y + y) + (x + y)
    return z
"""
    found = explained(source)
    assert found.expression == "(x + x) + (y + y)"


@pytest.mark.parametrize("before", ["\f\n", "MANY = '\x1c\u2028\x85'\n", "'größe'; "])
def test_the_text_before_an_expression_does_not_move_it(before):
    found = explained(f"{before}\ndef bad():\n    'größe'; return put(A, 'x') + put(A, 'y')\n")
    assert found.expression == "put(A, 'x') + put(A, 'y')"


def test_a_decorator_is_explained():
    source = """
def bad():
    @(lambda f: f(put(A, "x") + put(A, "y")))
    def g(x):
        return x
    return g
"""
    found = explained(source)
    assert (found.line, found.expression) == (PLACE + 2, 'put(A, "x") + put(A, "y")')
    assert found.edits


def test_bytes_are_those_of_the_resharding():
    from jax_array_info_core import reshard_report

    (edit,) = explained("def bad():\n    return put(A, 'x') + put(A, 'y')\n").edits
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    before, after = map(jax.sharding.PartitionSpec, "yx")
    array = jax.device_put(np.zeros((8, 8), np.float32), jax.sharding.NamedSharding(mesh, before))
    assert edit.sent_nbytes == reshard_report(array, after).device_nbytes


@pytest.mark.parametrize(
    "source",
    [
        "import jax.numpy as jnp\ndef bad():\n    return jnp.add(LEFT, RIGHT)\n",
        "def bad():\n    return LEFT + RIGHT\n",
    ],
)
def test_there_is_no_edit_without_a_name_for_reshard(source):
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        left, right = (jax.device_put(np.ones((8, 8)), jax.P(name)) for name in ("x", "y"))
    program = Program("mesh = LEFT = RIGHT = None\n" + source, "")
    program.names.update(mesh=mesh, LEFT=left, RIGHT=right)
    if "jnp" in source:
        program.names.pop("jax", None)
    found = explanation_of(program.error())
    assert found.edits == ()
    assert [one.type for one in found.operands] == ["f32[8@x,8]", "f32[8@y,8]"]


def test_a_rule_begins_with_a_capital_or_a_name():
    first = {kind.rule.split()[0] for kind in KINDS}
    names = {one for one in first if one.startswith("{")} | {"vmap", "jit", "shard_map"}
    assert all(one.istitle() for one in first - names)


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        ("sub got incompatible shardings for broadcasting: P('x'), P('y')", "sub needs operands"),
        ("Contracting dimensions are sharded and it is ambiguous", "The operation contracts"),
        ("Resource axis: z of P('z') is not found in mesh", "The mesh has no axis z"),
    ],
)
def test_a_log_has_the_rule_as_a_sentence(message, rule):
    [event] = log_report([f"jax.errors.ShardingTypeError: {message}"]).events
    assert event.cause.startswith(rule)
