"""Stages of a compilation: traced, lowered and compiled programs, and what an executable tells of itself."""

from __future__ import annotations

import contextlib
import inspect
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from inspect import Parameter
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from ..errors import UnsupportedValueError
from ..layouts.spec import MeshAxes
from ..text import plain_text
from .devices import mesh_axes
from .jitted import unwrapped
from .shardings import describe_sharding, has_devices, is_named
from .values import is_sharding, type_name, without_format

SHARDINGS = ("in_shardings", "out_shardings")
CHOSEN = {"donated arguments": "donate_arg", "static arguments": "static_arg"}
"""The options that choose arguments. JAX finds their names where the function has a signature."""
OPTIONS = ("keep_unused", "inline", "device", "backend")
"""The options that are kept as they are. A version of JAX may lack some of them."""
_LONGEST = 200
_KEY = re.compile(r"\['([^']*)'\]|\[([^\]]*+)\]?|\.(\w+)")
"""One key in JAX's names of arguments."""
_FLAT = re.compile(r"<flat index (\d+)>")
"""A position below a node without keys. Versions of JAX name it so or by the number alone."""
_NAME = re.compile(r"\w+")


def jit_parameters(options: Any, function: Any) -> tuple[list[Parameter], frozenset[int], frozenset[str]]:
    """Return the parameters of a jitted function, and the positions and the names of the static ones."""
    signature = getattr(options, "fun_signature", None)
    if signature is None and inspect.isfunction(function):
        signature = inspect.signature(function)
    return (
        list(signature.parameters.values()) if isinstance(signature, inspect.Signature) else [],
        frozenset(getattr(options, "static_argnums", None) or ()),
        frozenset(getattr(options, "static_argnames", None) or ()),
    )


def jit_options(options: Any) -> dict[str, str]:
    """Return the other arguments of ``jax.jit`` as text, by name; empty where they are not recorded."""
    if options is None:
        return {}
    found = {name: plain_text(getattr(options, name, None)) for name in OPTIONS}
    for name, option in CHOSEN.items():
        names, numbers = (getattr(options, option + form, None) for form in ("names", "nums"))
        found[name] = ", ".join(map(plain_text, names or numbers or ()))
    for name in SHARDINGS:
        leaves = getattr(options, f"{name}_leaves", None) or ()
        texts = (
            str(describe_sharding(leaf, 0)) if is_named(leaf) else type(leaf).__name__ for leaf in leaves
        )
        found[name] = ", ".join(texts)[:_LONGEST]
    compiler = getattr(options, "compiler_options_kvs", None) or ()
    found["compiler_options"] = plain_text(dict(compiler))[:_LONGEST]
    return found


def slash_names(names: Sequence[str | None]) -> list[str | None]:
    """Return the names of flat arguments, such as ``params['w']``, as paths such as ``params/w``."""
    return [
        name and _KEY.sub(lambda key: "/" + next(filter(None, key.groups()), ""), _numbered(name))
        for name in names
    ]


