"""Optimizer state, and the memory of devices and hosts that a tree takes with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from ...arrays.meshes import devices_per_host
from ...base.grouping import by_key
from ...base.quantities import bytes_apart, counted, format_bytes
from ...facts.reports.checks import HostUnit
from ...facts.reports.findings import Finding, Option, remedies
from ...facts.reports.tree import TreeReport, TreeRow
from ...geometry.layouts.dtypes import bits_of_name, packed_nbytes
from ..rows import DeviceSet, PlannedTree, kept_for_last_rows
from ..totals import hosted_per_device, tree_of_rows
from .findings import has_known_sharding, leaf_of

_STATE_KEYS = frozenset({"mu", "nu", "trace"})
"""Keys in the states of optax below which the tree of the parameters is repeated."""
_ROOT = "params/"


class _Row(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def shape(self) -> tuple[Any, ...]: ...


_AnyRow = TypeVar("_AnyRow", bound=_Row)


class Moment(NamedTuple, Generic[_AnyRow]):
    """A leaf of an optimizer state, and its parameter."""

    row: _AnyRow
    parameter: _AnyRow


@kept_for_last_rows
def moments_of(rows: Sequence[TreeRow]) -> list[Moment[TreeRow]]:
    """Return the moments of a tree, as of ``moments_among``."""
    return moments_among(rows)


def moments_among(rows: Sequence[_AnyRow]) -> list[Moment[_AnyRow]]:
    """Return the leaves with the shape of a parameter and a path that ends with the path of that parameter.

    The first key of a parameter is ``params``, and its path counts without it. In a tree without this key,
    the candidates are the leaves below ``mu``, ``nu`` or ``trace``, and their parameter is the leaf elsewhere
    whose path ends with the keys below these. Without such keys, it is the only leaf elsewhere of the shape.
    """
    below, elsewhere = _divided(rows)
    parameters = {(row.path[len(_ROOT) :], row.shape): row for row in below}
    tails = {tail for tail, _ in parameters}
    if parameters:
        candidates = [(row, _ending(row.path, tails)) for row in elsewhere]
    else:
        below_keys = _below_state_keys(rows)
        tails = set(below_keys.values())
        others = [row for row in rows if row.path not in below_keys] if tails else []
        endings = [(_ending(row.path, tails), row.shape) for row in others]
        of_type = Counter(endings)
        for row, (ending, shape) in zip(others, endings, strict=True):
            if ending or (ending == "" and of_type[ending, shape] == 1):
                parameters.setdefault((ending, shape), row)
        candidates = [(row, below_keys.get(row.path)) for row in rows]
    return [
        Moment(row, parameters[tail, row.shape])
        for row, tail in candidates
        if tail is not None and (tail, row.shape) in parameters
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


def optimizer_state(rows: Sequence[TreeRow], moments: Sequence[Moment[TreeRow]]) -> list[TreeRow]:
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
    paths = {moment.row.path for moment in moments if not _STATE_KEYS.isdisjoint(keys[moment.row.path])}
    return [
        row
        for row in elsewhere
        if row.path in paths
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


def _divided(rows: Sequence[_AnyRow]) -> tuple[list[_AnyRow], list[_AnyRow]]:
    """Return the leaves whose first key is ``params``, and the other leaves."""
    divided = by_key((f"{row.path}/".startswith(_ROOT), row) for row in rows)
    return divided.get(True, []), divided.get(False, [])


def _below_state_keys(rows: Sequence[_Row]) -> dict[str, str]:
    """Return the keys of each leaf below the first ``mu``, ``nu`` or ``trace`` of its path.

    Layers can have the name ``mu``. The state of an optimizer has ``count`` or ``nu`` next to it.
    """
    paths = {row.path: row.path.split("/") for row in rows}
    states = {path: keys for path, keys in paths.items() if not _STATE_KEYS.isdisjoint(keys)}
    beside = _containers(paths.values(), ("count", "nu")) if states else set()
    places = [next(place for place, key in enumerate(keys) if key in _STATE_KEYS) for keys in states.values()]
    return {
        path: "/".join(keys[place + 1 :])
        for (path, keys), place in zip(states.items(), places, strict=True)
        if keys[place] != "mu" or tuple(keys[:place]) in beside
    }


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
    optimizer: str, dtype: str | None, rows: Sequence[TreeRow], moments: Sequence[Moment[TreeRow]]
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
    existing = by_key(
        (moment.parameter.path, key) for moment in moments for key in moment.row.path.split("/")
    )
    if any({*of_parameter}.issuperset(keys) for of_parameter in existing.values()):
        return AddedMoments([], f"{optimizer}: none are added, because the tree has moments")
    state = optimizer_state(rows, moments)
    parameters, where = parameters_of(rows, state)
    if not parameters:
        return AddedMoments([], f"{optimizer}: none are added, because the tree has no parameters")
    leaves = counted(len(parameters), "floating-point leaf", "floating-point leaves")
    leaves = leaves if len(parameters) == 1 else f"each of {leaves}"
    dtypes = dtype or " or ".join(dict.fromkeys(row.dtype for row in parameters))
    words = counted(len(keys), f"{dtypes} moment", f"{dtypes} moments")
    like = "" if dtype else ", in the parameters' dtype,"
    others = sum(bool(row.shape) and _is_float(row) for row in state)
    besides = f", besides {counted(others, 'leaf', 'leaves')} of optimizer state" if others else ""
    return AddedMoments(
        [_moment(row, key, dtype) for row in parameters for key in keys],
        f"{optimizer}: {words}{like} for {leaves} {where}{besides}",
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


class HostBytes(NamedTuple):
    """Bytes in host memory of the devices of one host, process or of all."""

    nbytes: int
    """Their sum, of the host with the most."""

    ideal_nbytes: int
    """Bytes of a host if each leaf in host memory were on one device only, and the hosts had equal parts."""

    device_count: int
    """Number of devices of that host."""

    unit: HostUnit
    """What the devices are those of."""


def host_bytes(report: TreeReport, devices: Sequence[DeviceSet], hosts: int | None) -> HostBytes:
    """Return the bytes of a tree in host memory, summed over the devices of a host.

    The devices of a host are those of a process. Unless they are TPUs, several processes may be on a host.
    Where the processes are not known, all devices count as one.

    Args:
        report: The tree.
        devices: The device sets to which ``TreeRow.mesh`` refers.
        hosts: Number of hosts, each with the same number of consecutive devices. None for the processes.

    Raises:
        SpecError: (a ValueError) If the devices cannot be divided among the hosts.
        UnsupportedValueError: (a ValueError) If ``hosts`` is not an integer.
    """
    ids, nbytes = hosted_per_device(report.rows, devices)
    owners, unit = _owners(ids, devices, hosts, len(nbytes))
    sums = {owner: sum(nbytes[owners == owner].tolist()) for owner in np.unique(owners).tolist()}
    fullest = max(sums, key=lambda owner: sums[owner])
    return HostBytes(
        nbytes=sums[fullest],
        ideal_nbytes=-(-report.host_global_nbytes // len(sums)),
        device_count=int(np.count_nonzero(owners == fullest)),
        unit=unit,
    )


def _owners(
    ids: np.ndarray[Any, Any], devices: Sequence[DeviceSet], hosts: int | None, count: int
) -> tuple[np.ndarray[Any, Any], HostUnit]:
    """Return the number of the host or the process of each device, and what it is."""
    if count == 1:
        return np.zeros(1, np.int64), "host"
    if hosts is not None:
        return np.arange(count) // devices_per_host(count, hosts), "host"
    owners = np.zeros(count, np.int64)
    if any(
        (device_set.ids is None and device_set.mesh.platform is None)
        or (device_set.mesh.process_count > 1 and not device_set.processes)
        for device_set in devices
    ):
        return owners, "all devices"
    for device_set in devices:
        for process, of_process in device_set.processes:
            owners[np.isin(ids, of_process)] = process
    is_one = all(
        device_set.mesh.process_count == 1 or device_set.mesh.platform == "tpu" for device_set in devices
    )
    return owners, "host" if is_one else "process"


def exceeded_host_memory(
    required: HostBytes, limit: int, optimizer_words: str, uncounted: Sequence[TreeRow]
) -> Finding | None:
    """Return the finding on a tree that does not fit the memory of a host, or may not fit.

    Args:
        required: The bytes in host memory, with those of the optimizer state that will be added.
        limit: Memory of a host.
        optimizer_words: That state in words; empty if it takes no host memory.
        uncounted: Leaves of unknown size, unless another finding is about them.
    """
    if required.nbytes <= limit:
        return uncounted_memory(uncounted) if uncounted else None
    devices = counted(required.device_count, "device", "devices")
    place = f"all {devices}" if required.unit == "all devices" else f"a {required.unit} of {devices}"
    added = f", with {optimizer_words}" if optimizer_words else ""
    if required.unit == "all devices":
        fix = remedies("If the devices are on several hosts, pass {hosts}.", hosts=Option("hosts"))
    elif required.ideal_nbytes <= limit:
        even = format_bytes(required.ideal_nbytes)
        fix = remedies(f"Evenly sharded, without replicas, it would take {even} per {required.unit}.")
    else:
        fix = remedies("Leave fewer leaves in host memory, or shard them over more hosts.")
    return Finding(
        kind="memory",
        problem=f"The tree takes {format_bytes(required.nbytes)} of host memory for {place}{added}, "
        f"{format_bytes(required.nbytes - limit)} more than the {format_bytes(limit)} of a host.",
        **fix,
    )


class Required(NamedTuple):
    """The memory that a tree takes with the optimizer state that will be added."""

    tree: TreeReport
    """The tree with that state."""

    words: str
    """That state in words; empty if no optimizer is given."""

    uncounted: Sequence[TreeRow]
    """Leaves of unknown size per device."""

    on_host: HostBytes


def required_memory(
    planned: PlannedTree,
    moments: Sequence[Moment[TreeRow]],
    optimizer: str | None,
    moment_dtype: str | None,
    hosts: int | None,
) -> Required:
    """Return the memory that a tree takes.

    Args:
        planned: The tree.
        moments: The optimizer state in the tree.
        optimizer: A key of ``MOMENTS``, for the state that will be added.
        moment_dtype: Dtype of the moments that are added.
        hosts: Number of hosts, as in ``host_bytes``.

    Raises:
        SpecError: (a ValueError) If the devices cannot be divided among the hosts.
        UnsupportedValueError: (a ValueError) If ``hosts`` is not an integer.
    """
    rows = planned.report.rows
    added = added_moments(optimizer, moment_dtype, rows, moments) if optimizer else AddedMoments([], "")
    tree = tree_of_rows([*rows, *added.rows], planned.devices) if added.rows else planned.report
    uncounted = [
        row
        for row in rows
        if row.shard_nbytes is None
        and has_known_sharding(row)
        and not row.is_deleted
        and row.elsewhere is None
    ]
    return Required(tree, added.words, uncounted, host_bytes(tree, planned.devices, hosts))
