"""Reference paths from names to live arrays, found from what the garbage collector knows.

All objects are asked which of them hold the arrays, and who holds these, up to the names of modules, of
running functions, closures and classes; then the shortest ways back from those names are written down.
"""

from __future__ import annotations

import gc
import itertools
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import pairwise
from time import monotonic
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ..arrays.views import bases_of_views
from ..compat import module_names
from ..errors import SearchError
from .frame_locals import copied_items
from .heap import all_holders, listed_heap, near
from .links import Link, Reader
from .names import CONTEXTS, begins_paths, is_bare, leads_everywhere, module_of, type_name, word
from .scopes import Owner, owner_of, running_scopes

MOST_HOLDERS = 5
"""How many holders are told of an array."""

OnProgress = Callable[[float], None]
"""Called again and again while a search runs, with the seconds that it has taken so far."""

_DEEPEST = 40
_SEARCHING = 0.8
"""The part of the time that goes into the search; the rest is for the names."""


class Holders(NamedTuple):
    """Who holds some arrays."""

    paths: dict[int, tuple[str, ...]]
    """Of each array by its ``id``: the paths to it, the user's first, then the shorter ones; none where
    nothing was found."""

    is_complete: bool
    """Whether that is all; otherwise the time was up, or a path was too long."""


class Way(NamedTuple):
    """A way from a name to an object."""

    links: tuple[Link, ...]
    """Its links, that from the name first."""
    root: int
    """The number of the name."""

    def text(self) -> str:
        """Return it as ``train.state.params['w']``."""
        links = self.links
        # What has no names goes by its type: where it is called by that already, that is said once.
        is_said = links[0].kind == "type" and links[1].kind == "opaque"
        root = text = links[0].text()
        for before, link in pairwise(links[is_said:]):
            if link.kind != "scope":
                text += link.text()
            # So is the name of a function that a variable of this name holds.
            elif text == root and _is_named(before.to, root):
                text = link.text()
            else:
                text += f" → {link.text()}"
        return text


def find_holders(
    arrays: Sequence[Any], *, max_seconds: float | None = 5.0, on_progress: OnProgress | None = None
) -> Holders:
    """Return who holds arrays, each named by at most ``MOST_HOLDERS`` paths.

    Names are those of modules (``train.state.params['w']``; a script goes by the name of its file),
    variables of functions that run in any thread (``main() local batch``), closures
    (``closure of make_step.<locals>.step: params``), suspended generators and coroutines
    (``generator prefetch local batch``), classes (``Trainer.cache[3]``), and classes of objects that no
    name leads to. What JAX and this package hold themselves is no holder. No code of the user's is run.

    Args:
        arrays: The arrays; that sequence is not taken for a holder.
        max_seconds: After how many seconds to return what was found so far; None for no bound.
        on_progress: Called while the search runs, with the seconds so far.

    Raises:
        SearchError: (a ValueError) ``max_seconds`` is no number of seconds.
    """
    with closing(Search(arrays, max_seconds, on_progress)) as search:
        return Holders(search.paths(), search.is_complete)


def checked_seconds(max_seconds: Any) -> float:
    """Return a number of seconds that makes sense."""
    if max_seconds is None:
        return math.inf
    is_number = isinstance(max_seconds, int | float) and not isinstance(max_seconds, bool)
    if not is_number or not max_seconds >= 0:
        raise SearchError(
            f"max_seconds must be a number of seconds, 0 or more, or None for no limit; got {max_seconds!r}"
        )
    return float(max_seconds)


