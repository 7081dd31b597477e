"""Reference paths from names to live arrays, found with the garbage collector.

The search collects the direct and indirect referrers of the arrays, up to the variables of modules, running
functions, closures and classes. Then it follows the shortest paths from these names back to the arrays.
"""

from __future__ import annotations

import gc
import itertools
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from time import monotonic
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ..arrays.labels import bases_of_views
from ..compat import module_names, referents
from ..compat.compiled_calls import traced_constants
from ..errors import SearchError
from .heap import all_referrers, listed_heap, near
from .links import Link, Reader
from .names import CONTEXTS, begins_paths, copied_items, is_bare, leads_everywhere, module_of, type_name, word
from .scopes import Owner, owner_of, running_scopes

MOST_HOLDERS = 5
"""The most reference paths that are returned for one array."""

OnProgress = Callable[[float], None]
"""Called repeatedly while a search runs, with the seconds since its start."""

_DEEPEST = 40
_SEARCHING = 0.8
"""The part of the time limit for finding the referrers. The rest is for the paths."""


class Holders(NamedTuple):
    """The reference paths to some arrays."""

    paths: dict[int, tuple[str, ...]]
    """The paths to each array, by its ``id``: paths from the user's names first, then shorter ones first.
    Empty where no referrer was found."""

    is_complete: bool
    """Whether these are all. False after the time limit, where a path is too long to be followed, or where
    the variables of a running function could not be read."""

    garbage: frozenset[int] = frozenset()
    """The ids of the arrays that only reference cycles keep alive; empty if the search is incomplete."""


class Path(NamedTuple):
    """A path of references from a name to an object."""

    links: tuple[Link, ...]
    """Its links. The first one is from the name."""
    root: int
    """The number of the name."""

    def text(self) -> str:
        """Return the path as text, such as ``train.state.params['w']``."""
        links = self.links
        # The text of an opaque link repeats the type at which the path begins.
        is_repeated = links[0].access == "type" and links[1].access == "opaque"
        root = text = links[0].text()
        for before, link in pairwise(links[is_repeated:]):
            if link.access != "scope":
                text += link.text()
            # A function's own name replaces a variable of the same name.
            elif text == root and _is_named(before.to, root):
                text = link.text()
            else:
                text += f" → {link.text()}"
        return text


def find_holders(
    arrays: Sequence[Any], *, max_seconds: float | None = 5.0, on_progress: OnProgress | None = None
) -> Holders:
    """Return at most ``MOST_HOLDERS`` reference paths to each array.

    Paths begin at variables of modules (``train.state.params['w']``; a script has the name of its file), of
    running functions in any thread (``main() local batch``), of closures
    (``closure of make_step.<locals>.step: params``), of suspended generators and coroutines
    (``generator prefetch local batch``), and of classes (``Trainer.cache[3]``). An object that no name leads
    to is named by its class. JAX and this package do not count as referrers. No user code is run.

    Args:
        arrays: The arrays. This sequence itself does not count as a referrer.
        max_seconds: The time limit in seconds; None for no limit. After it, returns the paths found so far.
        on_progress: Called while the search runs, with the seconds since its start.

    Raises:
        SearchError: (a ValueError) If ``max_seconds`` is negative or not a number.
    """
    with closing(Search(arrays, max_seconds, on_progress)) as search:
        paths = search.paths()
        return Holders(paths, search.is_complete, search.garbage if search.is_complete else frozenset())


def checked_seconds(max_seconds: Any) -> float:
    """Return a time limit as a float, infinite for None, or raise a ``SearchError``."""
    if max_seconds is None:
        return math.inf
    is_number = isinstance(max_seconds, int | float) and not isinstance(max_seconds, bool)
    if not is_number or not max_seconds >= 0:
        raise SearchError(
            f"max_seconds must be a number of seconds, 0 or more, or None for no limit; got {max_seconds!r}"
        )
    return float(max_seconds)


