"""Reference paths from names to live arrays, found with the garbage collector.

The search collects the direct and indirect referrers of the arrays, up to the variables of modules, running
functions, closures and classes. Then it goes from these names back to the arrays, breadth first, so that the
first path to an array is the shortest.
"""

from __future__ import annotations

import enum
import gc
import math
import operator
import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain, compress, repeat
from time import monotonic
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

from ...base.config import config
from ...base.errors import SearchError
from ...compat.compiled_calls import traced_constants
from ...compat.jax_stack import frames, stacks_of_other_threads
from ...compat.jitted import module_names, referents, referents_of_each
from ..labels import bases_of_views
from ..origins.origins import HIDDEN_MODULES, JAX_MODULES, OUR_MODULES
from .links import (
    CONTEXTS,
    Link,
    Reader,
    begins_paths,
    copied_items,
    frame_locals,
    frame_names,
    is_module_body,
    is_traced,
    module_of,
    name_in,
    type_name,
    word,
)

_CHUNK = 128
_MOST_NEAR = 50_000
_NOTEBOOKS = ("IPython", "ipykernel")
"""Modules that run the cells of a notebook."""


class Owner(enum.IntEnum):
    """The owner of a variable. Reference paths are searched in this order."""

    USER = 0
    LIBRARY = 1
    """The standard library, the modules that run a notebook, or a hidden module."""
    MACHINERY = 2
    """JAX or this package. They do not count as referrers."""


def owner_of(module: str | None) -> Owner:
    """Return the owner of a module by its name; ``USER`` for a module without a name."""
    if module is None or module == "__main__":
        return Owner.USER
    top = module.partition(".")[0]
    if top in (*JAX_MODULES, *OUR_MODULES):
        return Owner.MACHINERY
    hidden = (*HIDDEN_MODULES, *_NOTEBOOKS, *config.hidden_modules)
    if top in sys.stdlib_module_names or f"{module}.".startswith(tuple(f"{name}." for name in hidden)):
        return Owner.LIBRARY
    return Owner.USER


class Namespace(NamedTuple):
    """The variables of a module, or of code run by ``exec``."""

    names: dict[Any, Any]
    """The variables by name: the dict itself."""

    label: str
    """The first part of a reference path: ``train`` for the script ``train.py``, empty in a session without
    a file."""

    owner: Owner
    """The owner of the module."""

    def links(self, among: Collection[int]) -> Iterator[Link]:
        """Yield the links to the objects with the given ids."""
        before = f"{self.label}." if self.label else ""
        for name, value in copied_items(self.names):
            if id(value) in among:
                yield Link(f"{before}{word(name)}", value, True)


class Scopes:
    """The namespaces by id, and the variables of the running functions of all threads."""

    def __init__(self) -> None:
        self.namespaces: dict[int, Namespace] = {}
        self.variables: list[tuple[Owner, Link]] = []
        self.is_complete = True
        """Whether the variables of all running functions could be read."""
        for name, module in list(sys.modules.items()):
            if issubclass(type(module), ModuleType):
                self._add(module_names(module), word(name), word(name))
        self._add_stack(frames(), "", is_of_this_thread=True)
        names = _thread_names()
        for ident, stack in stacks_of_other_threads():
            self._add_stack(stack, names.get(ident, f"thread {ident}: "), is_of_this_thread=False)

    def _add(self, names: Any, label: str, module: str | None) -> None:
        if issubclass(type(names), dict) and id(names) not in self.namespaces:
            self.namespaces[id(names)] = Namespace(names, _label(names, label), owner_of(module))

    def _add_stack(self, stack: Iterator[FrameType], prefix: str, *, is_of_this_thread: bool) -> None:
        """Add the variables of a thread's running functions, with a prefix before each name.

        Args:
            stack: The frames of the thread, the innermost first.
            prefix: The text before their names, such as ``thread loader: ``.
            is_of_this_thread: Whether it is the current thread.
        """
        is_watched = False
        for frame in stack:
            module, is_of_module = name_in(frame.f_globals), id(frame.f_globals) in self.namespaces
            # Code run by exec may set any __name__, so its label does not use it.
            self._add(frame.f_globals, "__main__", module)
            is_body, owner = is_module_body(frame), owner_of(module)
            # The dict that exec works on may be the f_locals of the calling function.
            is_exec = frame.f_code.co_name == "<module>" and not (is_body and is_of_module)
            is_watched = is_watched or is_exec or is_traced(frame, is_of_this_thread=is_of_this_thread)
            if is_body or owner == Owner.MACHINERY:
                continue
            variables = frame_locals(frame, is_watched=is_watched)
            self.is_complete = self.is_complete and variables is not None
            for name, value in frame_names(frame, variables):
                self.variables.append((owner, Link(f"{prefix}{name}", value, True)))


