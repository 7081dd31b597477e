"""Edits keep the sharding, and send little: what they send is what their compiled expressions send."""

import itertools
import random
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import program_report
from jax_array_info_core.programs.propagation import helper
from jax_array_info_core.programs.raised import explain
from jax_array_info_core.programs.raised.explain import explanation_of
from jax_array_info_core.programs.raised.explanation import explanation_lines
from tests.core.programs.raised.explicit_programs import PREAMBLE, Program

pytestmark = [
    pytest.mark.newest,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(
        jax.__version_info__ < (0, 10, 1),
        reason="JAX before 0.10.1 has no helper process that compiles edits: their bytes are told as at least",
    ),
]


def explained(source, want="A"):
    run = Program(PREAMBLE + source, want)
    return run, explanation_of(run.error())


def codes(explanation):
    return [(edit.code, edit.sent_nbytes) for edit in explanation.edits]


BANK = """
W = np.arange(5, dtype=np.float32)
BANK = np.arange(5 * 16 * 32, dtype=np.float32).reshape(5, 16, 32)
def bad():
    return jax.jit(combine)(jnp.asarray(W), put(BANK, None, "x", None))
"""
LOOPS = {
    "fori_loop": """
def combine(weights, bank):
    def body(t, total):
        return total + weights[t] * bank[t]
    return jax.lax.fori_loop(0, 5, body, jnp.zeros(bank.shape[1:]))
""",
    "scan": """
def combine(weights, bank):
    def body(total, part):
        return total + part[0] * part[1], None
    start = jnp.zeros(bank.shape[1:])
    return jax.lax.scan(body, start, (weights, bank))[0]
""",
    "while_loop": """
def combine(weights, bank):
    def body(state):
        t, total = state
        return t + 1, total + weights[t] * bank[t]
    return jax.lax.while_loop(lambda s: s[0] < 5, body, (0, jnp.zeros(bank.shape[1:])))[1]
""",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_carry_is_sharded_at_its_start(loop):
    run, found = explained(BANK + LOOPS[loop], "np.einsum('t,tij->ij', W, BANK)")
    (edit,) = found.edits
    assert (edit.code, edit.sent_nbytes) == ('jnp.zeros(bank.shape[1:], out_sharding=P("x", None))', 0)
    assert not edit.is_per_iteration
    assert run.edited(found, edit).is_right()


def test_a_start_that_is_used_elsewhere_is_resharded_for_the_loop():
    run, found = explained(
        BANK
        + """
def combine(weights, bank):
    start = jnp.zeros(bank.shape[1:])
    total = jax.lax.scan(lambda total, b: (total + b, None), start, bank)[0]
    return total - reshard(start, P("x"))
""",
        "BANK.sum(0)",
    )
    (edit,) = found.edits
    assert edit.code == 'reshard(start, P("x", None))'
    assert run.edited(found, edit).is_right()


def test_the_branch_with_less_sharding_changes():
    run, found = explained(
        """
def bad():
    return jax.jit(lambda p, a, b: jax.lax.cond(p, lambda a, b: b * 1, lambda a, b: a + b, a, b))(
        True, put(A, "x"), jnp.asarray(A))
"""
    )
    assert [edit.code for edit in found.edits] == ['reshard(b * 1, P("x", None))']
    assert run.edited(found, found.edits[0]).is_right()


def test_an_edit_in_a_loop_sends_in_each_iteration():
    _, found = explained(
        """
def bad():
    def body(total, b):
        return total + b @ b.T, None
    return jax.jit(lambda b: jax.lax.scan(body, jnp.zeros((8, 8)), b)[0])(put(np.ones((3, 8, 8)), None, None, "x"))
"""
    )
    assert found.expression == "b @ b.T"
    assert all(edit.is_per_iteration for edit in found.edits)
    assert "# sends 384.0 B per device and iteration" in " ".join(
        line.text.strip() for line in explanation_lines(found, width=100)
    )


MLP = """
X, W, V = np.ones((16, 128, 256)), np.ones((256, 512)), np.ones((512, 256))
def bad():
    return jax.jit(mlp)(put(X, "x"), put(W, None, "y"), put(V, "y"))
"""


@pytest.mark.parametrize(
    "body",
    [
        'return jnp.einsum("btf,fd->btd", jax.nn.gelu(x @ w), v)',
        "h = jax.nn.gelu(x @ w)\n    return jnp.dot(h, v)",
        "h = jax.nn.gelu(x @ w)\n    return h @ v",
    ],
)
def test_a_contraction_keeps_the_axis_of_the_batch(body):
    _, found = explained(f"{MLP}\ndef mlp(x, w, v):\n    {body}\n")
    assert found.edits[0].code.endswith('out_sharding=P("x", None, None))')
    assert found.edits[0].sent_nbytes == 512 * 1024


def test_the_gathers_of_operands_count():
    _, found = explained(
        """
def product(h, w, **keywords):
    return jnp.einsum("bd,de->be", h, w.T, **keywords)
def bad():
    return jax.jit(product)(put(np.ones((64, 1024)), "x", "y"), put(np.ones((512, 1024)), "x", "y"))
"""
    )
    assert {edit.sent_nbytes for edit in found.edits} == {128 * 1024}
    assert [edit.code.rpartition("out_sharding=")[2] for edit in found.edits] == [
        'P("y", "x"))',
        'P(None, "x"))',
    ]


@pytest.mark.parametrize(
    "call",
    [
        "list(map(operator.add, [x], [y]))",
        'eval("x + y", globals(), {"x": x, "y": y})',
        "list(itertools.accumulate([x, y]))",
        "functools.reduce(operator.add, [x, y])",
        "sum([x, y])",
    ],
)
def test_there_is_no_edit_where_no_function_of_jax_is_called(call):
    _, found = explained(
        f"""
import functools, itertools, operator
def bad():
    x, y = put(A, "x"), put(A, "y")
    return {call}
"""
    )
    assert found.expression == call
    assert found.edits == ()
    assert not any(operand.type for operand in found.operands if "(" in operand.expression)


def test_what_an_operand_reshards_is_sent_by_its_edit():
    """Once, if two parts of the expression are equal."""
    run, found = explained(
        """
def bad():
    return jax.jit(both)(put(A, "x", "y"))
def both(x):
    return jnp.concatenate([x, jax.sharding.reshard(x, P(None, "x"))])
""",
        "np.concatenate([A, A])",
    )
    for edit in found.edits:
        edited = run.edited(found, edit)
        assert edited.is_right()
        with jax.set_mesh(edited.names["mesh"]):
            x = edited.names["put"](edited.names["A"], "x", "y")
            assert edit.sent_nbytes == program_report(jax.jit(edited.names["both"]), x).sent_nbytes > 0


def test_a_function_of_the_user_is_not_compiled():
    """The helper process would run it."""
    _, found = explained(
        """
calls = []
def twice(a, b):
    calls.append(1)
    return a * b
def bad():
    return jax.vmap(twice)(put(A, "x"), put(A, "y"))
"""
    )
    assert found.edits
    assert all(edit.is_at_least for edit in found.edits)


@pytest.mark.parametrize("seconds", [0.0, 300.0])
def test_without_time_or_a_helper_the_bytes_are_at_least(monkeypatch, seconds):
    def no_helper(question, seconds):
        raise helper.EndedError

    monkeypatch.setattr(explain, "SECONDS", seconds)
    monkeypatch.setattr("jax_array_info_core.programs.raised.sent.ask_sent", no_helper)
    _, found = explained('\ndef bad():\n    return put(A, "x") + put(A, "y")\n')
    assert codes(found) == [
        ('put(A, "x") + reshard(put(A, "y"), P("x", None))', 64),
        ('reshard(put(A, "x"), P("y", None)) + put(A, "y")', 128),
    ]
    assert found.edits[0].is_at_least
    assert any("# sends at least 64.0 B per device" in line.text for line in explanation_lines(found))


def test_an_operation_on_one_shard_works_on_the_host_or_with_its_mesh():
    source = """
def bad():
    return [jnp.expand_dims(s.data, 0) for s in put(A, "x").addressable_shards][0]
"""
    run, found = explained(source, "A[None, :2]")
    host, around = found.edits
    assert host.code == "np.expand_dims(np.asarray(s.data), 0)"
    assert run.edited(found, host).is_right()
    assert around.is_around
    assert around.code == "with jax.set_mesh(jax.sharding.Mesh(np.array(s.data.device), ())):"
    body = f"""
def bad():
    for s in put(A, "x").addressable_shards[:1]:
        {around.code}
            return jnp.expand_dims(s.data, 0)
"""
    run = Program(PREAMBLE.replace("import jax,", "import jax.sharding, jax,") + body, "A[None, :2]")
    with jax.set_mesh(run.names["mesh"]):
        assert np.array_equal(run.names["bad"](), np.arange(16.0).reshape(1, 2, 8))


# A law


def specs(rank):
    """Return each placement of the mesh axes of the preamble."""
    for dims in itertools.product(range(rank + 1), repeat=2):
        names = [[name for name, at in zip("xy", dims, strict=True) if at == dim] for dim in range(rank)]
        yield tuple(tuple(part) if len(part) > 1 else part[0] if part else None for part in names)


TERMS = ("ij,jk->ik", "bij,bjk->bik", "btf,fd->btd", "ij,kj->ki", "ij,j->i", "ij,ij->ij")


def random_program(seed):
    """Return a product of two arrays, with the shapes, specs and letters of these."""
    choice = random.Random(seed)
    while True:
        subscripts = choice.choice(TERMS)
        *terms, result = subscripts.replace("->", ",").split(",")
        lengths = {letter: choice.choice([8, 16]) for letter in sorted({*"".join(terms)})}
        shapes = [tuple(lengths[letter] for letter in term) for term in terms]
        given = [choice.choice([*specs(len(term))]) for term in terms]
        source = f"""
a, b = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in {shapes}]
def bad():
    u, v = put(a, *{given[0]}), put(b, *{given[1]})
    return {"u * v" if terms[0] == result else f"jnp.einsum({subscripts!r}, u, v)"}
"""
        run = Program(PREAMBLE + source, f"np.einsum({subscripts!r}, a, b)")
        try:
            run.run()
        except Exception as error:
            return run, error, subscripts, shapes, given


def least_sent(run, subscripts, shapes, given):
    """Return the fewest bytes of any sharding of the result."""
    mesh, spec = run.names["mesh"], jax.sharding.PartitionSpec
    structs = [
        jax.ShapeDtypeStruct(shape, np.float32, sharding=jax.sharding.NamedSharding(mesh, spec(*at)))
        for shape, at in zip(shapes, given, strict=True)
    ]
    is_product = subscripts == "ij,ij->ij"

    def sent(to):
        def f(u, v):
            if is_product:
                return jax.sharding.reshard(u, spec(*to)) * jax.sharding.reshard(v, spec(*to))
            return jnp.einsum(subscripts, u, v, out_sharding=spec(*to))

        return program_report(jax.jit(f), *structs, explain=False).sent_nbytes

    with jax.set_mesh(mesh):
        return min(sent(to) for to in specs(len(subscripts.rpartition("->")[2])))


@pytest.mark.parametrize("seed", range(3))
def test_no_edit_sends_more_than_twice_the_cheapest_sharding(seed, monkeypatch):
    run, error, *program = random_program(seed)
    found = explanation_of(error)
    assert found.edits
    least = least_sent(run, *program)
    for edit in found.edits:
        assert not edit.is_at_least
        assert edit.sent_nbytes <= 2 * least, edit.code
        assert run.edited(found, edit).is_right()
        if "out_sharding" in edit.code:
            assert kept_axes(*program) <= {*re.findall(r'"(\w)"', edit.code.partition("out_sharding")[2])}
    monkeypatch.setattr(explain, "SECONDS", 0.0)
    compiled = dict(codes(found))
    bounds = {code: nbytes for code, nbytes in codes(explanation_of(error)) if code in compiled}
    assert all(nbytes is None or nbytes <= compiled[code] for code, nbytes in bounds.items())


def kept_axes(subscripts, shapes, given):
    """Return the mesh axes of the dimensions that the result keeps."""
    *terms, result = subscripts.replace("->", ",").split(",")
    entries = [pair for term, spec in zip(terms, given, strict=True) for pair in zip(term, spec, strict=True)]
    return {name for letter, names in entries if letter in result for name in names or ()}