class Search:
    """A search for the referrers of arrays. It keeps the objects that it finds alive until ``close()``."""

    def __init__(
        self, arrays: Sequence[Any], max_seconds: float | None, on_progress: OnProgress | None = None
    ) -> None:
        self._start, self._seconds = monotonic(), checked_seconds(max_seconds)
        self._on_progress = on_progress
        # First of all, so that the objects created below do not count as referrers.
        heap = listed_heap()
        self.array_ids = set(map(id, arrays))
        self._bases = set(map(id, bases_of_views(arrays).values()))
        self.scopes = running_scopes()
        # Objects close to the user's names come first, so that a short time limit still yields paths.
        heap.objects[:0] = self._near()
        # gc.get_objects() lists neither frozen objects nor objects that are being collected.
        heap.objects.extend(link.to for _, link in self.scopes.variables if gc.is_tracked(link.to))
        self._reader = Reader()
        self._links: dict[int, list[Link]] = {}
        self._roots_of: dict[int, set[int]] = {}
        self._paths: dict[int, dict[str, None]] = {key: {} for key in self.array_ids}
        self._root_numbers = itertools.count()
        self.garbage = frozenset[int]()
        self.found, is_complete = all_referrers(
            arrays,
            heap,
            ignored={id(arrays)},
            is_end=self._is_end,
            is_late=lambda: self.is_late(_SEARCHING),
        )
        self._ends = {key for key, thing in self.found.items() if self._is_end(thing)}
        self.is_complete = is_complete and self.scopes.is_complete
        heap.objects.clear()

    def close(self) -> None:
        """Drop all references. A found frame may refer to this search, which would make a cycle."""
        for things in (
            self.found,
            self._links,
            self._roots_of,
            self.scopes.namespaces,
            self.scopes.variables,
        ):
            things.clear()

    def paths(self) -> dict[int, tuple[str, ...]]:
        """Return the paths to each array by its id."""
        for owner in (Owner.USER, Owner.LIBRARY):
            self._follow(self._names_of(owner), MOST_HOLDERS)
        self._follow_unnamed()
        return {key: tuple(paths) for key, paths in self._paths.items()}

    def is_late(self, part: float = 1.0) -> bool:
        """Return whether the given part of the time limit has passed, and report progress."""
        seconds = monotonic() - self._start
        if self._on_progress is not None:
            self._on_progress(seconds)
        return seconds > self._seconds * part

    def _near(self) -> list[Any]:
        """Return the objects close to the variables of ``__main__`` and of the user's running functions."""
        values = [link.to for owner, link in self.scopes.variables if owner == Owner.USER]
        program = sys.modules.get("__main__")
        if issubclass(type(program), ModuleType):
            values += (value for _, value in copied_items(module_names(program)))
        namespaces = self.scopes.namespaces
        return near(values, is_end=lambda thing: id(thing) in namespaces or leads_everywhere(thing))

    def _is_end(self, thing: Any) -> bool:
        return id(thing) in self.scopes.namespaces or begins_paths(thing)

    def links_of(self, thing: Any) -> list[Link]:
        """Return the links of an object to the objects found."""
        if id(thing) not in self._links:
            links = self._reader.links(thing, self.found)
            if type(thing) is FunctionType and _owner(thing) == Owner.MACHINERY:
                # A wrapper that JAX made, or the backward pass of a vjp, adds no step to a path.
                links = [link._replace(access="inside") for link in links]
            self._links[id(thing)] = links
        return self._links[id(thing)]

    def _names_of(self, owner: Owner) -> Iterable[Link]:
        """Yield links from the names of an owner to the objects found."""
        yield from (link for other, link in self.scopes.variables if other == owner)
        for key in self._ends - self.scopes.namespaces.keys():
            if _owner(self.found[key]) == owner:
                yield from self.links_of(self.found[key])
        for key, namespace in self.scopes.namespaces.items():
            # A search that hit its time limit may not have reached a namespace that holds an object found.
            if namespace.owner == owner and (key in self._ends or not self.is_complete):
                yield from namespace.links(self.found)

    def _follow_unnamed(self) -> None:
        """Follow paths from objects that no name leads to: garbage in cycles, and objects held only by C.

        Their paths begin with the type. Objects found last come first, since they may contain the others;
        lists and the like come last, those in a cycle at the very end.
        """
        self._follow_constants()
        unnamed = {key for key, paths in self._paths.items() if not paths}
        if not unnamed:
            return
        things = list(self._unreached())[::-1]
        held = {id(other) for thing in things for other in referents(thing)}
        # Every object that is left has a referrer, and none but those that are left: they are in cycles.
        garbage = (set(map(id, things)) | unnamed) & held
        garbage -= {id(link.to) for _, link in self.links_breadth_first(self.found.keys() - garbage, garbage)}
        self.garbage = frozenset(garbage & unnamed)
        for thing in sorted(things, key=lambda thing: (is_bare(thing), id(thing) in held)):
            if id(thing) not in self._roots_of:
                is_function = type(thing) is FunctionType
                self._follow(self.links_of(thing) if is_function else [_type_link(thing)], 1)

    def _follow_constants(self) -> None:
        """Follow paths from the jaxprs in JAX's caches to arrays that no name leads to.

        A jitted function captures the arrays that it reads from a closure or from an object. Its programs
        keep them, even if the closure or the object has another array now.
        """
        for thing in list(self.found.values()):
            traced = None if self.is_late() else traced_constants(thing)
            if traced is not None:
                function, constants = traced
                unnamed = [array for array in constants if not self._paths.get(id(array), True)]
                links = [Link(f"constant of {function}", array, "scope") for array in unnamed]
                self._follow(links, 1)

    def links_from(self, key: int) -> list[Link]:
        """Return the links of an object found, and none after the time limit."""
        if self.is_late():
            self.is_complete = False
            return []
        return self.links_of(self.found[key])

    def links_breadth_first(
        self, starts: Collection[int], inside: Container[int]
    ) -> Iterator[tuple[int, Link]]:
        """Yield ``(id of the object, link)`` for all links of the starts and of the objects they reach.

        Only objects in ``inside`` are expanded.
        """
        queue, seen = deque(starts), set(starts)
        while queue:
            key = queue.popleft()
            for link in self.links_from(key):
                yield key, link
                if id(link.to) in inside and id(link.to) not in seen:
                    seen.add(id(link.to))
                    queue.append(id(link.to))

    def _unreached(self) -> Iterable[Any]:
        for key, thing in list(self.found.items()):
            is_open = key not in self._roots_of and key not in self.array_ids and key not in self._ends
            if is_open and not self.is_late() and _owner(thing) != Owner.MACHINERY:
                yield thing

    def _follow(self, roots: Iterable[Link], most: int) -> None:
        """Follow links from some roots, breadth first, with at most ``most`` paths to each object."""
        # A recursive function has the same variables in each of its frames.
        named = {(link.name, id(link.to)): link for link in roots if id(link.to) in self.found}
        queue = deque(Path((link,), next(self._root_numbers)) for link in named.values())
        while queue:
            path = queue.popleft()
            thing = path.links[-1].to
            key = id(thing)
            texts = self._paths.get(key)
            if texts is not None and len(texts) < most:
                texts[path.text()] = None
            # The shards of an array are named by the first path to it.
            is_end = texts is not None and (key not in self._bases or key in self._roots_of)
            known = self._roots_of.get(key, ())
            if is_end or key in self._ends or len(known) >= most or path.root in known:
                continue
            self._roots_of.setdefault(key, set()).add(path.root)
            if len(path.links) > _DEEPEST or self.is_late():
                self.is_complete = False
            else:
                queue += (Path((*path.links, link), path.root) for link in self.links_of(thing))


def _type_link(thing: Any) -> Link:
    """Return the link at which the path of an unnamed object begins: its type."""
    return Link(type_name(type(thing)), thing, "type")


def _is_named(thing: Any, text: str) -> bool:
    """Return whether a function has the name of the variable at the end of a text."""
    return type(thing) is FunctionType and re.split(r"[ .]", text)[-1] == word(thing.__name__)


def _owner(thing: Any) -> Owner:
    # A context variable does not record which module set it, so it counts as the user's.
    return Owner.USER if issubclass(type(thing), CONTEXTS) else owner_of(module_of(thing))