def _thread_names() -> dict[Any, str]:
    """Return the prefix of the variables of each thread's functions, by the thread's ident."""
    reader, names = Reader(), dict[Any, str]()
    for thread in threading.enumerate():
        # A Thread subclass may override properties with user code.
        kept = {word(name): value for name, value in reader.attributes(thread)}
        is_main = thread is threading.main_thread()
        names[kept.get("_ident")] = "" if is_main else f"thread {word(kept.get('_name'))}: "
    return names


def _label(names: dict[Any, Any], module: str) -> str:
    if module != "__main__":
        return module
    file = dict.get(names, "__file__")
    stem = os.path.splitext(os.path.basename(word(file)))[0] if type(file) is str else ""
    return word(dict.get(names, "__package__") or stem) if stem == "__main__" else stem


OnProgress = Callable[[float], None]
"""Called repeatedly while a search runs, with the seconds since its start."""

_MOST_LINKS = 40
_SEARCHING = 0.8
"""The part of the time limit for finding the referrers. The rest is for the paths."""


class Holders(NamedTuple):
    """What refers to some arrays, by their ``id``."""

    paths: dict[int, str]
    """One path to each array, the shortest that begins at a name of the user, else the shortest of all; in
    this order. Arrays without a referrer that can be named are missing."""

    is_complete: bool
    """Whether this is all. False after the time limit, where a path is too long to be followed, or where
    the variables of a running function could not be read."""

    garbage: frozenset[int] = frozenset()
    """The ids of the arrays that only reference cycles keep alive; empty if the search is incomplete."""


def find_holders(
    arrays: Sequence[Any], *, max_seconds: float | None = 5.0, on_progress: OnProgress | None = None
) -> Holders:
    """Return the shortest reference path to each array.

    Paths begin at variables of modules (``train.state.params['w']``; a script has the name of its file), of
    running functions in any thread (``main() local batch``), of closures
    (``closure of make_step.<locals>.step: params``), of suspended generators and coroutines
    (``generator prefetch local batch``), and of classes (``Trainer.cache[3]``). An object that only C holds
    is named by its class. JAX and this package do not count as referrers. No user code is run.

    Args:
        arrays: The arrays. This sequence itself does not count as a referrer.
        max_seconds: The time limit in seconds; None for no limit. After it, returns the paths found so far.
        on_progress: Called while the search runs, with the seconds since its start.

    Raises:
        SearchError: (a ValueError) If ``max_seconds`` is negative or not a number.
    """
    with closing(_Search(arrays, max_seconds, on_progress)) as search:
        return search.holders()


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


