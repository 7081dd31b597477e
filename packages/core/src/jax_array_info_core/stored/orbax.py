"""Orbax checkpoints: their arrays and shardings, read without Orbax and JAX."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path

from ..arrays.paths import path_text
from ..compat.partition_specs import as_spec
from ..errors import FileFormatError
from ..layouts.spec import MeshAxes
from ..text import printable
from .budget import Budget
from .json_files import decoded
from .leaves import StoredLeaf, StoredSharding, StoredTree
from .npy_headers import dtype_of_code
from .orbax_files import read_file, read_keys
from .orbax_layout import METADATA, item_of
from .regular_files import errors_about

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
    axis_types: tuple[str, ...] | None = None
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
        sharding = shardings.get(base64.urlsafe_b64encode(name.encode()).decode())
        leaves.append(StoredLeaf(path=path_text(keys), shape=array.shape, dtype=dtype, sharding=sharding))
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


def _shardings(directory: Path, budget: Budget) -> dict[str, StoredSharding | None]:
    """Return the shardings, by the encoded names of the arrays."""
    if not (directory / _SHARDINGS).exists():
        return {}
    with errors_about(_SHARDINGS):
        texts = decoded(read_file(directory, _SHARDINGS, budget), dict[str, str])
        ids: dict[str, tuple[int, ...]] = {"": ()}
        known = {text: _sharding(text, ids, budget) for text in {*texts.values()} if text}
    return {name: known.get(text) for name, text in texts.items()}


def _sharding(text: str, ids: dict[str, tuple[int, ...]], budget: Budget) -> StoredSharding | None:
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
        types = tuple(axis_type.rpartition(".")[2] for axis_type in stored.axis_types or ())
        mesh = MeshAxes(stored.axis_names, stored.shape, types)
        if len(set(mesh.names)) != len(mesh.sizes) or len(mesh.types) not in (0, len(mesh.sizes)):
            raise FileFormatError(printable(f"a mesh of sizes {mesh.sizes} with the axes {mesh.names}"))
        devices = text[text.find('"device_mesh"') :] if '"device_mesh"' in text else ""
        if devices not in ids:
            budget.spend("devices", count := devices.count('"id"'))
            ids[devices] = tuple(map(int, re.findall(r'"id":\s*(\d{1,18})\b', devices)))
            if len(ids[devices]) < count:
                raise FileFormatError("the ids of the devices are not valid")
        return StoredSharding("NamedSharding", as_spec(stored.partition_spec), mesh, ids[devices] or None)
    number = re.search(r"\d{1,9}", stored.device_str or "")
    return number and StoredSharding("SingleDeviceSharding", device_ids=(int(number[0]),))