def _numbered(name: str) -> str:
    """Return one of JAX's names with the numbers of positions below nodes that have no keys."""
    return _FLAT.sub(r"\1", name)


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

    found = stage_of(function)
    if found is not None:
        if arguments or keywords:
            raise UnsupportedValueError(
                f"a {type_name(function)} has its arguments already: pass it without arguments"
            )
        return found
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
                found = stage_of(stage(*all_arguments, **all_keywords))
            if found is not None:
                return found
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

    for one in (value, *(getattr(value, name, None) for name in _INNER if not callable(value))):
        for kind in (jax.stages.Compiled, jax.stages.Lowered, jax.stages.Traced):
            if isinstance(one, kind):
                return Stages(**{kind.__name__.lower(): one})
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

    stage = next(one for one in (stages.traced, stages.lowered, stages.compiled) if one is not None)
    found, structure = _flat(stage.args_info)
    got: list[Any] = [None] * len(found)
    if stages.compiled is not None:
        # A pruned argument has None.
        got = _shardings(structure, stages.compiled, "input_shardings")
    is_kept, asked = _requested(stages, len(found))
    is_known = "in_shardings" in _compile_arguments(stages)
    if any(sharding is not None for sharding in got):
        is_kept = [sharding is not None for sharding in got]
    if len(given) == len(found):
        own = [_specified(getattr(value, "sharding", None)) for value in given]
        asked = [one if kept else other for one, other, kept in zip(asked, own, is_kept, strict=True)]
    ends = [_numbered(jax.tree_util.keystr(keys[2:])) for keys, _ in found]
    of_trace = _argument_labels(stages.traced, len(found))
    written = of_trace or _kept_labels(parameter_labels, is_kept)
    labels = [
        label if label is not None and _is_of(label, _keyword(keys), end) else None
        for (keys, _), label, end in zip(found, written, ends, strict=True)
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
        for number, ((keys, info), label) in enumerate(zip(found, labels, strict=True))
    ]
    # A pruned leaf without a label has the name of the other leaves of its argument. So has a leaf with a key
    # that is written otherwise each time; without other leaves, its name is what JAX writes before the keys.
    names: dict[Any, str] = {}
    for (keys, _), leaf, label in zip(found, leaves, of_trace or labels, strict=True):
        if leaf.name:
            names[keys[:2]] = leaf.name
        elif label and (first := _NAME.match(label)):
            names.setdefault(keys[:2], first[0])
    return [
        leaf._replace(name=leaf.name or names.get(keys[:2]) or f"args[{keys[1].idx}]")
        for (keys, _), leaf in zip(found, leaves, strict=True)
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
    stage = next((one for one in (stages.traced, stages.lowered) if one is not None), stages.compiled)
    try:
        info = getattr(stage, "out_info", None)
    except KeyError:  # of jax.pmap in JAX 0.7
        info = None
    found, structure = _flat(info)
    got: list[Any] = [None] * len(found)
    if stages.compiled is not None and info is not None:
        got = _shardings(structure, stages.compiled, "output_shardings")
    asked = _compile_arguments(stages).get("out_shardings") or ()
    is_known = len(asked) == len(found)
    asked = [*map(_specified, asked)] if is_known else [None] * len(found)
    return [
        ProgramLeaf(
            tuple(keys), None, None, tuple(one.shape), one.dtype, asked[number], is_known, got[number]
        )
        for number, (keys, one) in enumerate(found)
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

    found, structure = jax.tree_util.tree_flatten_with_path(tree)
    return [(tuple(keys), leaf) for keys, leaf in found], structure


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
    rest = iter(labels[added:])
    return [next(rest) if kept else None for kept in is_kept]


def program_record(compiled: Any) -> bytes | None:
    """Return XLA's record of a compiled program, a serialized ``HloModuleProto``.

    None if its platform does not provide it.
    """
    try:
        modules = compiled.runtime_executable().hlo_modules()
        return bytes(modules[0].as_serialized_hlo_module_proto()) if modules else None
    except (AttributeError, NotImplementedError, RuntimeError):  # a plugin without it, or JAX's own error
        return None


def program_mesh(leaves: Sequence[ProgramLeaf]) -> MeshAxes | None:
    """Return the axes of the first mesh with devices among the shardings of arguments and outputs.

    XLA numbers the devices of a program in the order of this mesh.
    """
    shardings = [one for leaf in leaves for one in (leaf.got, leaf.asked) if one is not None]
    named = [one for one in shardings if is_named(one) and has_devices(one)]
    largest = max((one.mesh.size for one in named), default=0)
    return next((mesh_axes(one.mesh) for one in named if one.mesh.size == largest), None)


def program_device(leaves: Sequence[ProgramLeaf]) -> Any:
    """Return one of a program's devices; JAX's first device if the program has no arrays."""
    import jax

    for leaf in leaves:
        for sharding in (leaf.got, leaf.asked):
            if sharding is not None and has_devices(sharding):
                return next(iter(sharding.device_set))
    return jax.devices()[0]


def program_name(text: str) -> str:
    """Return the name of the function from the text of a lowered or compiled program.

    ``program`` if the text has none.
    """
    found = re.match(r"\s*(?:HloModule|module @)\s*(?:jit_|pmap_)?([\w.<>-]+)", text)
    return found[1].strip("_") if found else "program"


def text_for_frame_numbers(lowered: Any) -> str | None:
    """Return the text of a lowered program whose operations tell the numbers of the stack frames.

    None if the version of JAX has the right table; empty if the lowered program is not known.

    Args:
        lowered: A ``jax.stages.Lowered``, or None.
    """
    import jax

    if jax.__version_info__[:2] not in ((0, 7), (0, 8)):
        return None
    return "" if lowered is None else _with_lines(lowered)


def text_for_cached_lines(lowered: Any) -> str | None:
    """Return the text of a lowered program with its source lines, if its executable can be one of a cache.

    JAX's persistent cache takes programs for equal that differ in their source lines only.

    Args:
        lowered: A ``jax.stages.Lowered``, or None.
    """
    import jax

    if lowered is None or not jax.config.jax_compilation_cache_dir:
        return None
    return _with_lines(lowered)


def _with_lines(lowered: Any) -> str:
    """Return the text of a lowered program with its source lines."""
    # Before JAX 0.5, as_text() leaves them out.
    return str(lowered.compiler_ir("stablehlo").operation.get_asm(enable_debug_info=True))


T = TypeVar("T")


def call_apart(function: Callable[[], T]) -> T:
    """Call a function with JAX's default settings and in 64 bits, and return its result.

    The function runs in a thread of its own, where the traces, the mesh and the other contexts of the calling
    thread do not apply. Transfer guards and ``jax_disable_jit`` do not apply either.
    """
    import jax
    import jax.experimental

    # Up to JAX 0.7, the function is experimental.
    is_stable = hasattr(jax, "enable_x64")
    enable_x64 = jax.enable_x64 if is_stable else jax.experimental.enable_x64  # type: ignore[attr-defined]
    outcome: Future[T] = Future()

    def call() -> None:
        try:
            with enable_x64(True), jax.transfer_guard("allow"), jax.disable_jit(False):
                outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    # A daemon: if the caller is interrupted while a device hangs, the program can still exit.
    threading.Thread(target=call, name="jax_array_info", daemon=True).start()
    return outcome.result()


def per_shard(function: Callable[[Any], Any], mesh: Any, spec: Any, out_spec: Any) -> Any:
    """Return ``jax.shard_map`` of a function, without its check that replicas are equal.

    Args:
        function: A function of a shard.
        mesh: Mesh of the array.
        spec: PartitionSpec of the array.
        out_spec: PartitionSpec of the result.
    """
    import jax

    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=out_spec, check_vma=False)
    from jax.experimental.shard_map import shard_map  # up to JAX 0.5

    return shard_map(function, mesh=mesh, in_specs=spec, out_specs=out_spec, check_rep=False)
