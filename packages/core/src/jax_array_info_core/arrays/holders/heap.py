"""Referrers of objects, found among the referents of all objects.

Reading the referents of many objects in one call is about ten times faster than one call per object. So
objects are read in chunks, and only a chunk that refers to a target is searched object by object.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from typing import Any

from ...compat.jitted import referents, referents_of_each

_CHUNK = 128
_MOST_NEAR = 50_000


def all_referrers(
    targets: Iterable[Any],
    heap: list[Any],
    *,
    ignored: Collection[int],
    is_end: Callable[[Any], bool],
    is_late: Callable[[], bool],
) -> tuple[dict[int, Any], bool]:
    """Return the targets and their direct and indirect referrers by id, and whether these are all.

    Each pass reads all objects, in the opposite order of the pass before, and adds what it finds to its own
    targets. A tree that was built from its root, or from its leaves, takes one pass, whatever its depth.

    Args:
        targets: The objects whose referrers are searched.
        heap: The objects that may refer to them, as listed by ``listed_heap``; some may be listed twice.
        ignored: Ids of objects that do not count as referrers.
        is_end: Returns whether the search stops at an object, without searching for its referrers.
        is_late: Returns whether the time limit is reached.
    """
    referrers = {id(target): target for target in targets}
    wanted, fresh = set(referrers), set[int]()
    chunks: list[Sequence[Any]] = []
    chunks_with_referents = _with_referents(heap)
    while wanted:
        for chunk, held in chunks_with_referents:
            if is_late():
                return referrers, False
            chunks.append(chunk)
            if wanted.isdisjoint(map(id, held)):
                continue
            for thing in _referring_to(wanted, chunk):
                if id(thing) not in referrers and id(thing) not in ignored:
                    referrers[id(thing)] = thing
                    if not is_end(thing):
                        wanted.add(id(thing))
                        fresh.add(id(thing))
        chunks_with_referents = ((chunk[::-1], referents(*chunk)) for chunk in reversed(chunks))
        chunks, wanted, fresh = [], fresh, set()
    return referrers, True


def _referring_to(wanted: set[int], chunk: Sequence[Any]) -> Iterator[Any]:
    """Yield the objects of a chunk that refer to a wanted one. ``wanted`` may grow during the iteration."""
    ids = map(map, repeat(id), referents_of_each(chunk))
    return compress(chunk, map(operator.not_, map(wanted.isdisjoint, ids)))


def _with_referents(heap: list[Any]) -> Iterator[tuple[Sequence[Any], Sequence[Any]]]:
    """Yield all objects in chunks, each with its referents.

    The list has no tuples and no objects in the permanent generation (``gc.freeze``). They follow the objects
    that refer to them.
    """
    is_frozen = gc.get_freeze_count() > 0
    seen = set(map(id, heap)) if is_frozen else set[int]()
    for start in range(0, len(heap), _CHUNK):
        chunk = heap[start : start + _CHUNK]
        while chunk:
            held = referents(*chunk)
            yield chunk, held
            missing = held if is_frozen else compress(held, map(operator.is_, map(type, held), repeat(tuple)))
            unseen = {id(thing): thing for thing in missing if id(thing) not in seen and gc.is_tracked(thing)}
            seen.update(unseen)
            chunk = list(unseen.values())


def near(roots: Iterable[Any], *, is_end: Callable[[Any], bool]) -> list[Any]:
    """Return up to about ``_MOST_NEAR`` objects reachable from some roots, referents before their referrers.

    Args:
        roots: The objects to start from.
        is_end: Returns whether to leave out an object and its referents.
    """
    reached: dict[int, Any] = {}
    fresh = list(roots)
    while fresh and len(reached) < _MOST_NEAR:
        unseen = {id(thing): thing for thing in fresh if id(thing) not in reached and gc.is_tracked(thing)}
        opened = {key: thing for key, thing in unseen.items() if not is_end(thing)}
        reached.update(opened)
        fresh = referents(*opened.values())
    return list(reversed(reached.values()))


def listed_heap() -> list[Any]:
    """Return the objects that the garbage collector tracks, without tuples, the newest first.

    A tuple without referrers may be one that another thread is still filling. One more reference to it
    would make ``tuple(generator)`` raise a SystemError in that thread.
    """
    # From young to old, so that an object promoted between two calls is listed twice, never missed.
    young, middle, old = map(_listed_without_tuples, (0, 1, 2))
    # The garbage collector does not list frozen objects (gc.freeze). They are found from the modules.
    objects = [sys.modules, *old, *middle, *young]
    for things in (young, middle):
        # A later call may have listed these lists too. Emptied, they refer to nothing.
        things.clear()
    # Objects that a library creates at import seldom refer to arrays.
    objects.reverse()
    return objects


def _listed_without_tuples(generation: int) -> list[Any]:
    """Return the tracked objects of a generation, without tuples.

    Two listings are compared, one of the objects and one of their types. The second has the same order and
    more objects at its end, so Nones follow the objects. On Python 3.11 and earlier, the garbage collector
    may run between the two listings: then the second one is shorter, and no None follows.
    """
    is_aligned = False
    while not is_aligned:
        types = map(type, _listed_when_read(generation))
        is_wanted = chain(map(operator.is_not, types, repeat(tuple)), (True,))
        # One call into C, so no other thread runs while its tuples have an extra reference.
        listed = list(compress(chain(_listed_when_read(generation), repeat(None)), is_wanted))
        is_aligned = bool(listed) and listed[-1] is None
        things = [thing for thing in listed if thing is not None and thing is not listed]
        # The list existed while it was filled, so it contains itself. Clearing breaks that cycle.
        listed.clear()
    return things


def _listed_when_read(generation: int) -> Iterator[Any]:
    return chain.from_iterable(map(gc.get_objects, (generation,)))
