"""Leaves with another sharding than expected, and optimizer state with another one than its parameter."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..compat import values
from ..layouts.dtypes import bits_of_name, packed_nbytes
from ..layouts.spec import MeshAxes, as_spec, other_types
from ..quantities import bytes_apart, counted, format_bytes
from ..reports.findings import Finding, Option, most_first, remedies
from ..reports.tree import TreeMesh, TreeReport, TreeRow
from ..trees.plan import PlannedTree, Planner
from ..trees.rows import DeviceSets, kept_for_last_rows
from ..trees.specs import specs_by_path, without_surplus
from .findings import (
    both_axes,
    has_known_sharding,
    is_sharded_further,
    leaf_of,
    same_sharding,
)

_STATE_KEYS = frozenset({"mu", "nu", "trace"})
"""Keys in the states of optax below which the tree of the parameters is repeated."""
_ROOT = "params/"


class Moment(NamedTuple):
    """A leaf of an optimizer state, and its parameter."""

    row: TreeRow
    parameter: TreeRow


@kept_for_last_rows
def moments_of(rows: Sequence[TreeRow]) -> list[Moment]:
    """Return the leaves with the shape of a parameter and a path that ends with the path of that parameter.

    The first key of a parameter is ``params``, and its path counts without it. In a tree without this key,
    the candidates are the leaves below ``mu``, ``nu`` or ``trace``, and their parameter is the leaf elsewhere
    whose path ends with the keys below these.
    """
    below, elsewhere = _divided(rows)
    parameters = {row.path[len(_ROOT) :]: row for row in below}
    if parameters:
        candidates = [(row, _ending(row.path, parameters)) for row in elsewhere]
    else:
        below_keys = _below_state_keys(rows)
        tails = set(below_keys.values())
        for row in rows if tails else ():
            if row.path not in below_keys and (ending := _ending(row.path, tails)) is not None:
                parameters.setdefault(ending, row)
        found = ((row, below_keys.get(row.path)) for row in rows)
        candidates = [(row, tail if tail in parameters else None) for row, tail in found]
    return [
        Moment(row, parameters[tail])
        for row, tail in candidates
        if tail is not None and parameters[tail].shape == row.shape
    ]


_OWN_FIELDS = frozenset(
    {
        "acc_grads",
        "base_optimizer_state",
        "inner_opt_state",
        "inner_state",
        "inner_states",
        "nu_max",
        "sum_of_squares",
        "v_col",
        "v_row",
    }
)
"""Fields of the states of optax that do not occur next to parameters."""
_OWN_KEYS = _OWN_FIELDS | {"opt_state", "optimizer_state"}
"""Keys below which all leaves are optimizer state."""


def optimizer_state(rows: Sequence[TreeRow], moments: Sequence[Moment]) -> list[TreeRow]:
    """Return the leaves of optimizer states, whatever the optimizer. None of them is below ``params``.

    These are the moments below ``mu``, ``nu`` or ``trace``, the leaves below ``opt_state`` and
    ``optimizer_state``, and those in a state of optax: its container has a field that only such states have,
    or the fields ``count`` and ``mu`` or ``nu``.
    """
    _, elsewhere = _divided(rows)
    keys = {row.path: row.path.split("/") for row in elsewhere}
    counting = _containers(keys.values(), ("count",)) & _containers(keys.values(), ("mu", "nu"))
    states = counting | _containers(keys.values(), _OWN_FIELDS)
    states.discard(())  # the whole tree may have parameters, too
    found = {moment.row.path for moment in moments if not _STATE_KEYS.isdisjoint(keys[moment.row.path])}
    return [
        row
        for row in elsewhere
        if row.path in found
        or not _OWN_KEYS.isdisjoint(keys[row.path])
        or any(tuple(keys[row.path][:end]) in states for end in range(len(keys[row.path])))
    ]


class Parameters(NamedTuple):
    """The leaves that an optimizer updates."""

    rows: list[TreeRow]
    where: str
    """Their place in the tree, in words."""


def parameters_of(rows: Sequence[TreeRow], state: Sequence[TreeRow]) -> Parameters:
    """Return the parameters: the floating-point leaves below ``params``, else those in an ``nnx.Param``.

    In a tree without either, these are all floating-point leaves outside of optimizer states.

    Args:
        rows: The leaves.
        state: The leaves of optimizer states.
    """
    below, elsewhere = _divided(rows)
    where = "below params"
    if not below:
        below = [row for row in elsewhere if row.variable == "parameter"]
        where = "in an nnx.Param"
    if not below:
        paths = {row.path for row in state}
        below = [row for row in elsewhere if row.path not in paths]
        where = "of the whole tree: no key is params"
    return Parameters([row for row in below if _is_float(row)], where)


def _is_float(row: TreeRow) -> bool:
    return row.dtype.startswith(("float", "bfloat", "complex"))


def _divided(rows: Sequence[TreeRow]) -> tuple[list[TreeRow], list[TreeRow]]:
    """Return the leaves whose first key is ``params``, and the other leaves."""
    below: list[TreeRow] = []
    elsewhere: list[TreeRow] = []
    for row in rows:
        (below if f"{row.path}/".startswith(_ROOT) else elsewhere).append(row)
    return below, elsewhere


def _below_state_keys(rows: Sequence[TreeRow]) -> dict[str, str]:
    """Return the keys of each leaf below the first ``mu``, ``nu`` or ``trace`` of its path.

    Layers can have the name ``mu``. The state of an optimizer has ``count`` or ``nu`` next to it.
    """
    paths = {row.path: row.path.split("/") for row in rows}
    states = {path: keys for path, keys in paths.items() if not _STATE_KEYS.isdisjoint(keys)}
    beside = _containers(paths.values(), ("count", "nu")) if states else set()
    found = {}
    for path, keys in states.items():
        place = next(place for place, key in enumerate(keys) if key in _STATE_KEYS)
        if keys[place] != "mu" or tuple(keys[:place]) in beside:
            found[path] = "/".join(keys[place + 1 :])
    return found


def _containers(paths: Iterable[Sequence[str]], fields: Container[str]) -> set[tuple[str, ...]]:
    """Return the containers that have one of some keys."""
    return {tuple(path[:place]) for path in paths for place, key in enumerate(path) if key in fields}


def _ending(path: str, tails: Container[str]) -> str | None:
    """Return the longest of some key sequences with which a path ends."""
    start = 0
    while True:
        if path[start:] in tails:
            return path[start:]
        slash = path.find("/", start)
        if slash < 0:
            return "" if "" in tails else None
        start = slash + 1


MOMENTS = {"adam": ("mu", "nu"), "adamw": ("mu", "nu"), "lion": ("mu",), "momentum": ("trace",)}
"""Keys of the moments in the states of optax, by the name of the optimizer."""


class AddedMoments(NamedTuple):
    """The moments that an optimizer adds to a tree."""

    rows: list[TreeRow]
    """Leaves that are sharded like their parameters."""

    words: str
    """The moments and their parameters, or the reason why none are added."""


def added_moments(
    optimizer: str, dtype: str | None, rows: Sequence[TreeRow], moments: Sequence[Moment]
) -> AddedMoments:
    """Return the moments that an optimizer adds.

    If some parameter already has all its moments, nothing is added. The other parameters are then frozen.
    Moments are added to parameters only, not to the state of another optimizer, which still takes memory.

    Args:
        optimizer: A key of ``MOMENTS``.
        dtype: Dtype of the moments; None is that of their parameter, as in optax.
        rows: All leaves of the tree.
        moments: The optimizer state in the tree.
    """
    keys = MOMENTS[optimizer]
    existing: dict[str, set[str]] = defaultdict(set)
    for moment in moments:
        existing[moment.parameter.path].update(moment.row.path.split("/"))
    if any(found.issuperset(keys) for found in existing.values()):
        return AddedMoments([], f"{optimizer}: none are added, because the tree has moments")
    state = optimizer_state(rows, moments)
    parameters, where = parameters_of(rows, state)
    if not parameters:
        return AddedMoments([], f"{optimizer}: none are added, because the tree has no parameters")
    each = counted(len(parameters), "floating-point leaf", "floating-point leaves")
    each = each if len(parameters) == 1 else f"each of {each}"
    dtypes = dtype or " or ".join(dict.fromkeys(row.dtype for row in parameters))
    words = counted(len(keys), f"{dtypes} moment", f"{dtypes} moments")
    like = "" if dtype else ", in the parameters' dtype,"
    others = sum(bool(row.shape) and _is_float(row) for row in state)
    besides = f", besides {counted(others, 'leaf', 'leaves')} of optimizer state" if others else ""
    return AddedMoments(
        [_moment(row, key, dtype) for row in parameters for key in keys],
        f"{optimizer}: {words}{like} for {each} {where}{besides}",
    )


def _moment(parameter: TreeRow, key: str, dtype: str | None) -> TreeRow:
    """Return a moment of a parameter, in a dtype of its own or in that of the parameter.

    No leaf of a tree has its path, since a path has no line break.
    """
    moment = replace(parameter, path=f"{parameter.path}\n{key}", same_as=None)
    if dtype is None:
        return moment
    bits = bits_of_name(dtype)
    shard = parameter.shard_shape
    return replace(
        moment,
        dtype=dtype,
        bits=bits,
        nbytes=packed_nbytes(parameter.shape, bits),
        shard_nbytes=None if shard is None else packed_nbytes(shard, bits),
    )


def exceeded_memory(
    report: TreeReport,
    required: TreeReport,
    uncounted: Sequence[TreeRow],
    hbm_nbytes: int,
    optimizer_words: str,
) -> Finding | None:
    """Return the finding on a tree that does not fit the memory of a device, or may not fit.

    Args:
        report: The tree.
        required: The tree with the optimizer state that will be added.
        uncounted: Leaves of unknown size per device.
        hbm_nbytes: Memory of a device.
        optimizer_words: That state in words.
    """
    nbytes, leaves = required.fullest_device_nbytes, report.fullest_device_nbytes
    if nbytes <= hbm_nbytes:
        return uncounted_memory(uncounted) if uncounted else None
    needs, has = bytes_apart(nbytes, hbm_nbytes)
    added = f" ({format_bytes(leaves)} of leaves and {format_bytes(nbytes - leaves)} for {optimizer_words})"
    if required.ideal_nbytes <= hbm_nbytes:
        remedy = (
            f"Evenly sharded over {counted(required.device_count, 'device', 'devices')}, it would take "
            f"{format_bytes(required.ideal_nbytes)} per device."
        )
    else:
        least = -(-required.nbytes // hbm_nbytes)
        remedy = f"Use more devices: at least {least}, if they divide the shapes evenly."
    return Finding(
        kind="memory",
        problem=(
            f"The tree takes {needs} per device{added if nbytes > leaves else ''}, "
            f"{format_bytes(nbytes - hbm_nbytes)} more than the {has} of a device. "
            "Gradients and activations are not included."
        ),
        remedy=remedy,
        nbytes=nbytes - hbm_nbytes,
    )


def uncounted_memory(rows: Sequence[TreeRow]) -> Finding:
    """Return the finding on leaves without which the memory of a tree is not known."""
    count = counted(len(rows), "leaf", "leaves")
    return Finding(
        kind="memory",
        problem=f"The bytes per device of {count} are not known: whether the tree fits is not known either.",
        remedy="Give them shapes of numbers, a dtype of known size, and at most 2^63 - 1 bytes.",
        leaves=tuple(leaf_of(row, None) for row in rows),
    )


class Expectation(NamedTuple):
    """The leaves of a tree, each with its expected sharding."""

    rows: Mapping[str, TreeRow]
    """Each leaf by path. One that may have any sharding is as in the tree."""

    meshes: Sequence[TreeMesh]
    """The meshes of these rows."""

    problems: Mapping[str, str]
    """Problem of each expected spec that is invalid, by path."""

    named: frozenset[str]
    """Paths of the leaves that have an expected sharding."""

    shorter: Collection[str]
    """Paths of leaves with fewer axes than a spec for all leaves, which are expected to be replicated."""

    def accepts_any(self, row: TreeRow) -> bool:
        """Return whether any sharding of a leaf is as expected."""
        return self.rows[row.path] is row and row.path not in self.problems


def expectation(expect: Any, planned: PlannedTree) -> Expectation:
    """Return the leaves of a tree with their expected shardings.

    A leaf without a mesh, such as a NumPy array, is expected on the mesh of the other leaves if they have one
    in common.

    Args:
        expect: A tree or prefix of specs and shardings, or PathRules.
        planned: The tree.

    Raises:
        SpecError: If ``expect`` does not fit the tree, or a pattern matches nothing.
    """
    rows, meshes = planned.report.rows, planned.report.meshes
    entries, shorter = specs_by_path(expect, rows, planned.side_paths, argument="expect")
    devices = DeviceSets()
    devices.sets = list(planned.devices)
    named = list(dict.fromkeys(mesh.axes for mesh in meshes if mesh.axes is not None))
    whole = MeshAxes(("devices",), (planned.report.device_count,))
    on_own = Planner(devices, None, None, has_specs=True)
    on_common = Planner(devices, named[0], None, has_specs=True) if len(named) == 1 else on_own
    on_all = Planner(devices, whole, None, has_specs=True)

    def expected(row: TreeRow, entry: Any) -> TreeRow:
        spec = None if entry is None or values.is_sharding(entry) else as_spec(entry)
        if spec is not None:
            entry = without_surplus(spec, len(row.shape)) or spec
        if row.mesh is not None and meshes[row.mesh].axes is not None:
            return row if spec is not None and spec == row.spec else on_own.planned(row, entry)
        if not named and spec is not None and not any(spec.axes):
            return on_all.planned(row, entry)
        return on_common.planned(row, entry)

    by_path = {row.path: expected(row, entry) for row, entry in zip(rows, entries, strict=True)}
    problems: dict[str, str] = {}
    for planner in {id(planner): planner for planner in (on_own, on_common, on_all)}.values():
        for path, problem in planner.problems:
            problems[path] = f"{problems[path]}; {problem}" if path in problems else problem
    named_paths = frozenset(row.path for row, entry in zip(rows, entries, strict=True) if entry is not None)
    return Expectation(by_path, [found.mesh for found in devices.sets], problems, named_paths, shorter)


def unexpected_shardings(
    rows: Iterable[TreeRow], meshes: Sequence[TreeMesh], expected: Expectation
) -> Finding | None:
    """Return the finding on leaves whose sharding is not the expected one."""
    leaves = []
    for row in rows:
        wanted = expected.rows[row.path]
        if problem := expected.problems.get(row.path):
            leaves.append(leaf_of(row, row.shard_nbytes, remedy=f"in expect, {problem}"))
        elif wanted is row or not has_known_sharding(row):
            continue
        elif (
            not same_sharding(row, meshes, wanted, expected.meshes)
            or row.host_memory_kind != wanted.host_memory_kind
            or (row.kind != "planned" and other_types(*both_axes(row, meshes, wanted, expected.meshes)))
        ):
            remedy = sharding_words(row, meshes, wanted, expected.meshes)
            leaves.append(leaf_of(row, row.shard_nbytes, expected=wanted, remedy=remedy))
    if not leaves:
        return None
    return Finding(
        kind="unexpected sharding",
        problem=f"{counted(len(leaves), 'leaf has', 'leaves have')} another sharding than the expected one.",
        **remedies("Change their shardings, or correct {expect}.", expect=Option("expect")),
        nbytes=sum(leaf.nbytes or 0 for leaf in leaves),
        leaves=most_first(leaves),
    )


def differing_moments(
    moments: Iterable[Moment], rows: Sequence[TreeRow], meshes: Sequence[TreeMesh]
) -> Finding | None:
    """Return the finding on optimizer state that is sharded differently from its parameter.

    State that is sharded over more mesh axes than its parameter is intended, as in ZeRO-1.

    Args:
        moments: The optimizer state of the tree.
        rows: The leaves that findings may be about.
        meshes: The meshes of the leaves.
    """
    differing = [
        moment
        for moment in moments
        if not same_sharding(moment.row, meshes, moment.parameter, meshes)
        and not is_sharded_further(moment.row, moment.parameter, meshes)
        and has_known_sharding(moment.row)
        and has_known_sharding(moment.parameter)
    ]
    if differing:
        paths = {row.path for row in rows}
        differing = [moment for moment in differing if moment.row.path in paths]
    if not differing:
        return None
    now = sum(moment.row.shard_nbytes or 0 for moment in differing)
    then = sum(_nbytes_like(moment.row, moment.parameter) for moment in differing)
    return Finding(
        kind="moments",
        problem=(
            f"{counted(len(differing), 'leaf is', 'leaves are')} sharded differently from the parameter with "
            f"the same path: {format_bytes(now)} per device, {format_bytes(then)} if sharded like it."
        ),
        **remedies(
            "Create the optimizer state inside jit with out_shardings, or with device_put. If the difference "
            "is intended, list the paths in {ignore}.",
            ignore=Option("ignore"),
        ),
        nbytes=now,
        leaves=most_first(
            leaf_of(
                row,
                row.shard_nbytes,
                expected=parameter,
                remedy=sharding_words(row, meshes, parameter, meshes),
            )
            for row, parameter in differing
        ),
    )


def sharding_words(
    row: TreeRow, meshes: Sequence[TreeMesh], wanted: TreeRow, wanted_meshes: Sequence[TreeMesh]
) -> str:
    """Return the shardings of two leaves that have no spec, and axis types and memory kinds that differ."""
    words = [] if row.spec is not None else [row.sharding_text]
    words += [] if wanted.spec is not None else [f"expected {wanted.sharding_text}"]
    axes, wanted_axes = both_axes(row, meshes, wanted, wanted_meshes)
    if axes is not None and wanted_axes is not None and other_types(axes, wanted_axes):
        words.append(f"axis types {axes.types_text}, expected {wanted_axes.types_text}")
    if row.host_memory_kind != wanted.host_memory_kind:
        kinds = (one.host_memory_kind or "device memory" for one in (row, wanted))
        words.append("in {}, expected in {}".format(*kinds))
    return ", ".join(words)


def _nbytes_like(row: TreeRow, parameter: TreeRow) -> int:
    """Return the bytes per device of a leaf if it were sharded like its parameter."""
    if parameter.shard_shape is None:
        return row.shard_nbytes or 0
    return row.nbytes_of(parameter.shard_shape) or 0
