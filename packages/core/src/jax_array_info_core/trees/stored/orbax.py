"""Orbax checkpoints: their arrays and shardings, read without Orbax and JAX."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...arrays.paths import path_text
from ...base.errors import FileFormatError
from ...base.text import printable
from ...geometry.layouts.spec import as_spec
from . import ocdbt
from .array_files import dtype_of_code
from .reading import LIMITS, Budget, StoredLeaf, StoredSharding, StoredTree, decoded, errors_about, read_whole

_SECONDS = 15
"""Longest time in which the database is read."""


def read_file(directory: Path, name: str, budget: Budget) -> bytes:
    """Return the content of a file of an item.

    Raises:
        FileFormatError: If it is missing, not a regular file, or exceeds the budget.
        OSError: If it cannot be read.
    """
    try:
        return read_whole(Path(f"{directory}/{name}"), budget)
    except FileNotFoundError:
        raise FileFormatError("missing") from None


def read_keys(directory: Path, keys: Sequence[str], is_database: bool | None, budget: Budget) -> list[bytes]:
    """Return the metadata of arrays.

    Args:
        directory: Directory of the item.
        keys: Paths of the metadata in the directory or in its database, such as ``params.w/.zarray``.
        is_database: Whether it has a database; None if this is not known.
        budget: What the files may take.

    Raises:
        FileFormatError: If one is missing, or TensorStore is needed but not installed.
        OSError: If one cannot be read.
    """
    if is_database is None:  # metadata before Orbax 0.6 does not say
        is_database = (directory / ocdbt.MANIFEST).exists()
    if keys and is_database:
        return _read_database(directory, keys, budget)
    contents = []
    for key in keys:
        with errors_about(key):
            path = key.replace("\\", "/")  # as TensorStore does
            if ".." in path.split("/"):
                raise FileFormatError("outside of the checkpoint")
            contents.append(read_file(directory, path, budget))
    return contents


def _read_database(directory: Path, keys: Sequence[str], budget: Budget) -> list[bytes]:
    """Return the contents of keys. A program reads them, which may crash and can be killed."""
    if importlib.util.find_spec("tensorstore") is None:
        install = "pip install 'jax-array-info[checkpoint]'"
        raise FileFormatError(f"reading it needs tensorstore, which is not installed: {install}")
    _require_regular(directory)
    with errors_about(ocdbt.MANIFEST):
        read_file(directory, ocdbt.MANIFEST, budget)
    request = {"directory": os.path.abspath(directory), "keys": keys, "limit": LIMITS["bytes"]}
    try:
        done = subprocess.run(
            [sys.executable, "-P", ocdbt.__file__],  # its folder has modules with names of libraries
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise FileFormatError(f"reading it takes longer than {_SECONDS} seconds") from None
    budget.spend("bytes", len(done.stdout))
    problem, contents = f"{ocdbt.PROBLEM}it crashed", {}
    with contextlib.suppress(ValueError):  # no answer, or a part of one
        problem, contents = json.loads(done.stdout)
    if problem:
        raise FileFormatError(printable(problem))
    for key, content in contents.items():
        if content is None:
            raise FileFormatError(f"{printable(key)}: missing")
    return [contents[key].encode() for key in keys]


def _require_regular(directory: Path) -> None:
    """Raise FileFormatError if the directory has a file that TensorStore could wait for."""
    for folder, folders, names in os.walk(directory):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            # Files in /proc have no size, and can only be links here.
            is_file = stat.S_ISLNK(mode) and os.path.isfile(path) and os.path.getsize(path) > 0
            if not (is_file or stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                shown = printable(os.path.relpath(path, directory))
                raise FileFormatError(f"{shown}: a device, a pipe or a link, not a regular file")


METADATA = "_METADATA"
"""File that an item with arrays has."""
_STEP_METADATA = "_CHECKPOINT_METADATA"
_COMMITTED = "commit_success.txt"
_UNFINISHED = ".orbax-checkpoint-tmp"
_STEP = re.compile(r"(?:.*_)?([0-9]{1,18})")
_SHOWN = 10
_NOT_COMPLETE = (
    "an Orbax checkpoint that is not completely written: use an earlier step, or wait for the save"
)


class Place(NamedTuple):
    """The directory of an item."""

    directory: Path
    part: str
    """The step and the item that were chosen; empty if neither was."""


def item_of(directory: Path, item: str | None, budget: Budget) -> Place:
    """Return the item to read in a directory of Orbax.

    Args:
        directory: Directory of an item, of a step, or of a manager.
        item: Name of the item; None for the only one.
        budget: What the files may take.

    Raises:
        FileFormatError: If there is no complete checkpoint, or the item is not known.
        OSError: If a directory cannot be read.
    """
    absolute = Path(os.path.abspath(directory))
    if any(_UNFINISHED in name for name in absolute.parts):
        raise FileFormatError(_NOT_COMPLETE)
    names = _subdirectories(directory)
    if (directory / METADATA).is_file():
        _require_complete(directory, budget)
        if item not in (None, absolute.name):
            raise FileFormatError(f"this is the directory of one item, which has no item {_quoted(item)}")
        return Place(directory, "")
    if not (directory / _STEP_METADATA).exists() and (steps := _steps(directory, names)):
        return _newest(directory, steps, item, budget)
    if (directory / _STEP_METADATA).exists() or _items(directory, names):
        _require_complete(directory, budget)
        return _item_of_step(directory, names, item, "")
    raise FileFormatError(_not_a_checkpoint(directory, names))


def _subdirectories(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if os.path.isdir(entry))  # entry.is_dir fails on loops


def _items(directory: Path, names: list[str]) -> list[str]:
    """Return the items with arrays in the directory of a step."""
    complete = [name for name in names if _UNFINISHED not in name]
    return [name for name in complete if (directory / name / METADATA).is_file()]


def _steps(directory: Path, names: list[str]) -> list[tuple[int, str]]:
    """Return number and name of each step in the directory of a manager, the newest first."""
    numbers = ((_STEP.fullmatch(name.partition(_UNFINISHED)[0]), name) for name in names)
    steps = (
        (int(number[1]), name)
        for number, name in numbers
        if number and (_UNFINISHED in name or _is_step(directory / name))
    )
    return sorted(steps, reverse=True)


def _is_step(directory: Path) -> bool:
    known = (METADATA, _STEP_METADATA)
    return any((directory / name).exists() for name in known) or bool(
        _items(directory, _subdirectories(directory))
    )


def _newest(directory: Path, steps: list[tuple[int, str]], item: str | None, budget: Budget) -> Place:
    """Return the item of the newest complete step."""
    for number, name in steps:
        step = directory / name
        if _UNFINISHED in name or not _is_complete(step, budget):
            continue
        part = f"step {number}"
        if (step / METADATA).is_file():
            return Place(step, part)
        return _item_of_step(step, _subdirectories(step), item, part)
    names = ", ".join(printable(name) for _, name in steps[:_SHOWN])
    raise FileFormatError(f"no step of this Orbax checkpoint was completely written: {names}")


def _item_of_step(directory: Path, names: list[str], item: str | None, part: str) -> Place:
    """Return the chosen item of a step, or its only item with arrays."""
    items = _items(directory, names)
    known = ", ".join(map(_quoted, items[:_SHOWN])) + (", …" if len(items) > _SHOWN else "")
    place = part or "the directory"
    if not items:
        raise FileFormatError(f"{place} has no item with arrays")
    if item is None and len(items) > 1:
        raise FileFormatError(
            f"{place} has the items {known}: choose one with item={_quoted(items[0])}, "
            f"or pass {printable(os.fspath(directory / items[0]))}"
        )
    chosen = items[0] if item is None else item
    if chosen not in items:
        raise FileFormatError(f"{place} has no item {_quoted(chosen)} with arrays: it has {known}")
    named = f"item {printable(chosen)}" if len(items) > 1 else ""
    return Place(directory / chosen, ", ".join(filter(None, (part, named))))


def _require_complete(directory: Path, budget: Budget) -> None:
    if not _is_complete(directory, budget):
        raise FileFormatError(_NOT_COMPLETE)


def _is_complete(directory: Path, budget: Budget) -> bool:
    """Return whether the checkpoint in a directory was committed. Checkpoints before Orbax 0.6 do not say."""
    if any(_UNFINISHED in name for name in _subdirectories(directory)):
        return False
    if (directory / _COMMITTED).exists() or not (directory / _STEP_METADATA).exists():
        return True
    try:
        metadata = json.loads(read_whole(directory / _STEP_METADATA, budget))
    except (ValueError, RecursionError):
        return False
    return isinstance(metadata, dict) and metadata.get("commit_timestamp_nsecs") is not None


def _not_a_checkpoint(directory: Path, names: list[str]) -> str:
    """Return why a directory cannot be read, with the file in it that can be."""
    files = sorted(path.name for path in directory.iterdir() if path.is_file())
    if not files and not names:
        return "an empty directory"
    problem = "a directory that is not an Orbax checkpoint"
    for suffix in (".safetensors.index.json", ".safetensors", "_shardings.json", ".npz"):
        for name in files:
            if name.endswith(suffix):
                return f"{problem}: choose a file in it, such as {printable(name)}"
    return problem


def _quoted(name: str | None) -> str:
    return printable(repr(name))


_MAX_OBJECTS = 2**22
"""Maximum number of JSON objects in the metadata; an array has three, and one for each key of its path."""
_MAX_AXES = 64
_SHARDINGS = "_sharding"
_ARRAYS = ("jax.Array", "np.ndarray")
_EMPTY_CONTAINERS = ("Dict", "List", "Tuple")
_OTHERS = ("scalar", "string")


@dataclass(frozen=True, slots=True)
class _Key:
    key: str


@dataclass(frozen=True, slots=True)
class _Value:
    value_type: str
    skip_deserialize: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    key_metadata: tuple[_Key, ...]
    value_metadata: _Value


@dataclass(frozen=True, slots=True)
class _Metadata:
    tree_metadata: dict[str, _Entry]
    use_ocdbt: bool | None = None
    use_zarr3: bool = False


@dataclass(frozen=True, slots=True)
class _Array:
    """An array of Zarr; ``data_type`` is the name in version 3, ``dtype`` a code or a name in version 2."""

    shape: tuple[int, ...]
    dtype: str = ""
    data_type: str = ""


@dataclass(frozen=True, slots=True)
class _Sharding:
    sharding_type: str
    shape: tuple[int, ...] = ()
    axis_names: tuple[str, ...] = ()
    partition_spec: tuple[str | tuple[str, ...] | None, ...] = ()
    device_str: str | None = None


def orbax_tree(directory: Path, budget: Budget, item: str | None = None) -> StoredTree:
    """Return the arrays in an Orbax checkpoint.

    Args:
        directory: Directory of an item, of a step, or of a manager. Of a manager, the newest complete step
            is read.
        budget: What the files may take.
        item: Name of the item, if a step has several.

    Raises:
        FileFormatError: If the directory is not a complete checkpoint, or TensorStore is needed but not
            installed.
        OSError: If it cannot be read.
    """
    place = item_of(directory, item, budget)
    with errors_about(METADATA):
        data = read_file(place.directory, METADATA, budget)
        if data.count(b"{") > _MAX_OBJECTS:
            raise FileFormatError(f"more than {_MAX_OBJECTS:,} keys and values")
        metadata = decoded(data, _Metadata)
    budget.spend("arrays", len(metadata.tree_metadata))
    arrays, others = _entries(metadata)
    file = "zarr.json" if metadata.use_zarr3 else ".zarray"
    names = [".".join(keys) for keys in arrays]
    files = [f"{name.removesuffix('/')}/{file}" if name else file for name in names]
    contents = read_keys(place.directory, files, metadata.use_ocdbt, budget)
    shardings = _shardings(place.directory, budget)
    leaves = []
    for keys, name, file, content in zip(arrays, names, files, contents, strict=True):
        with errors_about(file):
            array = decoded(content, _Array)
            dtype = dtype_of_code(array.dtype or array.data_type).name
            if dtype is None:
                raise FileFormatError("not an array of numbers")
        sharding, ids = shardings.get(base64.urlsafe_b64encode(name.encode()).decode()) or (None, None)
        leaves.append(
            StoredLeaf(
                path=path_text(keys), shape=array.shape, dtype=dtype, sharding=sharding, device_ids=ids
            )
        )
    return StoredTree(type_name="Orbax checkpoint", leaves=leaves, others=others, part=place.part)


def _entries(metadata: _Metadata) -> tuple[list[list[str]], int]:
    """Return the keys of each array, and the number of entries without one, such as None or a string."""
    arrays = []
    others = 0
    for path, entry in metadata.tree_metadata.items():
        value = entry.value_metadata
        if value.skip_deserialize or value.value_type in _OTHERS:
            others += value.value_type not in _EMPTY_CONTAINERS
        elif value.value_type in _ARRAYS:
            arrays.append([key.key for key in entry.key_metadata])
        else:
            raise FileFormatError(printable(f"{path}: the type {value.value_type!r} is not known"))
    return arrays, others


_OnDevices = tuple[StoredSharding, tuple[int, ...] | None]
"""A sharding, and the ids of its devices; None for the positions in its mesh."""


def _shardings(directory: Path, budget: Budget) -> dict[str, _OnDevices | None]:
    """Return the shardings, by the encoded names of the arrays."""
    if not (directory / _SHARDINGS).exists():
        return {}
    with errors_about(_SHARDINGS):
        texts = decoded(read_file(directory, _SHARDINGS, budget), dict[str, str])
        ids: dict[str, tuple[int, ...]] = {"": ()}
        known = {text: _sharding(text, ids, budget) for text in {*texts.values()} if text}
    return {name: known.get(text) for name, text in texts.items()}


def _sharding(text: str, ids: dict[str, tuple[int, ...]], budget: Budget) -> _OnDevices | None:
    """Return Orbax's description of a sharding; None for one without a mesh and a device.

    Args:
        text: The description.
        ids: The device ids in each nested list that was read.
        budget: What the files may take.
    """
    stored = decoded(text, _Sharding)
    if max(map(len, (stored.shape, stored.axis_names, stored.partition_spec))) > _MAX_AXES:
        raise FileFormatError(f"a mesh or a spec of more than {_MAX_AXES} axes")
    if stored.sharding_type == "NamedSharding":
        mesh = dict(zip(stored.axis_names, stored.shape, strict=False))
        if not len(mesh) == len(stored.axis_names) == len(stored.shape):
            names = stored.axis_names
            raise FileFormatError(printable(f"a mesh of sizes {stored.shape} with the axes {names}"))
        devices = text[text.find('"device_mesh"') :] if '"device_mesh"' in text else ""
        if devices not in ids:
            budget.spend("devices", count := devices.count('"id"'))
            ids[devices] = tuple(map(int, re.findall(r'"id":\s*(\d{1,18})\b', devices)))
            if len(ids[devices]) < count:
                raise FileFormatError("the ids of the devices are not valid")
        return StoredSharding(as_spec(stored.partition_spec), tuple(mesh.items())), ids[devices] or None
    number = re.search(r"\d{1,9}", stored.device_str or "")
    return number and (StoredSharding(), (int(number[0]),))
