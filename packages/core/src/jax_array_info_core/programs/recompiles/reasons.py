"""Reasons of a compilation: the differences between a compiled call and the nearest earlier one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from ...base.grouping import by_key
from ...base.text import printable, shape_text
from ...compat.jax_stack import SETTINGS, ContextValue
from ...geometry.layouts.spec import other_types
from .signatures import COMPILER_OPTION, CallLeaf, SharedOver, Signature, Tree
from .statics import Part, Static

FIRST = {
    "call": "first in the block",
    "pmap": "first in the block",
    "ahead of time": "first in the block, by lower().compile()",
    "transformed": "first in the block under a transformation such as grad or vmap",
    "unknown": "first in the block",
}
COMPILED_BEFORE = "; compiled before it"
ANOTHER_FUNCTION = "another function object of the same line: jit it once, outside of the loop"
OTHER_CODE = "another function of the same line"
OTHER_VALUES = "another function object of the same line, with other bound values: {}"
ARRAY = "another array"
AS_ARGUMENT = "; pass it as an argument"
AS_ARGUMENTS = "; pass them as arguments"
ONCE = "; make it once, outside the loop"
NOTHING_DIFFERS_AHEAD = (
    "no input and no compiler option differs: lowered from another function object or with other options of "
    "jit, or JAX had discarded the program, as jax.clear_caches() does"
)
NOTHING_DIFFERS = (
    "nothing visible differs: JAX had discarded the program, as jax.clear_caches() does, "
    "or a setting changed that is not compared"
)
EQUAL_HASH = ", or a static {} of equal hash differs"
UNREADABLE = "the call could not be read"
NO_INPUT_DIFFERS = "the inputs are alike: another transformation, or a function that was traced again"
MOST_EARLIER = 256
"""Maximum number of calls of a group that are kept."""
_MOST_COMPARED = 64
_MOST_SHOWN = 3
_MOST_PATHS = 2
_IS = " is "
"""Separator of a difference that only one call has."""


class Difference(NamedTuple):
    """One difference between two calls."""

    path: str
    text: str
    separator: str = ": "


def group_of(signature: Signature) -> Hashable:
    """Return a value that is equal for the calls that are compared with each other."""
    # Grad and vmap add inputs to a program.
    inputs = frozenset(signature.leaves) if signature.kind == "transformed" else None
    return signature.kind, signature.group, inputs


def reason_of(signature: Signature, earlier: Sequence[Signature]) -> str:
    """Return what differs from the nearest of the earlier calls, the latest of equally near ones.

    Args:
        signature: The compiled call.
        earlier: Earlier calls of its group, the latest last.
    """
    if not earlier:
        return FIRST[signature.kind]
    alike = [
        call for call in earlier if signature.kind == "transformed" or call.functions == signature.functions
    ]
    if not alike:
        return _of_functions(signature, earlier)
    pairs = ((list(_differences(call, signature)), call) for call in reversed(alike[-_MOST_COMPARED:]))
    nearest, equal = min(pairs, key=lambda pair: _distance(pair[0]))
    nearest = nearest or list(_renamed(equal, signature))
    if nearest:
        return printable(_differences_text(nearest))
    others = {"transformed": NO_INPUT_DIFFERS, "ahead of time": NOTHING_DIFFERS_AHEAD}
    return others.get(signature.kind, NOTHING_DIFFERS + _of_hashes(signature))


def _of_hashes(signature: Signature) -> str:
    """Return the words for static values that only a hash stands for, if there are any."""
    fields = [static for tree in signature.trees.values() for _, static in tree.nodes]
    for noun, statics in (("argument", signature.statics.values()), ("field", fields)):
        if any(_is_hashed_only(static.root) for static in statics):
            return EQUAL_HASH.format(noun)
    return ""


def _is_hashed_only(part: Part) -> bool:
    return part.is_hashed_only or any(map(_is_hashed_only, part.parts.values()))


def _distance(differences: Sequence[Difference]) -> tuple[int, int, int]:
    """Return the numbers of arguments that differ, of those that only one call has, and of differences."""
    only_one = [difference for difference in differences if difference.separator == _IS]
    return len({difference.path for difference in differences}), len(only_one), len(differences)


def _of_functions(signature: Signature, earlier: Sequence[Signature]) -> str:
    """Return what tells a function object from the earlier ones of the same line."""
    alike = [call for call in earlier if call.codes == signature.codes]
    if not alike:
        return OTHER_CODE
    nearest = min((list(_bound(call, signature)) for call in reversed(alike[-_MOST_COMPARED:])), key=len)
    if not nearest:
        return ANOTHER_FUNCTION
    words = _differences_text([one._replace(separator=_separator(one)) for one in nearest])
    are_values = any(
        difference.separator == " " or difference.text.startswith(ARRAY) for difference in nearest
    )
    return printable(OTHER_VALUES.format(words) + (AS_ARGUMENTS if are_values else ""))


def _bound(old: Signature, new: Signature) -> Iterator[Difference]:
    for number, after in new.bound.parts.items():
        yield from _of_parts(old.bound.parts.get(number), after)


def _differences_text(differences: Sequence[Difference]) -> str:
    """Return the differences in one line, with the paths that differ alike together."""
    alike = by_key(((separator, text), path) for path, text, separator in differences)
    of_paths = by_key(
        (_several(paths) + (" are " if separator == _IS and len(paths) > 1 else separator), text)
        for (separator, text), paths in alike.items()
    )
    parts = [paths + ", ".join(texts) for paths, texts in of_paths.items()]
    hidden = len(parts) - _MOST_SHOWN
    more = [f"{hidden} more difference{'s' if hidden > 1 else ''}"] if hidden > 0 else []
    return "; ".join([*parts[:_MOST_SHOWN], *more])


def _several(paths: Sequence[str]) -> str:
    hidden = len(paths) - _MOST_PATHS
    return ", ".join(paths[:_MOST_PATHS]) + (f" and {hidden} more" if hidden > 0 else "")


def _differences(old: Signature, new: Signature) -> Iterator[Difference]:
    """Yield the differences for which JAX compiles."""
    for name in {**old.context, **new.context}:
        yield from _of_contexts(name, old.context.get(name), new.context.get(name))
    yield from _of_trees(old, new)
    for path, leaf in new.leaves.items():
        before = old.leaves.get(path)
        if before is not None and before != leaf:
            yield from (Difference(path, text) for text in _of_leaves(before, leaf))
    for name in {**old.statics, **new.statics}:
        for text in _of_statics(old.statics.get(name), new.statics.get(name)):
            yield Difference(f"static argument {name}", text)
    for name in sorted(set(old.keywords).symmetric_difference(new.keywords)):
        if _has(old, name) and _has(new, name):
            forms = "name", "position"
            before_form, form = forms if name in old.keywords else forms[::-1]
            yield Difference(name, f"passed by {before_form} became passed by {form}")


def _has(signature: Signature, argument: str) -> bool:
    return argument in signature.statics or argument in signature.trees


def _of_trees(old: Signature, new: Signature) -> Iterator[Difference]:
    added = [path for path in new.leaves if path not in old.leaves]
    removed = [path for path in old.leaves if path not in new.leaves]
    # None has no leaf for JAX, so it changes the structure too.
    changed = {
        _argument(new, path)
        for path, leaf in new.leaves.items()
        if path in old.leaves and (leaf.shape is None) != (old.leaves[path].shape is None)
    }
    for paths, signature, state in ((added, new, "new"), (removed, old, "gone")):
        for path in paths:
            root = _argument(signature, path)
            changed.add(root)
            yield Difference(path, state + ("" if path == root else f" in the tree of {root}"), _IS)
    for name, tree in new.trees.items():
        before = old.trees.get(name)
        if before is not None and before != tree and name not in changed:
            yield from (Difference(f"the tree of {name}", text) for text in _of_structures(before, tree))


def _argument(signature: Signature, path: str) -> str:
    """Return the argument that a path begins with. Its name may contain slashes."""
    return next((name for name in signature.trees if path == name or path.startswith(f"{name}/")), path)


def _of_structures(old: Tree, new: Tree) -> Iterator[str]:
    classes, before = [[kind for kind, _ in tree.nodes] for tree in (new, old)]
    if classes != before or old.nodes == new.nodes:
        yield "other classes of nodes"
        return
    for (kind, static), (_, other) in zip(old.nodes, new.nodes, strict=True):
        texts = list(_of_statics(static, other))
        hidden = len(texts) - 1
        if texts:
            # A field that was added moves those after it.
            yield f"static field of {kind}, {texts[0]}" + (f", and {hidden} more" if hidden else "")


def _of_leaves(old: CallLeaf, new: CallLeaf) -> Iterator[str]:
    if old.shape is None or new.shape is None:
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            yield f"{_type(old)} became {_type(new)}"
        return
    for name, before, after in (
        ("shape", shape_text(old.shape), shape_text(new.shape)),
        ("dtype", old.dtype, new.dtype),
        ("weak_type", old.weak_type, new.weak_type),
    ):
        if before != after:
            yield f"{name} {before} became {after}"
    if old.is_committed != new.is_committed:
        yield f"{_commitment(old)} became {_commitment(new)}"
    elif old.sharding and new.sharding and old.sharding != new.sharding:
        if len(old.shape) != len(new.shape) or None in (old.sharding.layout, new.sharding.layout):
            differs = old.sharding.text != new.sharding.text
        else:
            differs = old.sharding.layout != new.sharding.layout
        if differs:
            yield _became(old.sharding, new.sharding)
        axes, other_axes = old.sharding.axes, new.sharding.axes
        if axes and other_axes and other_types(axes, other_axes):
            yield f"axis types {axes.types_text} became {other_axes.types_text}"


def _became(old: SharedOver, new: SharedOver) -> str:
    if old.text != new.text:
        return f"sharding {old.text} became {new.text}"
    if old.mesh != new.mesh:
        return f"sharding {old.text} over {old.mesh} became over {new.mesh}"
    if old.devices != new.devices:
        return f"on {old.devices} became on {new.devices}"
    return f"sharding {old.text} has the same devices in another order"


def _commitment(leaf: CallLeaf) -> str:
    if not leaf.is_committed:
        return "uncommitted"
    return "committed" if leaf.sharding is None else f"committed to {leaf.sharding.text}"


def _type(leaf: CallLeaf) -> str:
    return leaf.dtype if leaf.shape is None else f"{leaf.dtype}{shape_text(leaf.shape)}"


def _of_statics(old: Static | None, new: Static | None) -> Iterator[str]:
    if old is None or new is None:
        before, after = ("not passed" if static is None else static.root.text for static in (old, new))
        yield f"{before} became {after}"
    elif old.kind != new.kind:
        yield f"{old.root.text} became {new.root.text}"
    elif old != new:
        is_equal = old.key is not None and old.key == new.key
        differences = list(_of_parts(old.root, new.root, is_equal=is_equal))
        yield from map(_in_static, differences)
        if not (differences or is_equal):
            yield f"another value that looks alike, {new.root.text}"


def _in_static(difference: Difference) -> str:
    """Return the words for a difference in a static value: items have a noun, as their paths are numbers."""
    path, text, separator = difference
    if not path:
        return text
    is_item = path[0].isdecimal()
    noun = "item " if is_item else "field " if separator == ": " else ""
    return f"{noun}{path}{': ' if is_item else _separator(difference)}{text}"


def _separator(difference: Difference) -> str:
    """Return what stands after the path of a value: a colon after a number, which would read as a value."""
    return ": " if difference.path.rpartition("/")[2].isdecimal() else difference.separator


def _of_parts(old: Part | None, new: Part | None, *, is_equal: bool = False) -> Iterator[Difference]:
    """Yield the first values that differ in two values, by path; the separator of another object is a colon.

    Args:
        old: The earlier value; None if it is not there.
        new: The later one.
        is_equal: Whether JAX takes them as equal: then only texts are compared.
    """
    if old is None or new is None or old.text != new.text:
        before, after = (part.text if part else "nothing" for part in (old, new))
        yield Difference("", f"{before} became {after}", " ")
        return
    inner = (
        part._replace(path=f"{name}/{part.path}" if part.path else name)
        for name in {**old.parts, **new.parts}
        for part in _of_parts(old.parts.get(name), new.parts.get(name), is_equal=is_equal)
    )
    if old.key == new.key or is_equal:
        yield from inner
    else:
        yield Difference("", _another(old, new, next(inner, None)))


def _another(old: Part, new: Part, inner: Difference | None) -> str:
    """Return the words for another object of the same text, with the first value in it that differs."""
    if new.kind == "array":
        return f"{ARRAY}, {new.text}"
    if new.kind == "value":
        words = f"another value that looks alike, {new.text}"
        return words if inner is None else f"{words}, with {inner.path}{_separator(inner)}{inner.text}"
    if old.place != new.place:
        return f"the {new.kind} of {old.place} became that of {new.place}"
    words = f"another {new.kind} of the same line {new.place}" if new.place else f"another {new.text}"
    if old.definition != new.definition:
        return words
    if inner is None:
        return words + ONCE
    has_advice = inner.text.endswith((ONCE, AS_ARGUMENT))
    return f"{words}, with {inner.path}{_separator(inner)}{inner.text}{'' if has_advice else AS_ARGUMENT}"


def _of_contexts(name: str, old: ContextValue | None, new: ContextValue | None) -> Iterator[Difference]:
    if old == new:
        return
    is_whole = name in SETTINGS or name.startswith(COMPILER_OPTION)
    label = name if is_whole else "the mesh in effect" if name == "mesh" else f"{name} of jit"
    before, after = (value.text if value else "none" for value in (old, new))
    if before == after:
        yield Difference(label, "other devices")
    else:
        yield Difference(label, f"{before or 'none'} became {after or 'none'}")


def _renamed(old: Signature, new: Signature) -> Iterator[Difference]:
    """Yield the shardings that are written differently but place the array alike."""
    for path, leaf in new.leaves.items():
        before = old.leaves.get(path)
        if before is not None and before.sharding and leaf.sharding and before.sharding != leaf.sharding:
            yield Difference(path, f"{_became(before.sharding, leaf.sharding)}, with the same placement")
