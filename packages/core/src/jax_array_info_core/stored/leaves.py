"""Leaves and trees as files describe them, and MaxText's dumps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..arrays.paths import path_text
from ..errors import FileFormatError
from ..layouts.spec import Spec
from ..reading_lock import prepared
from ..reports.array import Leaf
from ..text import printable, unquoted
from .elements import Elements
from .reading import Budget

Progress = Callable[[int, int], None]
"""Is called with the number of parts that were read, and the number of all parts."""


class StoredSharding(NamedTuple):
    """A sharding as a file has it: it need not fit its array, or be possible at all."""

    spec: Spec | None = None
    """Spec of a NamedSharding."""

    mesh: tuple[tuple[str, int], ...] | None = None
    """Name and size of each mesh axis of a NamedSharding; None for a SingleDeviceSharding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLeaf(Leaf):
    """An array in a file."""

    shape: tuple[int, ...]
    """Global shape."""

    sharding: StoredSharding | None = None
    """Sharding of the leaf; None if the file has none."""

    device_ids: tuple[int, ...] | None = None
    """Ids of the devices, in the order of the mesh; None for its positions 0…n−1."""

    logical: Spec | None = None
    """Logical axis names."""

    open_elements: Callable[[], Elements] | None = None
    """Opens its elements; None if the file has none."""


def _nothing_open() -> None:
    """Close nothing: each open array has a file of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTree:
    """The arrays in a file or a checkpoint."""

    type_name: str
    """Name of the format."""

    leaves: Sequence[StoredLeaf]
    """The arrays."""

    others: int = 0
    """Number of entries that are not arrays."""

    part: str = ""
    """The part of a checkpoint that was read, such as ``step 10``."""

    close: Callable[[], None] = _nothing_open
    """Ends what open elements share: the program that reads a checkpoint."""


_KEY = re.compile(
    r"""\.(?P<name>[^/]+)
    | \[(?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")\]
    | \[(?:<flat\ index\ )?(?P<other>[^]/]*?)>?\]
    """,
    re.VERBOSE,
)
"""One key as JAX writes it: of a field, of a dict, or of a sequence."""


@dataclass(frozen=True, slots=True)
class _Mesh:
    axis_names: tuple[str, ...]
    shape: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Leaf:
    partition_spec: tuple[str | tuple[str, ...] | None, ...]
    shape: tuple[int, ...]
    mesh: _Mesh | None = None


def is_maxtext(value: Any) -> bool:
    """Return whether a JSON value is a sharding dump."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(leaf, dict) and "partition_spec" in leaf for leaf in value.values())
    )


def maxtext_tree(dump: dict[str, Any], dtype: str, budget: Budget) -> StoredTree:
    """Return the leaves of a sharding dump.

    The spec of a leaf with a mesh is its PartitionSpec; without one, it names logical axes.

    Args:
        dump: Mesh, spec and shape of each leaf, by its key path.
        dtype: Name of the dtype of all leaves, which the format lacks.
        budget: What the file may take.

    Raises:
        FileFormatError: If a leaf is not valid.
    """
    import msgspec

    meshes: dict[tuple[Any, ...], tuple[tuple[str, int], ...]] = {}
    leaves = []
    budget.spend("arrays", len(dump))
    for text, fields in dump.items():
        try:
            leaf = msgspec.convert(fields, prepared(_Leaf))
        except (msgspec.ValidationError, RecursionError) as error:
            raise FileFormatError(f"{printable(text)}: {printable(str(error))}") from error
        spec = Spec(
            tuple((entry,) if isinstance(entry, str) else entry or () for entry in leaf.partition_spec)
        )
        budget.spend("values", text.count("/") + text.count("\\"))
        sharding = None
        if leaf.mesh is not None:
            key = (leaf.mesh.axis_names, *leaf.mesh.shape.items())
            if key not in meshes:
                meshes[key] = _mesh_axes(text, leaf.mesh)
            sharding = StoredSharding(spec, meshes[key])
        leaves.append(
            StoredLeaf(
                path=path_text(keys_of(text)),
                shape=leaf.shape,
                dtype=dtype,
                sharding=sharding,
                logical=spec if sharding is None else None,
            )
        )
    return StoredTree(type_name="MaxText dump", leaves=leaves)


def _mesh_axes(text: str, mesh: _Mesh) -> tuple[tuple[str, int], ...]:
    names = mesh.axis_names
    if len(set(names)) < len(names) or set(names) != set(mesh.shape):
        axes = ", ".join(map(repr, names))
        raise FileFormatError(
            printable(
                f"{text}: the mesh has the axes {axes}, but sizes of {', '.join(map(repr, mesh.shape))}"
            )
        )
    return tuple((name, mesh.shape[name]) for name in names)


def keys_of(text: str) -> tuple[str, ...]:
    """Return the keys of a path in the notation of MaxText: JAX's text of each key, joined by ``/``.

    Text that is not in this notation is one key up to the next ``/``.

    >>> keys_of(".opt_state/[0]/.mu/['params']/['a/b']")
    ('opt_state', '0', 'mu', 'params', 'a/b')
    """
    keys: list[str] = []
    start = 0
    while text and start <= len(text):
        match = _KEY.match(text, start)
        if match is None or text[match.end() : match.end() + 1] not in ("", "/"):
            end = text.find("/", start)
            end = len(text) if end < 0 else end
            keys.append(text[start:end])
        else:
            end = match.end()
            keys.append(_key(match))
        start = end + 1
    return tuple(keys)


def _key(match: re.Match[str]) -> str:
    if match["text"] is None:
        return match["name"] or match["other"]
    return unquoted(match["text"])
