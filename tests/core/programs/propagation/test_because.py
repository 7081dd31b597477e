import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import to_text
from jax_array_info_core import (
    assert_sent,
    from_json,
    program_report,
    to_json,
)
from jax_array_info_core.facts.reports.collectives import because_words
from tests.programs import abstract, cube, loss, scanned, step, step_arguments

pytestmark = [
    pytest.mark.once_per_version,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on"),
]


def words(one):
    """Return what a collective is needed for: the kind, the rule, and the letters with their arguments."""
    return [
        (each.kind, each.rule, [(operand.letter, operand.axis_origin.path) for operand in each.operands])
        for each in one.because
    ]


def of_kind(report, kind, axes=("fsdp",)):
    return [one for one in report.collectives if one.kind == kind and one.axes == axes]


def test_each_gather_of_a_step_names_the_operands_that_clash():
    params, x = step_arguments(cube())
    shardings = jax.tree.map(lambda leaf: leaf.sharding, params)
    report = program_report(jax.jit(step, out_shardings=shardings), params, x)
    gathers = of_kind(report, "all-gather")
    assert sorted((one.path, one.phase, *words(one)) for one in gathers) == [
        ("params/wi", "forward", ("conflict", "ijl,lk->ijk", [("i", "x"), ("l", "params/wi")])),
        ("params/wo", "backward", ("conflict", "ijl,kl->ijk", [("i", "x"), ("l", "params/wo")])),
        ("params/wo", "forward", ("conflict", "ijl,lk->ijk", [("i", "x"), ("k", "params/wo")])),
    ]
    for one in gathers:
        assert (one.because[0].origin.file, one.because[0].origin.line) == (one.origin.file, one.origin.line)


def test_each_reduction_names_the_sum():
    report = program_report(jax.grad(loss), *step_arguments(cube()))
    (activations,) = of_kind(report, "all-reduce", ("tensor",))
    assert words(activations) == [("sum", "ijl,lk->ijk", [("l", "params/wi"), ("l", "params/wo")])]
    for one in of_kind(report, "all-reduce", ("data", "fsdp")):
        assert words(one) == [("sum", "kli,klj->ij", [("k", "x"), ("k", "x")])]
        assert one.because[0].mesh_axes == ("data", "fsdp")


def test_gathers_of_scanned_layers_are_followed_to_the_stacked_arguments():
    function, arguments = scanned(cube(), checkpoint=True)
    gathers = of_kind(program_report(function, *arguments), "all-gather")
    assert sum(one.count for one in gathers) == 5
    for one in gathers:
        (because,) = one.because
        assert one.path in [operand.axis_origin.path for operand in because.operands]
        assert because.phase == one.phase


def test_a_sort_needs_the_dimension_whole():
    report = program_report(jnp.sort, abstract(cube(), P(None, "fsdp"), (8, 4096)))
    found = [one for one in report.collectives if one.because]
    assert found
    for one in found:
        (because,) = one.because
        assert (because.kind, because.op, len(because.operands)) == ("conflict", "sort", 1)


def flat():
    """Return a mesh of 8 devices: fsdp=4, tensor=2."""
    return Mesh(np.reshape(jax.devices()[:8], (4, 2)), ("fsdp", "tensor"))


def square(*spec):
    """Return the type of a square matrix."""
    return abstract(flat(), P(*spec), (64, 64))


def moved(function, *arguments):
    """Return the kind and the size of each collective of a function, with the operations that need it."""
    report = program_report(function, *arguments)
    assert report.unread == ()
    return sorted(
        (one.kind, one.path or "", [(each.op, each.rule) for each in one.because])
        for one in report.collectives
    )


CLASH = ("dot_general", "ik,kj->ij")
GATHERED = ("all-gather", "w", [CLASH])


