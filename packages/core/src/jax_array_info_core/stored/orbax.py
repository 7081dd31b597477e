"""Orbax checkpoints: their arrays and the shardings with which they were saved."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..arrays.paths import SlashNotation
from ..compat.partition_specs import as_spec
from ..compat.platforms import only_cpu
from ..errors import FileFormatError
from ..layouts.spec import MeshAxes
from ..text import plain_text, printable
from .array_files import missing_library
from .budget import Budget
from .json_files import require_small
from .leaves import StoredLeaf, StoredSharding, StoredTree
from .orbax_layout import METADATA, item_of
from .regular_files import read_whole

_MAX_LEAVES = 2**16
"""Maximum number of leaves: Orbax takes about 8 kB for each."""
_SHARDINGS = "_sharding"
_MAX_SHARDING = 2**24
"""Maximum length of the text of one sharding."""
_MAX_REASON = 300
"""Maximum number of characters of an error of Orbax that are shown: tensorstore's can be long."""
_LATE_SECONDS = 0.1
"""Seconds in which reads of local files end."""


def orbax_tree(directory: Path, budget: Budget, item: str | None = None) -> StoredTree:
    """Return the arrays in an Orbax checkpoint.

    Args:
        directory: Directory of an item, of a step, or of a manager. Of a manager, the newest complete step
            is read.
        budget: What the files may take.
        item: Name of the item, if a step has several.

    Raises:
        FileFormatError: If the directory is not a complete checkpoint, or Orbax is not installed.
        OSError: If it cannot be read.
    """
    place = item_of(directory, item, budget)
    _require_small(place.directory, budget)
    found = _metadata(place.directory)
    import jax

    # None is not a leaf in JAX, but counts as an entry without an array.
    entries, _ = jax.tree_util.tree_flatten_with_path(found, is_leaf=lambda value: value is None)
    arrays = [(keys, value) for keys, value in entries if _is_array(value)]
    paths = SlashNotation().children([keys for keys, _ in arrays])
    leaves = [_leaf(path[1:], value) for path, (_, value) in zip(paths, arrays, strict=True)]
    return StoredTree(
        type_name="Orbax checkpoint", leaves=leaves, others=len(entries) - len(arrays), part=place.part
    )


def _require_small(directory: Path, budget: Budget) -> None:
    """Raise FileFormatError if Orbax would take too much memory to read the metadata."""
    import msgspec

    leaves = read_whole(directory / METADATA, budget).count(b'"key_metadata"')
    if leaves > _MAX_LEAVES:
        raise FileFormatError(f"{leaves:,} leaves exceed the limit of {_MAX_LEAVES:,}")
    if not (directory / _SHARDINGS).exists():
        return
    data = read_whole(directory / _SHARDINGS, budget)
    try:
        texts = msgspec.json.decode(data, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        texts = {}  # Orbax reports the problem
        require_small(data)
    for text in texts.values():
        if len(text) > _MAX_SHARDING:
            raise FileFormatError(
                f"{_SHARDINGS} has a sharding of {len(text):,} characters, too large to read"
            )


def _metadata(directory: Path) -> Any:
    """Return the tree of Orbax's metadata of each leaf."""
    try:
        from etils import epath
        from orbax import checkpoint
    except ImportError as error:
        raise FileFormatError(missing_library("orbax-checkpoint")) from error
    handler = checkpoint.PyTreeCheckpointHandler
    # Without this option, Orbax starts JAX's backends to choose its default.
    known = "enable_pinned_host_transfer" in inspect.signature(handler).parameters
    options = {"enable_pinned_host_transfer": False} if known else {}
    try:
        with only_cpu(), _without_late_reads():
            found = handler(**options).metadata(epath.Path(directory.absolute()))
    except Exception as error:
        # Orbax and tensorstore raise errors of any type for damaged files.
        text = f"{type(error).__name__}: {error}".partition("\n")[0].partition(" [tensorstore_spec=")[0]
        raise FileFormatError(f"orbax-checkpoint cannot read it: {printable(text[:_MAX_REASON])}") from error
    return getattr(found, "tree", found)


@contextlib.contextmanager
def _without_late_reads() -> Iterator[None]:
    """Ignore the reads of tensorstore that end after another one has failed and Orbax has closed its loop.

    Python would print a traceback for each of them.
    """
    previous = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, RuntimeError) or "loop is closed" not in str(
            unraisable.exc_value
        ):
            previous(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    except Exception:
        time.sleep(_LATE_SECONDS)
        raise
    finally:
        sys.unraisablehook = previous


def _is_array(value: Any) -> bool:
    """Return whether Orbax's metadata describes an array, not a Python number, a string or nothing."""
    return hasattr(value, "shape") and not type(value).__name__.startswith("Scalar")


def _leaf(path: str, metadata: Any) -> StoredLeaf:
    try:
        return StoredLeaf(
            path=path,
            shape=tuple(map(int, metadata.shape)),
            dtype=plain_text(metadata.dtype),
            sharding=None if metadata.sharding is None else _sharding(metadata.sharding),
        )
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise FileFormatError(f"{printable(path)}: {printable(str(error))}") from error


def _sharding(stored: Any) -> StoredSharding | None:
    """Return Orbax's description of a sharding; None for one without a mesh and a device."""
    memory_kind = getattr(stored, "memory_kind", None)
    if hasattr(stored, "partition_spec"):
        types = getattr(stored, "axis_types", None) or ()
        mesh = MeshAxes(
            tuple(map(plain_text, stored.axis_names)),
            tuple(map(int, stored.shape)),
            tuple(plain_text(getattr(axis_type, "name", axis_type)) for axis_type in types),
        )
        if len(set(mesh.names)) != len(mesh.sizes) or len(mesh.types) not in (0, len(mesh.sizes)):
            raise ValueError(f"a mesh of sizes {mesh.sizes} with the axes {mesh.names}")
        devices = getattr(stored, "device_mesh", None)
        ids = None if devices is None else tuple(_ids(devices.mesh))
        return StoredSharding("NamedSharding", as_spec(stored.partition_spec), mesh, ids, memory_kind)
    number = re.search(r"\d+", plain_text(getattr(stored, "device_str", "")))
    if number is None:
        return None
    return StoredSharding("SingleDeviceSharding", device_ids=(int(number[0]),), memory_kind=memory_kind)


def _ids(devices: Any) -> list[int]:
    """Return the device ids in nested lists, in order."""
    if isinstance(devices, (list, tuple)):
        return [number for part in devices for number in _ids(part)]
    return [int(devices.id)]
