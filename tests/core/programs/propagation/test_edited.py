"""Questions about a module with edits: its propagation, and estimates."""

import json
import os
import socket
import time

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core.compat.programs import module_bytecode
from jax_array_info_core.programs.advice.edits import Edit
from jax_array_info_core.programs.propagation import helper
from jax_array_info_core.programs.propagation.helper import EndedError, NoAnswerError
from jax_array_info_core.programs.propagation.module_edits import operations
from jax_array_info_core.programs.propagation.wire import Estimate, Reply, read_graph
from tests.core.programs.propagation.programs import constrained, needs_shardy, struct

pytestmark = needs_shardy


def layers(x, w):
    """Multiply by a weight eight times."""
    return jax.lax.scan(lambda x, _: (jnp.tanh(constrained(x @ w, X) @ w), None), x, None, length=8)[0]


X, W = struct((64, 128), "data"), struct((128, 128))


@pytest.fixture(scope="module")
def bytecode():
    return module_bytecode(jax.jit(layers).trace(X, W).lower(lowering_platforms=("tpu",)))


def operations_of(bytecode, edits=()):
    """Return the operations after the propagation that have a number in the module as it is read."""
    return [
        one for one in read_graph(helper.ask_edited(bytecode, edits)).operations if one.number is not None
    ]


def constraint_of(bytecode):
    return next(one for one in operations_of(bytecode) if one.name == "sdy.sharding_constraint")


def test_operations_have_their_numbers_in_the_module_with_and_without_edits(bytecode):
    lowered = jax.jit(layers).trace(X, W).lower(lowering_platforms=("tpu",))
    names = [one.name for one in operations(lowered.compiler_ir("stablehlo").operation)]
    numbers = {one.number: one.name for one in operations_of(bytecode)}
    products = {"sdy.sharding_constraint", "stablehlo.dot_general", "stablehlo.while"}
    assert {n: name for n, name in numbers.items() if name in products} == {
        n: name for n, name in enumerate(names) if name in products
    }
    edited = operations_of(bytecode, [Edit("argument", 1, ((), ("model",)))])
    assert {one.number: one.name for one in edited} == numbers
    removed = operations_of(bytecode, [Edit("constraint", constraint_of(bytecode).number, None)])
    constraints = {n for n, name in numbers.items() if name == "sdy.sharding_constraint"}
    assert {one.number for one in removed} == {*numbers} - constraints


def test_a_broadcast_that_becomes_a_reshape_keeps_its_number():
    code = module_bytecode(jax.jit(lambda x: x[:, None] * 2).trace(X).lower(lowering_platforms=("tpu",)))
    assert "stablehlo.reshape" in {one.name for one in operations_of(code)}


def test_a_propagation_without_a_constraint_shows_what_the_rest_of_the_program_has(bytecode):
    constraint = constraint_of(bytecode)
    assert constraint.results[0].axes == ((), ())
    edits = [Edit("argument", 1, ((), ("model",))), Edit("constraint", constraint.number, None)]
    products = [one for one in operations_of(bytecode, edits) if one.name == "stablehlo.dot_general"]
    assert products[0].results[0].axes == (("data",), ("model",))


def test_an_estimate_counts_each_run_of_a_loop_and_is_of_one_device(bytecode):
    constraint = Edit("constraint", constraint_of(bytecode).number, (("data",), ()))
    now, right = helper.estimates(bytecode, [[], [constraint]], 60)
    products = 8 * 2 * (2 * 64 * 128 * 128) // 4
    gathered = 8 * (64 * 128 * 4) * 3 // 4
    assert now == Estimate(gathered, products, now.value_nbytes)
    assert right == Estimate(0, products, right.value_nbytes)
    assert right.value_nbytes < now.value_nbytes


def test_an_edit_that_is_refused_has_no_estimate_and_a_reason(bytecode):
    refused = [Edit("constraint", 10**6, None)]
    found = helper.estimates(bytecode, [[], refused, []], 60)
    assert [one is None for one in found] == [False, True, False]
    with pytest.raises(NoAnswerError):
        helper.ask_edited(bytecode, refused)


def test_a_helper_that_ends_costs_one_estimate_and_the_end_of_the_time_the_rest(monkeypatch):
    """The second list of edits ends the helper, and nothing is answered from the fifth one on."""
    asked = []

    class Ending:
        def ask_all(self, question, count, seconds):
            lists = json.loads(question.partition(b"\n")[0])["estimates"]
            asked.append(lists)
            assert len(lists) == count
            replies = []
            for number in lists:
                if number == [5]:
                    if not replies:
                        raise NoAnswerError("no answer in time")
                    break
                replies.append(Reply(ended="") if number == [2] else Reply(estimate=Estimate(*number * 3)))
                if number == [2]:
                    if len(replies) == 1:
                        raise EndedError("ended")
                    break
            return replies

    monkeypatch.setattr(helper, "_worker", Ending)
    found = helper.estimates(b"", [[1], [2], [3], [2], [4], [5], [6]], 60)
    assert [one and one.sent for one in found] == [1, None, 3, None, 4, None, None]
    assert asked[1] == [[3], [2], [4], [5], [6]]


def test_the_last_reply_is_how_the_helper_ended():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for row in ({"estimate": [1, 2, 3]}, {"ended": " with SIGSEGV"}):
            data = json.dumps(row).encode()
            theirs.sendall(len(data).to_bytes(8, "little") + data)
        process = helper.Helper(ours, helper.Descriptor(ours.fileno()), os.getpid(), is_child=False)
        found = process.ask(b"{}", time.monotonic() + 60, 5)
    assert found == [Reply(estimate=Estimate(1, 2, 3)), Reply(ended=" with SIGSEGV")]