@pytest.mark.parametrize(
    ("function", "others"),
    [
        (lambda x, w: x[::-1] @ w, [("collective-permute", "x", [])]),
        (
            lambda x, w: jnp.linalg.qr(x)[0] + x @ w,
            [("all-gather", "x", [("geqrf", "ij->kl,m")])],
        ),
        (
            lambda x, w: jax.lax.linalg.cholesky(x, symmetrize_input=False) + x @ w,
            [("all-gather", "x", [("cholesky", "ij->kl,")])],
        ),
        (
            lambda x, w: jnp.cumsum(x, 0) + x @ w,
            [("all-gather", "x", [])],
        ),
    ],
)
def test_a_clash_is_no_reason_of_another_operation_of_its_line(function, others):
    found = moved(function, square("fsdp"), square("fsdp"))
    assert found == sorted([GATHERED, *others])


def test_a_constraint_gathers_the_operand_of_the_operation_before_it():
    whole = NamedSharding(flat(), P())
    f = lambda x: jax.lax.with_sharding_constraint(jnp.maximum(x @ x.T, 0), whole) * 2  # noqa: E731
    (gather,) = of_kind(program_report(f, square("fsdp")), "all-gather")[-1:]
    assert gather.because[0].kind == "constraint"


def test_what_a_callback_gathers_has_no_reason():
    def called(x, w):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + x @ w

    found = moved(called, square("fsdp"), square("fsdp"))
    assert GATHERED in found
    assert {bool(because) for _, path, because in found if path != "w"} == {False}


def test_a_gather_for_two_lines_has_both_reasons():
    def twice(x, w):
        first = x @ w
        return first, jnp.sin(x) @ w

    (gather,) = program_report(twice, square("fsdp"), square("fsdp")).collectives
    line = twice.__code__.co_firstlineno
    assert [each.origin.line - line for each in gather.because] == [1, 2]
    assert because_words(gather).count(" clash in ik,kj->ij of test_because.py:") == 2


def layers(x, ws):
    return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]


def chain(x, w, v):
    return jnp.tanh(jnp.sin(x) @ jnp.sin(w)) @ jnp.cos(v)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            lambda x, y, w: x @ w + y @ w,
            ["; ".join(f"'i' ({x}) and 'k' (w) clash in ik,kj->ij" for x in "xy")],
        ),
        (lambda x, y, w: sum(one @ w for one in (x, y)), ["'i' and 'k' (w) clash in ik,kj->ij"]),
        (chain, [f"'i' (x) and 'k' ({w}) clash in ik,kj->ij" for w in "vw"]),
    ],
    ids=["told apart by columns", "letters in common", "told apart by the moved operand"],
)
def test_operations_of_one_line_are_told_apart_or_have_their_letters_in_common(function, expected):
    report = program_report(function, *[square("fsdp")] * 3)
    assert sorted(map(because_words, report.collectives)) == expected


def test_of_two_clashes_of_an_operation_that_over_the_mesh_axes_of_the_gather_is_the_reason():
    stack = abstract(flat(), P(None, "fsdp", "tensor"), (4, 64, 64))
    (gather,) = of_kind(program_report(layers, square("fsdp"), stack), "all-gather")
    assert because_words(gather) == "'i' (x) and 'k' (ws) clash in ik,kj->ij"


def test_an_operation_that_can_be_another_one_of_its_line_is_no_reason():
    """Either addition can need ``w`` in another way."""
    ((_, path, because), _) = moved(lambda x, w: x[::-1] + w + w.T, square("fsdp"), square("fsdp"))
    assert (path, because) == ("w", [])


def test_the_constraint_on_its_result_is_part_of_a_clash():
    mesh = flat()

    def constrained(x, w):
        return jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P(None, "fsdp")))

    report = program_report(constrained, square("fsdp"), square("fsdp"))
    line = constrained.__code__.co_firstlineno + 1
    words = f"'i' (x) and 'k' (w) and 'j' (constraint test_because.py:{line}) clash in ik,kj->ij"
    assert {because_words(one) for one in report.collectives} == {words}


def test_a_gather_belongs_to_the_pass_of_the_operations_that_need_it():
    """From JAX 0.11 on, the partitioner names one for the forward pass that only the backward pass reads."""
    function = jax.grad(lambda w, x: jnp.sum(jnp.tanh(x @ w) @ w))
    report = program_report(function, square("fsdp", "tensor"), square("fsdp"))
    gathers = [one for one in report.collectives if one.kind == "all-gather" and one.because]
    assert gathers
    for one in gathers:
        assert {each.phase for each in one.because} == {one.phase}


