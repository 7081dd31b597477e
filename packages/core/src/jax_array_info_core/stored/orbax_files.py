"""Files of Orbax with the metadata of arrays: one for each array, or OCDBT, a database in files."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import FileFormatError
from ..text import printable
from . import ocdbt
from .budget import LIMITS, Budget
from .regular_files import errors_about, read_whole

_MANIFEST = "manifest.ocdbt"
_SECONDS = 15
"""Longest time in which the database is read."""
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
    """Return the contents of keys. A program reads them, which may crash and can be killed."""
    if importlib.util.find_spec("tensorstore") is None:
        install = "pip install 'jax-array-info[checkpoint]'"
        raise FileFormatError(f"reading it needs tensorstore, which is not installed: {install}")
    _require_regular(directory)
    with errors_about(_MANIFEST):
        read_file(directory, _MANIFEST, budget)
    # -P: the folder of the program has modules with names of libraries.
    command = [sys.executable, "-P", ocdbt.__file__, os.path.abspath(directory), str(LIMITS["bytes"])]
    try:
        finished = subprocess.run(
            command,
            input=json.dumps(keys).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired as error:
        raise FileFormatError(f"reading it takes longer than {_SECONDS} seconds") from error
    budget.spend("bytes", len(finished.stdout))
    answer = json.loads(finished.stdout or '{"error": "it crashed"}')
    if "limit" in answer:
        raise FileFormatError(answer["limit"])
    if "error" in answer:
        text = answer["error"].partition("\n")[0].partition(" [source locations=")[0]
        raise FileFormatError(f"tensorstore cannot read it: {printable(text[:_MAX_REASON])}")
    for key, content in answer["contents"].items():
        if content is None:
            raise FileFormatError(f"{printable(key)}: missing")
    return [answer["contents"][key].encode() for key in keys]


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
