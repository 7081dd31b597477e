"""Reference cycles that keep arrays alive, found before the garbage collector breaks them."""

import gc
import sys
import weakref

import jax.numpy as jnp
import pytest

from jax_array_info_core.holders.cycles import find_cycles

pytestmark = pytest.mark.own_process


class Node:
    pass


class Child:
    def __init__(self, parent):
        self.parent = parent


class Parent:
    def __init__(self):
        self.child = Child(self)


def to_itself():
    node = Node()
    node.me, node.w = node, jnp.ones(3)
    return weakref.ref(node.w)


def of_two():
    parent = Parent()
    parent.child.w = jnp.ones(3)
    return weakref.ref(parent.child.w)


def through_a_list():
    parent = Parent()
    parent.child = None
    parent.children = [Child(parent)]
    parent.children[0].w = {"k": jnp.ones(3)}
    return weakref.ref(parent.children[0].w["k"])


def through_a_closure():
    w = jnp.ones(3)

    def loop(n):
        return w if n == 0 else loop(n - 1)

    return weakref.ref(w)


def through_a_frame():
    def fail():
        w = jnp.ones(3)
        found.append(weakref.ref(w))
        try:
            raise ValueError
        except ValueError as error:
            kept = error
        return kept

    found = []
    fail()
    return found[0]


def of_a_class():
    class Trainer:
        ema = jnp.ones(3)

    return weakref.ref(Trainer.ema)


def of_a_list():
    mine = [jnp.ones(3)]
    mine.append(mine)
    return weakref.ref(mine[0])


CYCLES = [
    (to_itself, "Node.me → Node"),
    (of_two, "Child.parent → Parent.child → Child", "Parent.child → Child.parent → Parent"),
    (
        through_a_list,
        "Child.parent → Parent.children[0] → Child",
        "Parent.children[0] → Child.parent → Parent",
    ),
    (
        through_a_closure,
        "closure of through_a_closure.<locals>.loop: loop → through_a_closure.<locals>.loop",
    ),
    (
        through_a_frame,
        "through_a_frame.<locals>.fail() local kept → ValueError.__traceback__.tb_frame"
        " → through_a_frame.<locals>.fail()",
        "ValueError.__traceback__.tb_frame → through_a_frame.<locals>.fail() local kept → ValueError",
    ),
    (of_a_class, "of_a_class.<locals>.Trainer.__mro__ → of_a_class.<locals>.Trainer"),
    (of_a_list, "list[1] → list"),
]


def test_every_kind_of_cycle_has_its_path():
    gc.collect()
    gc.disable()
    try:
        alive = [make() for make, *_ in CYCLES]
        found = find_cycles([reference() for reference in alive], max_seconds=None).paths
        assert all(
            found[id(reference())] in cycles for reference, (_, *cycles) in zip(alive, CYCLES, strict=True)
        )
        gc.collect()
        assert not any(reference() for reference in alive)
    finally:
        gc.enable()


def linked(number, *, back):
    """Return weak references to the arrays in a chain of nodes that ends at its first node.

    With ``back``, each node also refers to the node before it.
    """
    first = node = Node()
    arrays = []
    for _ in range(number):
        node.next = Node()
        if back:
            node.next.prev = node
        node = node.next
        node.w = jnp.ones(3)
        arrays.append(weakref.ref(node.w))
    node.next = first
    return arrays


def test_objects_that_all_reach_each_other_share_one_cycle():
    gc.collect()
    gc.disable()
    try:
        chain, ring = linked(300, back=True), linked(300, back=False)
        found = find_cycles([reference() for reference in chain + ring], max_seconds=None)
        assert {found.paths[id(reference())] for reference in chain} < {
            "Node.prev → Node.next → Node",
            "Node.next → Node.prev → Node",
        }
        (of_ring,) = {found.paths[id(reference())] for reference in ring}
        assert (
            of_ring
            == "Node.next → Node.next → Node.next → Node.next → … 294 more …" + 3 * " → Node.next" + " → Node"
        )
        assert found.is_complete
    finally:
        gc.enable()


def test_a_search_past_its_time_limit_is_incomplete():
    gc.disable()
    try:
        alive = to_itself()
        assert find_cycles([alive()], max_seconds=0) == ({}, False)
    finally:
        gc.enable()


def test_a_named_array_has_no_cycle():
    node = Node()
    node.me, node.w = node, jnp.ones(3)
    parent = Parent()
    parent.w = jnp.ones(4)
    sys.modules[__name__].kept = parent
    try:
        assert find_cycles([node.w, parent.w, jnp.ones(5)], max_seconds=None) == ({}, True)
    finally:
        del sys.modules[__name__].kept
