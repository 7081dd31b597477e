"""Files of Orbax with the metadata of arrays: one for each array, or OCDBT, a database in files."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import FileFormatError
from ..text import printable
from .budget import Budget
from .regular_files import errors_about, read_whole

_MANIFEST = "manifest.ocdbt"
_SECONDS = 15
"""Longest time in which the database is read."""
_MAX_NODE = 2**27
"""Maximum size of a node of the database in memory; that of Orbax is 10⁸ bytes."""
_CONTEXT = {
    "cache_pool": {"total_bytes_limit": 10**8},
    "file_io_concurrency": {"limit": 1},
    "data_copy_concurrency": {"limit": 1},
}
"""Limits of TensorStore: without the cache, it would read a node again for each key."""
_AT_ONCE = 2**7
"""Keys that are read at the same time: the value of each can have a megabyte."""
_MAX_REASON = 300
"""Maximum number of characters of an error of TensorStore that are shown."""


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
    if keys and ((directory / _MANIFEST).exists() if is_database is None else is_database):
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
    try:
        import tensorstore
    except ImportError as error:
        install = "pip install 'jax-array-info[checkpoint]'"
        raise FileFormatError(f"reading it needs tensorstore, which is not installed: {install}") from error
    _require_regular(directory)
    with errors_about(_MANIFEST):
        read_file(directory, _MANIFEST, budget)
    base = {"driver": "file", "path": f"{os.path.abspath(directory)}/"}
    context = tensorstore.Context(_CONTEXT)
    deadline = time.time() + _SECONDS
    try:
        files = tensorstore.KvStore.open(base, context=context).result(deadline=deadline)
        manifest = tensorstore.ocdbt.dump(files, context=context).result(deadline=deadline)
        _require_small(manifest, budget)
        opened = tensorstore.KvStore.open({"driver": "ocdbt", "base": base}, context=context)
        store = opened.result(deadline=deadline)
        found: dict[str, bytes] = {}
        ordered = sorted(keys)  # keys of one node are read together
        for start in range(0, len(ordered), _AT_ONCE):
            reads = [(key, store.read(key)) for key in ordered[start : start + _AT_ONCE]]
            for key, read in reads:
                result = read.result(deadline=deadline)
                if result.state != "value":
                    raise FileFormatError(f"{printable(key)}: missing")
                budget.spend("bytes", len(result.value))
                found[key] = result.value
    except FileFormatError:
        raise
    except TimeoutError as error:
        raise FileFormatError(f"reading it takes longer than {_SECONDS} seconds") from error
    except Exception as error:
        # TensorStore raises errors of any type for damaged files.
        text = str(error).partition("\n")[0].partition(" [source locations=")[0]
        raise FileFormatError(f"tensorstore cannot read it: {printable(text[:_MAX_REASON])}") from error
    return [found[key] for key in keys]


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


def _require_small(manifest: Any, budget: Budget) -> None:
    """Raise FileFormatError if the nodes of the database are too large to read."""
    nbytes = manifest["config"]["max_decoded_node_bytes"]
    if nbytes > _MAX_NODE:
        raise FileFormatError(f"nodes of {nbytes:,} bytes exceed the limit of {_MAX_NODE:,}")
    budget.spend("bytes", manifest["versions"][-1]["root"]["statistics"]["num_tree_bytes"])
