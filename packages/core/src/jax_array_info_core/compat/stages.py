"""Stages of a compilation: traced, lowered and compiled programs, with their arguments and outputs."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, Literal, NamedTuple

from ..base.errors import UnsupportedValueError
from ..base.grouping import by_key
from .jitted import STATES, Unwrapped, is_jitted, jitted_inside, position_names, unwrapped
from .shardings import is_named
from .topologies import topology_of
from .values import is_sharding, type_name, without_format

_KEY = re.compile(r"\['([^']*)'\]|\[([^\]]*+)\]?|\.(\w+)")
"""One key in JAX's names of arguments."""

_FLAT = re.compile(r"<flat index (\d+)>")
"""A position below a node without keys. Versions of JAX name it so or by the number alone."""

_NAME = re.compile(r"\w+")


def slash_names(names: Sequence[str | None]) -> list[str | None]:
    """Return the names of flat arguments, such as ``params['w']``, as paths such as ``params/w``."""
    return [
        name and _KEY.sub(lambda key: "/" + next(filter(None, key.groups()), ""), _numbered(name))
        for name in names
    ]


def _numbered(name: str) -> str:
    """Return one of JAX's names with the numbers of positions below nodes that have no keys."""
    return _FLAT.sub(r"\1", name)


_Groups = dict[tuple[Any, ...], list[int]]
_INNER = ("traced", "lowered", "compiled")
"""Attributes in which wrappers of other libraries keep the stage of JAX."""


class Stages(NamedTuple):
    """The stages of a function, as far as they exist."""

    traced: Any = None
    """A ``jax.stages.Traced``; None if the function was given as a Lowered or a Compiled."""

    lowered: Any = None
    """A ``jax.stages.Lowered``; None if the function was given as a Compiled."""

    compiled: Any = None
    """A ``jax.stages.Compiled``."""