class _Search:
    """A search for the referrers of arrays. It keeps the objects that it finds alive until ``close()``."""

    def __init__(
        self, arrays: Sequence[Any], max_seconds: float | None, on_progress: OnProgress | None
    ) -> None:
        self._start, self._seconds = monotonic(), checked_seconds(max_seconds)
        self._on_progress = on_progress
        # First of all, so that the objects created below do not count as referrers.
        heap = _listed_heap()
        self._array_ids = set(map(id, arrays))
        self._bases = set(map(id, bases_of_views(arrays).values()))
        self._scopes = Scopes()
        # Objects close to the user's names come first, so that a short time limit still yields paths.
        heap[:0] = self._near()
        # gc.get_objects() does not list objects that are being collected.
        heap.extend(link.to for _, link in self._scopes.variables if gc.is_tracked(link.to))
        self._reader = Reader()
        self._found, is_complete = _all_referrers(
            arrays, heap, ignored={id(arrays)}, is_end=self._is_end, is_late=lambda: self._is_late(_SEARCHING)
        )
        heap.clear()
        self._is_complete = is_complete and self._scopes.is_complete
        self._reached = set[int]()
        self._paths: dict[int, str] = {}

    def close(self) -> None:
        """Drop all references. A found frame may refer to this search, which would make a cycle."""
        for things in (self._found, self._scopes.namespaces, self._scopes.variables):
            things.clear()

    def holders(self) -> Holders:
        """Return the path to each array, and the arrays to which nothing but garbage leads."""
        for owner in (Owner.USER, Owner.LIBRARY):
            self._follow(self._names_of(owner))
        self._follow(self._constants())
        tops = self._tops()
        self._follow(_type_link(thing) for thing in tops if _owner(thing) != Owner.MACHINERY)
        paths = dict(self._paths)
        # JAX names no array, but what it holds is no garbage.
        self._follow(chain(self._names_of(Owner.MACHINERY), map(_type_link, tops)))
        # Every object that is left has a referrer, and none but those that are left: they are in cycles.
        garbage = {id(held) for thing in self._unreached() for held in referents(thing)} & self._array_ids
        is_known = self._is_complete
        return Holders(paths, is_known, frozenset(garbage - self._reached if is_known else ()))

    def _is_late(self, part: float = 1.0) -> bool:
        """Return whether the given part of the time limit has passed, and report progress."""
        seconds = monotonic() - self._start
        if self._on_progress is not None:
            self._on_progress(seconds)
        return seconds > self._seconds * part

    def _near(self) -> list[Any]:
        """Return the objects close to the variables of ``__main__`` and of the user's running functions."""
        values = [link.to for owner, link in self._scopes.variables if owner == Owner.USER]
        program = sys.modules.get("__main__")
        if issubclass(type(program), ModuleType):
            values += (value for _, value in copied_items(module_names(program)))
        namespaces = self._scopes.namespaces
        # Classes and modules lead to most other objects.
        ends = (type, ModuleType)
        return _near(values, is_end=lambda thing: id(thing) in namespaces or issubclass(type(thing), ends))

    def _is_end(self, thing: Any) -> bool:
        return id(thing) in self._scopes.namespaces or begins_paths(thing)

    def _names_of(self, owner: Owner) -> Iterator[Link]:
        """Yield links from the names of an owner to the objects found."""
        yield from (link for other, link in self._scopes.variables if other == owner)
        for key, thing in self._found.items():
            if key not in self._scopes.namespaces and begins_paths(thing) and _owner(thing) == owner:
                yield from self._reader.links(thing, self._found)
        # A search that hit its time limit may not have reached a namespace that holds an object found.
        for namespace in self._scopes.namespaces.values():
            if namespace.owner == owner:
                yield from namespace.links(self._found)

    def _constants(self) -> Iterator[Link]:
        """Yield links from the jaxprs in JAX's caches to arrays that they captured.

        A jitted function captures the arrays that it reads from a closure or from an object. Its programs
        keep them, even if the closure or the object has another array now.
        """
        for thing in self._found.values():
            traced = traced_constants(thing)
            if traced is not None:
                function, constants = traced
                yield from (Link(f"constant of {function}", array) for array in constants)

    def _unreached(self) -> list[Any]:
        """Return the objects that no path has reached yet, those found last first."""
        known = self._reached | self._array_ids
        things = [thing for key, thing in self._found.items() if key not in known]
        return [thing for thing in reversed(things) if not self._is_end(thing)]

    def _tops(self) -> list[Any]:
        """Return the unreached objects that no other one refers to: only C does."""
        things = self._unreached()
        held = {id(held) for thing in things for held in referents(thing)}
        return [thing for thing in things if id(thing) not in held]

    def _links_of(self, thing: Any) -> list[Link]:
        """Return the links of an object to the objects found; none after the time limit."""
        if self._is_late():
            self._is_complete = False
            return []
        links = self._reader.links(thing, self._found)
        if type(thing) is FunctionType and _owner(thing) == Owner.MACHINERY:
            # A wrapper that JAX made, or the backward pass of a vjp, adds no step to a path.
            return [Link("", link.to) for link in links]
        return links

    def _follow(self, roots: Iterable[Link]) -> None:
        """Follow links breadth first from those roots that are objects found, and add the paths to arrays."""
        level = [(link.text, link.to) for link in roots if id(link.to) in self._found]
        names = {path for path, _ in level}
        for _ in range(_MOST_LINKS):
            deeper: list[tuple[str, Any]] = []
            for path, thing in level:
                key = id(thing)
                if key in self._reached or self._is_end(thing):
                    continue
                self._reached.add(key)
                if key in self._array_ids:
                    self._paths[key] = path
                # The shards of an array are named by the path to it.
                if key not in self._array_ids or key in self._bases:
                    # The own name of a function is enough where a variable has the same name.
                    before = "" if path in names and _is_named(thing, path) else path
                    deeper += ((link.after(before), link.to) for link in self._links_of(thing))
            level = deeper
        self._is_complete = self._is_complete and not level


def _type_link(thing: Any) -> Link:
    """Return the link at which the path of an unnamed object begins: its type, unless it has variables."""
    has_variables = type(thing) is FunctionType or type(thing) is FrameType
    return Link("" if has_variables else type_name(type(thing)), thing)


def _is_named(thing: Any, path: str) -> bool:
    """Return whether a function of the user has the name of the variable at the end of a path."""
    is_function = type(thing) is FunctionType and _owner(thing) != Owner.MACHINERY
    return is_function and re.split(r"[ .]", path)[-1] == word(thing.__name__)


def _owner(thing: Any) -> Owner:
    # A context variable does not record which module set it, so it counts as the user's.
    return Owner.USER if issubclass(type(thing), CONTEXTS) else owner_of(module_of(thing))


# The heap. Reading the referents of many objects in one call is about ten times faster than one call per
# object. So objects are read in chunks, and only a chunk that refers to a target is searched by object.


def _all_referrers(
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
        heap: The objects that may refer to them, as listed by ``_listed_heap``; some may be listed twice.
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


def _near(roots: Iterable[Any], *, is_end: Callable[[Any], bool]) -> list[Any]:
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


def _listed_heap() -> list[Any]:
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
