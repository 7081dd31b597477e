"""Referrers of objects: what the garbage collector knows, asked in chunks.

Asked for the referents of many objects at once, it answers some ten times faster than for those of each;
only chunks of objects in which something turned up are looked through one by one.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from typing import Any, NamedTuple

from ..compat import referents, referents_of_each

_CHUNK = 128
_MOST_NEAR = 50_000


class Heap(NamedTuple):
    """Objects of the program that can hold others."""

    objects: list[Any]
    """The newest first; before them, once more, those that are near to names. What is made later is not
    among them, and so is nobody's holder."""

    is_whole: bool
    """Whether these are all; otherwise there are those too to which these refer."""


def all_holders(
    targets: Iterable[Any],
    heap: Heap,
    *,
    ignored: Collection[int],
    is_end: Callable[[Any], bool],
    is_late: Callable[[], bool],
) -> tuple[dict[int, Any], bool]:
    """Return the targets and all that holds them, directly or not, by id, and whether that is all.

    All objects are asked in passes. Each pass goes the other way than the one before, and looks at once for
    what it finds: a tree that was built from its root, or from its leaves, takes one whatever its depth.

    Args:
        targets: What is held.
        heap: The objects that may hold them.
        ignored: Ids of objects that are no holders.
        is_end: Whether it does not matter who holds an object.
        is_late: Whether it is time to return what was found so far.
    """
    found = {id(target): target for target in targets}
    wanted, fresh = set(found), set[int]()
    chunks: list[Sequence[Any]] = []
    held_by_chunk = _with_referents(heap)
    while wanted:
        for chunk, held in held_by_chunk:
            if is_late():
                return found, False
            chunks.append(chunk)
            if wanted.isdisjoint(map(id, held)):
                continue
            for thing in _holding(wanted, chunk):
                if id(thing) not in found and id(thing) not in ignored:
                    found[id(thing)] = thing
                    if not is_end(thing):
                        wanted.add(id(thing))
                        fresh.add(id(thing))
        held_by_chunk = ((chunk[::-1], referents(*chunk)) for chunk in reversed(chunks))
        chunks, wanted, fresh = [], fresh, set()
    return found, True


def _holding(wanted: set[int], chunk: Sequence[Any]) -> Iterator[Any]:
    """Return those of some objects that hold one of the wanted, which may become more meanwhile."""
    ids = map(map, repeat(id), referents_of_each(chunk))
    return compress(chunk, map(operator.not_, map(wanted.isdisjoint, ids)))


def _with_referents(heap: Heap) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """Yield the objects that can hold others in chunks, each with what these refer to.

    Where those given are not all, these are the tuples to which they refer, and what ``gc.freeze`` has put
    aside.
    """
    objects, is_whole = heap
    is_frozen = gc.get_freeze_count() > 0
    seen = set(map(id, objects)) if is_frozen else set[int]()
    for start in range(0, len(objects), _CHUNK):
        chunk = objects[start : start + _CHUNK]
        while chunk:
            held = referents(*chunk)
            yield chunk, held
            if is_whole:
                break
            new: Iterable[Any] = held
            if not is_frozen:
                new = compress(held, map(operator.is_, map(type, held), repeat(tuple)))
            unseen = {id(thing): thing for thing in new if id(thing) not in seen and gc.is_tracked(thing)}
            seen.update(unseen)
            chunk = list(unseen.values())


def near(roots: Iterable[Any], *, is_end: Callable[[Any], bool]) -> list[Any]:
    """Return the objects that some lead to, with what is held before its holders, up to some number.

    Args:
        roots: Where to begin.
        is_end: Whether not to look at what an object holds.
    """
    found: dict[int, Any] = {}
    fresh = list(roots)
    while fresh and len(found) < _MOST_NEAR:
        unseen = {id(thing): thing for thing in fresh if id(thing) not in found and gc.is_tracked(thing)}
        opened = {key: thing for key, thing in unseen.items() if not is_end(thing)}
        found.update(opened)
        fresh = referents(*opened.values())
    return list(reversed(found.values()))


def listed_heap() -> Heap:
    """Return the objects that the garbage collector lists.

    A tuple to which nothing refers may be one that another thread is still filling: had it one more owner
    meanwhile, ``tuple(generator)`` would raise a SystemError there. Where there are other threads, tuples
    are left out.
    """
    if len(sys._current_frames()) == 1:
        objects, is_whole = gc.get_objects(), True
    else:
        # From young to old: what moves on meanwhile is listed twice, never missed.
        young, middle, old = map(_listed_without_tuples, (0, 1, 2))
        objects, is_whole = [*old, *middle, *young], False
        for things in (young, middle):
            # They may be among what was listed later: empty, they are nobody's holders.
            things.clear()
    if gc.get_freeze_count():
        objects.append(sys.modules)
        is_whole = False
    # What a library has made when it was imported seldom holds arrays.
    objects.reverse()
    return Heap(objects, is_whole)


def _listed_without_tuples(generation: int) -> list[Any]:
    """Return what the garbage collector lists of a generation, without tuples."""
    is_aligned = False
    while not is_aligned:
        # One call of C: no other thread runs while a tuple has one more owner.
        listed = list(_without_tuples(generation))
        is_aligned = bool(listed) and listed[-1] is None
        things = [thing for thing in listed if thing is not None and thing is not listed]
        # It was there when it was filled, so that it holds itself.
        listed.clear()
    return things


def _without_tuples(generation: int) -> Iterator[Any]:
    """Yield what the garbage collector lists of a generation, without tuples, and then None.

    Two lists are compared: of the objects, and of their types. Both have these iterators in them, and these
    have the lists until they come to their end: so both do, and Nones are after the objects. The second list
    has the same order, and more at its end; where, up to Python 3.11, the garbage collector runs between the
    two, it is shorter, and there is no None.
    """
    types = map(type, _listed_when_read(generation))
    is_wanted = chain(map(operator.is_not, types, repeat(tuple)), (True,))
    return compress(chain(_listed_when_read(generation), repeat(None)), is_wanted)


def _listed_when_read(generation: int) -> Iterator[Any]:
    return chain.from_iterable(map(gc.get_objects, (generation,)))