class Search:
    """A search for the holders of arrays; everything that it has found lives as long as it does."""

    def __init__(
        self, arrays: Sequence[Any], max_seconds: float | None, on_progress: OnProgress | None = None
    ) -> None:
        self._start, self._seconds = monotonic(), checked_seconds(max_seconds)
        self._on_progress = on_progress
        # First: what is made from here on is no holder.
        heap = listed_heap()
        self.array_ids = set(map(id, arrays))
        self._bases = set(map(id, bases_of_views(arrays).values()))
        self.scopes = running_scopes()
        # First what is near to the user's names: where the time is up soon, it has paths already.
        heap.objects[:0] = self._near()
        # An object that the garbage collector is about to free, or has put aside, is not in its lists.
        heap.objects.extend(link.to for _, link in self.scopes.variables if gc.is_tracked(link.to))
        self._reader = Reader()
        self._links: dict[int, list[Link]] = {}
        self._roots_of: dict[int, set[int]] = {}
        self._paths: dict[int, dict[str, None]] = {key: {} for key in self.array_ids}
        self._root_numbers = itertools.count()
        self.found, is_complete = all_holders(
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
        """Let go of everything: what was found may hold this search, by the frame of who runs it."""
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
            self._spread(self._names_of(owner), MOST_HOLDERS)
        self._spread_nameless()
        self._spread(self._bare(), 1)
        return {key: tuple(paths) for key, paths in self._paths.items()}

    def is_late(self, part: float = 1.0) -> bool:
        """Return whether that part of the time is up."""
        seconds = monotonic() - self._start
        if self._on_progress is not None:
            self._on_progress(seconds)
        return seconds > self._seconds * part

    def _near(self) -> list[Any]:
        """Return what the variables of the user's running functions and of the program lead to."""
        values = [link.to for owner, link in self.scopes.variables if owner == Owner.USER]
        program = sys.modules.get("__main__")
        if issubclass(type(program), ModuleType):
            values += (value for _, value in copied_items(module_names(program)))
        namespaces = self.scopes.namespaces
        return near(values, is_end=lambda thing: id(thing) in namespaces or leads_everywhere(thing))

    def _is_end(self, thing: Any) -> bool:
        return id(thing) in self.scopes.namespaces or begins_paths(thing)

    def links_of(self, thing: Any) -> list[Link]:
        """Return the links of an object to what was found."""
        if id(thing) not in self._links:
            links = self._reader.links(thing, self.found)
            if type(thing) is FunctionType and _owner(thing) == Owner.MACHINERY:
                # What JAX makes of a function, or keeps for the way back, is no step.
                links = [link._replace(kind="inside") for link in links]
            self._links[id(thing)] = links
        return self._links[id(thing)]

    def _names_of(self, owner: Owner) -> Iterable[Link]:
        """Yield the names of an owner's that lead to what was found."""
        yield from (link for whose, link in self.scopes.variables if whose == owner)
        for key in self._ends - self.scopes.namespaces.keys():
            if _owner(self.found[key]) == owner:
                yield from self.links_of(self.found[key])
        for key, namespace in self.scopes.namespaces.items():
            # When the time is up, a namespace may have names though the search has not come to it.
            if namespace.owner == owner and (key in self._ends or not self.is_complete):
                yield from namespace.links(self.found)

    def _spread_nameless(self) -> None:
        """Name the objects to which no name leads by type: garbage in a cycle, what only C holds.

        Those found last come first, as the others may be parts of them.
        """
        for thing in reversed(list(self._unreached())):
            if id(thing) not in self._roots_of and not is_bare(thing):
                is_function = type(thing) is FunctionType
                self._spread(self.links_of(thing) if is_function else [_typed(thing)], 1)

    def _bare(self) -> Iterable[Link]:
        """Yield lists and the like to which nothing leads at all: they say little, so they come last."""
        things = list(self._unreached())
        held = {id(link.to) for thing in things for link in self.links_of(thing)}
        for thing in things:
            if is_bare(thing) and id(thing) not in held:
                yield _typed(thing)

    def _unreached(self) -> Iterable[Any]:
        for key, thing in list(self.found.items()):
            is_open = key not in self._roots_of and key not in self.array_ids and key not in self._ends
            if is_open and not self.is_late() and _owner(thing) != Owner.MACHINERY:
                yield thing

    def _spread(self, roots: Iterable[Link], most: int) -> None:
        """Follow links from some names, the shortest ways first; to each object lead so many ways."""
        # Functions that call themselves have the same variables many times.
        named = {(link.name, id(link.to)): link for link in roots if id(link.to) in self.found}
        queue = deque(Way((link,), next(self._root_numbers)) for link in named.values())
        while queue:
            way = queue.popleft()
            thing = way.links[-1].to
            key = id(thing)
            paths = self._paths.get(key)
            if paths is not None and len(paths) < most:
                paths[way.text()] = None
            # The shards of an array go by its first name.
            is_end = paths is not None and (key not in self._bases or key in self._roots_of)
            known = self._roots_of.get(key, ())
            if is_end or key in self._ends or len(known) >= most or way.root in known:
                continue
            self._roots_of.setdefault(key, set()).add(way.root)
            if len(way.links) > _DEEPEST or self.is_late():
                self.is_complete = False
            else:
                queue += (Way((*way.links, link), way.root) for link in self.links_of(thing))


def _typed(thing: Any) -> Link:
    """Return the way to an object that has no name: its type."""
    return Link(type_name(type(thing)), thing, "type")


def _is_named(thing: Any, text: str) -> bool:
    """Return whether a function is called as the variable at the end of a text."""
    return type(thing) is FunctionType and re.split(r"[ .]", text)[-1] == word(thing.__name__)


def _owner(thing: Any) -> Owner:
    # Who sets a context variable is not known: it is told with the user's own.
    return Owner.USER if issubclass(type(thing), CONTEXTS) else owner_of(module_of(thing))