def test_a_constraint_that_leaves_out_axes_is_the_reason_of_both_gathers():
    mesh = cube()

    def layer(x, w):
        hidden = x @ w
        return jax.lax.with_sharding_constraint(hidden, NamedSharding(mesh, P()))

    x, w = abstract(mesh, P("data"), (64, 32)), abstract(mesh, P(None, "tensor"), (32, 128))
    report = program_report(layer, x, w)
    assert {one.axes for one in report.collectives} == {("data",), ("tensor",)}
    line = layer.__code__.co_firstlineno + 2
    for one in report.collectives:
        assert [(each.kind, each.mesh_axes, each.origin.line) for each in one.because] == [
            ("constraint", ("data", "tensor"), line)
        ]


def test_an_argument_that_is_gathered_instead_of_summed_has_the_sum_as_the_reason():
    mesh = cube()
    x, w = abstract(mesh, P(), (512, 4096)), abstract(mesh, P("tensor"), (4096, 1024))
    (gather,) = program_report(jnp.matmul, x, w).collectives
    assert (gather.kind, gather.path) == ("all-gather", "b")
    assert words(gather) == [("sum", "ik,kj->ij", [("k", "b")])]


def test_a_requested_output_that_leaves_out_an_axis_is_the_reason():
    mesh = cube()
    x = abstract(mesh, P("fsdp"), (64, 32))
    function = jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh, P()))
    (gather,) = program_report(function, x).collectives
    assert [(each.kind, each.op, each.mesh_axes) for each in gather.because] == [
        ("constraint", "return", ("fsdp",))
    ]


def test_a_collective_of_the_users_has_no_reason():
    mesh = cube()
    summed = jax.shard_map(lambda x: jax.lax.psum(x, "fsdp"), mesh=mesh, in_specs=P("fsdp"), out_specs=P())
    report = program_report(summed, abstract(mesh, P("fsdp"), (16,)))
    assert [(one.kind, one.because) for one in report.collectives] == [("all-reduce", ())]


def test_an_output_that_propagation_shards_in_another_way_is_a_caveat():
    mesh = cube()
    x = abstract(mesh, P("fsdp"), (16, 8))
    report = program_report(lambda x: jnp.concatenate([x, x[:1] * x.sum()]), x)
    assert report.outputs[0].shape == (17, 8)
    (caveat,) = [one for one in report.caveats if "disagree" in one]
    assert "outputs P('fsdp',) (compiled: P())" in caveat


def test_where_shardy_fails_the_report_stands_with_a_caveat(monkeypatch):
    monkeypatch.setattr("jax_array_info_core.programs.propagation.helper._WORKERS", {})
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    report = program_report(jax.grad(loss), *step_arguments(cube()))
    assert report.collectives
    assert not any(one.because for one in report.collectives)
    (caveat,) = [one for one in report.caveats if "/nowhere/python" in one]
    assert caveat.startswith("Why collectives are needed is unknown: ")


def test_reasons_are_left_out_if_they_are_not_wanted_and_of_a_compiled():
    arguments = step_arguments(cube())
    report = program_report(jax.grad(loss), *arguments, explain=False)
    assert report.collectives
    assert not any(one.because for one in report.collectives)
    compiled = program_report(jax.jit(jax.grad(loss)).lower(*arguments).compile())
    assert compiled.collectives
    assert not any(one.because for one in compiled.collectives)


@pytest.mark.parametrize(
    ("function", "count", "words"),
    [
        (jnp.matmul, 2, "'i' (a) and 'k' (b) clash in ik,kj->ij"),
        (lambda x: x.max(0), 1, "'i' is reduced in reduce_max ij,->j"),
        (lambda x: jnp.sort(x, 0), 1, "'i' (x) is needed whole in sort ij->ij"),
    ],
)
def test_a_report_its_page_and_a_failing_assertion_have_the_reasons(function, count, words):
    report = program_report(function, *[square("fsdp")] * count)
    assert "because '" in to_text(report)
    assert any(because_words(one) == words for one in from_json(to_json(report)).collectives)
    with pytest.raises(AssertionError) as error:
        assert_sent(report, 0)
    assert f", because {words}" in str(error.value)