def stages_of(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Stages:
    """Trace a function, or return the stage that was given instead of one.

    Args:
        function: A jitted or plain function, or a Traced, Lowered or Compiled of JAX or of a library that
            wraps them, such as Flax and Equinox.
        arguments: Positional arguments of the function.
        keywords: Keyword arguments of the function.

    Raises:
        UnsupportedValueError: If it is neither a function nor a stage, or a stage with arguments.
    """
    import jax

    stages = stage_of(function)
    if stages is not None:
        if arguments or keywords:
            raise UnsupportedValueError(
                f"a {type_name(function)} has its arguments already: pass it without arguments"
            )
        return stages
    if not callable(function):
        raise UnsupportedValueError(
            f"expected a function, a Lowered or a Compiled, got {type_name(function)}"
        )
    jitted, all_arguments, all_keywords, contexts = unwrapped(function, arguments, keywords)
    for name in ("trace", "lower"):
        stage = getattr(jitted, name, None)
        if callable(stage) and not isinstance(jitted, type) and not _is_copied(jitted, name):
            with contextlib.ExitStack() as stack:
                for context in contexts:
                    stack.enter_context(context)
                stages = stage_of(stage(*all_arguments, **all_keywords))
            if stages is not None:
                return stages
    return Stages(traced=jax.jit(function).trace(*arguments, **keywords))


def _is_copied(function: Any, name: str) -> bool:
    """Return whether an attribute of a function is that of the function that it wraps.

    Up to JAX 0.5, ``functools.wraps``, and with it ``jax.grad``, copies the methods of a jitted function.
    """
    inner = getattr(function, "__wrapped__", None)
    return isinstance(function, FunctionType) and getattr(inner, name, None) is getattr(function, name)


def stage_of(value: Any) -> Stages | None:
    """Return a stage of JAX, or the one in the wrapper of another library; None for any other value."""
    import jax

    for stage in (value, *(getattr(value, name, None) for name in _INNER if not callable(value))):
        for kind in (jax.stages.Compiled, jax.stages.Lowered, jax.stages.Traced):
            if isinstance(stage, kind):
                return Stages(**{kind.__name__.lower(): stage})
    return None


def array_leaves(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
    """Return the leaves of the given arguments. With static arguments, they are more than the program's."""
    import jax

    return jax.tree.leaves((tuple(arguments), dict(keywords)))


def is_stage(value: Any) -> bool:
    """Return whether a value is a Traced, Lowered or Compiled, or the wrapper of one."""
    return stage_of(value) is not None


class ProgramLeaf(NamedTuple):
    """An argument or an output of a program, as JAX's stages describe it."""

    keys: tuple[Any, ...]
    """JAX's key path; for an argument, without the argument's own position or keyword."""

    name: str | None
    """Name of the argument, such as ``params`` or ``rest[0]``; None for outputs."""

    label: str | None
    """Argument and key path as XLA's text names the parameter, such as ``params['w']``; None if unknown."""

    shape: tuple[int, ...]
    """Global shape."""

    dtype: Any
    """JAX's dtype."""

    asked: Any = None
    """Requested sharding; None if it is left to the compiler, or unknown."""

    is_asked_known: bool = True
    """Whether the requested sharding is recorded: a Compiled has none."""

    got: Any = None
    """Sharding in the compiled program; None if unknown, or if the argument is pruned."""

    is_pruned: bool = False
    """Whether the argument is removed from the program."""

    is_donated: bool = False
    """Whether the argument is donated."""


def argument_leaves(
    stages: Stages, given: Sequence[Any] = (), parameter_labels: Sequence[str | None] = ()
) -> list[ProgramLeaf]:
    """Return the leaves of the arguments, in the order of the function. Static arguments are not leaves.

    Args:
        stages: The stages of the program.
        given: The leaves that were passed, for the shardings of pruned arguments.
        parameter_labels: Labels of the parameters of the lowered or compiled program, without a trace.
    """
    import jax

    stage = next(made for made in (stages.traced, stages.lowered, stages.compiled) if made is not None)
    flat, structure = _flat(stage.args_info)
    got: list[Any] = [None] * len(flat)
    if stages.compiled is not None:
        # A pruned argument has None.
        got = _shardings(structure, stages.compiled, "input_shardings")
    is_kept, asked = _requested(stages, len(flat))
    is_known = "in_shardings" in _compile_arguments(stages)
    if any(sharding is not None for sharding in got):
        is_kept = [sharding is not None for sharding in got]
    if len(given) == len(flat):
        specified = [_specified(getattr(value, "sharding", None)) for value in given]
        asked = [old if kept else new for old, new, kept in zip(asked, specified, is_kept, strict=True)]
    ends = [_numbered(jax.tree_util.keystr(keys[2:])) for keys, _ in flat]
    of_trace = _argument_labels(stages.traced, len(flat))
    written = of_trace or _kept_labels(parameter_labels, is_kept)
    labels = [
        label if label is not None and _is_of(label, _keyword(keys), end) else None
        for (keys, _), label, end in zip(flat, written, ends, strict=True)
    ]
    leaves = [
        ProgramLeaf(
            keys=tuple(keys[2:]),
            name=_keyword(keys) or (label and _numbered(label).removesuffix(ends[number])),
            label=label,
            shape=tuple(info.shape),
            dtype=info.dtype,
            asked=asked[number],
            is_asked_known=is_known or asked[number] is not None,
            got=got[number],
            is_pruned=not is_kept[number],
            is_donated=bool(info.donated),
        )
        for number, ((keys, info), label) in enumerate(zip(flat, labels, strict=True))
    ]
    # A pruned leaf without a label has the name of the other leaves of its argument. So has a leaf with a key
    # that is written otherwise each time; without other leaves, its name is what JAX writes before the keys.
    names: dict[Any, str] = {}
    for (keys, _), leaf, label in zip(flat, leaves, of_trace or labels, strict=True):
        if leaf.name:
            names[keys[:2]] = leaf.name
        elif label and (first := _NAME.match(label)):
            names.setdefault(keys[:2], first[0])
    return [
        leaf._replace(name=leaf.name or names.get(keys[:2]) or f"args[{keys[1].idx}]")
        for (keys, _), leaf in zip(flat, leaves, strict=True)
    ]


def _is_of(label: str, keyword: str | None, end: str) -> bool:
    """Return whether a label is that of a leaf. Up to JAX 0.4, keyword arguments can have those of others.

    Args:
        label: Argument and key path, as JAX or XLA names the leaf.
        keyword: Keyword of the argument; None for a positional one.
        end: The key path, with the numbers of positions alone.
    """
    label = _numbered(label)
    if keyword is None:
        return label.endswith(end)
    return label == f"{keyword}{end}" or label.endswith(f"[{keyword!r}]{end}")


def output_leaves(stages: Stages) -> list[ProgramLeaf]:
    """Return the leaves of the outputs.

    Empty where the stage lacks their types: a Compiled before JAX 0.7, and a program of ``jax.pmap`` in 0.7.
    """
    stage = next((made for made in (stages.traced, stages.lowered) if made is not None), stages.compiled)
    try:
        info = getattr(stage, "out_info", None)
    except KeyError:  # of jax.pmap in JAX 0.7
        info = None
    flat, structure = _flat(info)
    got: list[Any] = [None] * len(flat)
    if stages.compiled is not None and info is not None:
        got = _shardings(structure, stages.compiled, "output_shardings")
    asked = _compile_arguments(stages).get("out_shardings") or ()
    is_known = len(asked) == len(flat)
    asked = [*map(_specified, asked)] if is_known else [None] * len(flat)
    return [
        ProgramLeaf(
            tuple(keys), None, None, tuple(leaf.shape), leaf.dtype, asked[number], is_known, got[number]
        )
        for number, (keys, leaf) in enumerate(flat)
    ]


def _shardings(structure: Any, compiled: Any, name: str) -> list[Any]:
    """Return the shardings of a compiled program's arguments or outputs; None for a pruned argument.

    Up to JAX 0.7, a program of ``jax.pmap`` has none.
    """
    try:
        return list(structure.flatten_up_to(getattr(compiled, name)))
    except (AttributeError, NotImplementedError):
        return [None] * int(structure.num_leaves)


def _flat(tree: Any) -> tuple[list[tuple[tuple[Any, ...], Any]], Any]:
    """Return the leaves of a tree with their key paths, and its structure."""
    import jax

    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    return [(tuple(keys), leaf) for keys, leaf in leaves], structure


def _keyword(keys: Sequence[Any]) -> str | None:
    """Return the keyword of an argument; None for a positional argument."""
    return str(keys[1].key) if len(keys) > 1 and hasattr(keys[1], "key") else None


def _compile_arguments(stages: Stages) -> Mapping[str, Any]:
    """Return the private arguments of the compilation; empty if this version of JAX keeps none."""
    return getattr(getattr(stages.lowered, "_lowering", None), "compile_args", None) or {}


def _requested(stages: Stages, count: int) -> tuple[list[bool], list[Any]]:
    """Return whether each argument is kept, and its requested sharding, None if it is not known."""
    arguments = _compile_arguments(stages)
    kept, shardings = arguments.get("kept_var_idx"), arguments.get("in_shardings")
    if kept is None or shardings is None or len(shardings) != len(kept):
        return [True] * count, [None] * count
    requested = dict(zip(sorted(kept), map(_specified, shardings), strict=True))
    # Ordered effects and hoisted constants come first, and are not arguments of the user.
    shift = max(requested, default=0) - count + 1 if max(requested, default=0) >= count else 0
    return (
        [number + shift in requested for number in range(count)],
        [requested.get(number + shift) for number in range(count)],
    )


def _specified(sharding: Any) -> Any:
    """Return a sharding; None for JAX's markers of an unspecified or automatic one."""
    sharding = without_format(sharding)
    return sharding if is_sharding(sharding) else None


def _argument_labels(traced: Any, count: int) -> list[str | None]:
    """Return each argument as JAX names it, such as ``params['w']``; empty without a trace."""
    jaxpr = getattr(traced, "jaxpr", None)
    info = getattr(getattr(jaxpr, "jaxpr", jaxpr), "debug_info", None)
    names = list(getattr(info, "arg_names", None) or ())
    # Hoisted constants come first.
    names = names[len(names) - count :] if len(names) >= count else []
    return [name if isinstance(name, str) else None for name in names]


def _kept_labels(labels: Sequence[str | None], is_kept: Sequence[bool]) -> list[str | None]:
    """Return the label of each argument from those of the parameters; None for pruned arguments."""
    added = len(labels) - sum(is_kept)  # ordered effects and hoisted constants, which come first
    if added < 0:
        return [None] * len(is_kept)
    remaining = iter(labels[added:])
    return [next(remaining) if kept else None for kept in is_kept]


ProgramForm = Literal["jitted", "traced", "lowered", "compiled"]
"""A jitted function, or the stage that it has reached."""


def program_form(value: Any) -> ProgramForm | None:
    """Return what form of a program a value is: that of JAX, or of a library that wraps it; None for none."""
    with contextlib.suppress(Exception):  # of a user's object
        if isinstance(value, type):
            return None
        is_of_library = any(hasattr(value, name) for name in ("as_text", "lower"))  # a Traced has lower
        stages = stage_of(value) if is_of_library else None
        if stages is not None:
            return "compiled" if stages.compiled else "lowered" if stages.lowered else "traced"
        if is_jitted(unwrapped(value, (), {}).function):
            return "jitted"
    return None


def places_of_arguments(values: Sequence[Any], leaves: Sequence[ProgramLeaf]) -> list[int] | None:
    """Return the place of each argument of a program in the given leaves; None if they do not match it.

    Args:
        values: The leaves of the given arguments, also of static ones.
        leaves: The arguments of the program.
    """
    shapes = [leaf.shape for leaf in leaves]
    arrays = [place for place, value in enumerate(values) if hasattr(value, "shape")]
    given = [tuple(getattr(value, "shape", ())) for value in values]
    ways = ([*range(len(values))], arrays)
    return next((places for places in ways if [given[place] for place in places] == shapes), None)


def struct_as_returned(value: Any, given: ProgramLeaf, returned: ProgramLeaf) -> Any:
    """Return a ShapeDtypeStruct of an argument with the sharding of an output; None if it is not known.

    An argument of a program that is compiled for a topology stays on its own mesh.

    Args:
        value: The array or the ShapeDtypeStruct that is passed.
        given: The argument.
        returned: The output.
    """
    import jax

    sharding, current = returned.got, getattr(value, "sharding", None)
    if is_named(sharding) and is_named(current) and current.mesh != sharding.mesh:
        if current.mesh.shape != sharding.mesh.shape:
            return None
        sharding = jax.sharding.NamedSharding(current.mesh, sharding.spec, memory_kind=current.memory_kind)
    elif not is_named(current) and topology_of(next(iter(sharding.device_set))) is not None:
        return None
    weak_type = bool(getattr(value, "weak_type", False))
    return jax.ShapeDtypeStruct(given.shape, given.dtype, sharding=sharding, weak_type=weak_type)


def with_object_keys(
    function: Any,
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    given: list[ProgramLeaf],
    returned: list[ProgramLeaf],
) -> tuple[list[ProgramLeaf], list[ProgramLeaf]]:
    """Return the arguments and the outputs of a program with the keys of the user's objects.

    They are unchanged if the function is not that of a library, or if the objects do not match the program.
    """
    # Another version of the library has other parts, and flattening runs code of the user's classes.
    with contextlib.suppress(Exception):
        call = unwrapped(function, arguments, keywords)
        if hasattr(call.function, "_dynamic_fun"):
            return _of_equinox(call, given), [_equinox_output(leaf) for leaf in returned]
        if jitted_inside(call.function) is not None:
            return _of_nnx(call, given, returned)
    return given, returned


def _of_equinox(call: Unwrapped, given: list[ProgramLeaf]) -> list[ProgramLeaf]:
    """Return the arguments of ``filter_jit``: the arrays of the first one, the others and the function."""
    import jax

    signature = call.function._signature
    bound = signature.bind(*call.arguments, **call.keywords)
    names = position_names(signature, len(bound.args))
    trees = {
        "first": dict(zip(names[:1], bound.args[:1], strict=True)),
        "rest": dict(zip(names[1:], bound.args[1:], strict=True)) | bound.kwargs,
        "fun": {"self": call.function.__wrapped__},
    }
    # Equinox numbers all leaves of a group, and passes those that are arrays.
    sources = {
        group: [
            (name, tuple(keys), leaf)
            for name, value in tree.items()
            for keys, leaf in jax.tree_util.tree_flatten_with_path(value)[0]
        ]
        for group, tree in trees.items()
    }
    changed = []
    for leaf in given:
        group, number = leaf.keys
        name, keys, array = sources[group.key][number.idx]
        if tuple(array.shape) != leaf.shape:
            return given
        changed.append(leaf._replace(name=name, keys=keys))
    return changed


def _equinox_output(leaf: ProgramLeaf) -> ProgramLeaf:
    """Return an output without the tuple in which ``filter_jit`` returns it, after a marker of its own."""
    first, *keys = leaf.keys
    return leaf._replace(keys=tuple(keys) if first.idx else ("marker",))


def _of_nnx(
    call: Unwrapped, given: list[ProgramLeaf], returned: list[ProgramLeaf]
) -> tuple[list[ProgramLeaf], list[ProgramLeaf]]:
    """Return the arguments of ``nnx.jit``: the variables of each object, in the order of nnx."""
    objects = list(_nnx_objects(call.arguments, call.keywords))
    groups = _groups(given)
    if len(groups) != len(objects):
        return given, returned
    given, results = list(given), list(returned)
    updates = _groups([leaf if leaf.keys[0].idx < 2 else leaf._replace(keys=()) for leaf in returned])
    roots: list[tuple[Any, ...]] = []
    for (root, numbers), (paths, shapes) in zip(groups.items(), objects, strict=True):
        if [given[number].shape for number in numbers] != shapes:
            return given, returned
        for number, path in zip(numbers, paths, strict=True):
            given[number] = given[number]._replace(keys=(*root[1:], *path))
        roots.append(root)
    for root, (paths, shapes), numbers in zip(roots, objects, updates.values(), strict=False):
        if len(updates) == len(objects) and [returned[number].shape for number in numbers] == shapes:
            for number, path in zip(numbers, paths, strict=True):
                results[number] = returned[number]._replace(keys=(*root, *path))
    return given, [
        leaf._replace(keys=leaf.keys[1:]) if leaf is old and leaf.keys[0].idx == 2 else leaf
        for leaf, old in zip(results, returned, strict=True)
    ]


def _nnx_objects(
    arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield the paths and the shapes of the variables of each object. A shared one is in the first object."""
    import jax

    graph = sys.modules.get("flax.nnx.graphlib") or sys.modules["flax.nnx.graph"]

    def is_object(value: Any) -> bool:
        return isinstance(value, graph.Variable) or graph.is_graph_node(value)

    known = graph.RefMap()
    for value in jax.tree.leaves((tuple(arguments), dict(keywords)), is_leaf=is_object):
        if is_object(value):
            _, state = graph.flatten(value, ref_index=known, with_paths=True)
            if state.paths:
                yield list(state.paths), [tuple(leaf.shape) for leaf in state.leaves]


def _groups(leaves: Sequence[ProgramLeaf]) -> _Groups:
    """Return the numbers of the leaves of each object, by its name and keys."""
    return by_key(
        ((leaf.name, *leaf.keys[:-3]), number)
        for number, leaf in enumerate(leaves)
        for names in [[getattr(key, "name", None) for key in leaf.keys]]
        if STATES in names and names.index(STATES) == len(names) - 3
    )
