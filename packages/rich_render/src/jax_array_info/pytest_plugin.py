"""Pytest plugin: the fixture ``sharding_snapshot`` and its option.

The ``conftest.py`` in the root folder of a project loads it::

    pytest_plugins = ["jax_array_info.pytest_plugin"]

It imports neither JAX, NumPy nor Rich before a test uses the fixture.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_FOLDER = "__shardings__"
_OPTION = "--sharding-update"
_MOST_CHARACTERS = 100


def pytest_addoption(parser: Any) -> None:
    """Add the option ``--sharding-update``."""
    parser.getgroup("jax-array-info").addoption(
        _OPTION,
        action="store_true",
        help="write the files that the fixture sharding_snapshot compares with",
    )


def _snapshot_of(request: Any) -> Callable[..., None]:
    """Compare the shardings of a tree with those that an earlier run stored next to the test.

    The fixture is a function ``sharding_snapshot(tree, name=None)``. It raises ``CheckError`` (an
    AssertionError) if a leaf was added or removed, or has another shape, dtype, partition spec or memory
    kind. Equivalent specs are equal, as in ``tree_diff_report``; on a mesh of one device, where all specs are
    equivalent, they are compared as they are written. ``pytest --sharding-update`` writes the files: a line
    per leaf, the same on each machine, to be committed with the test.

    Call it several times in a test to compare several trees, each with a name.
    """
    used: set[str] = set()

    def sharding_snapshot(tree: Any, name: str | None = None) -> None:
        __tracebackhide__ = True
        from jax_array_info_core.trees import tree_diff as snapshots

        if not isinstance(name, str | None):
            raise TypeError(f"name must be a string, got {name!r}")
        path = _path(request, name)
        if path.name in used:
            raise ValueError(
                f"sharding_snapshot was already called with name={name!r} in this test: pass another name"
            )
        used.add(path.name)
        if request.config.getoption(_OPTION):
            snapshots.update(path, tree)
        else:
            shown = os.path.relpath(path, request.config.invocation_params.dir)
            snapshots.compare(path, tree, shown=shown, command=_command(request))

    return sharding_snapshot


sharding_snapshot = pytest.fixture(_snapshot_of)


def _path(request: Any, name: str | None) -> Path:
    """Return the path of the file for a call in the current test.

    It is ``__shardings__/test_file/TestClass.test_name[id]-name.json`` in the folder of the test.
    """
    test, bracket, parameters = request.node.name.partition("[")
    classes = [node.name for node in request.node.listchain() if isinstance(node, pytest.Class)]
    stem = ".".join([*classes, _safe(test)])
    if bracket:
        stem += f"[{_safe(parameters.removesuffix(']'))}]"
    if name is not None:
        stem += f"-{_safe(name)}"
    folder = Path(request.node.path)
    return folder.parent / _FOLDER / folder.stem / f"{stem}.json"


def _safe(text: str) -> str:
    """Return text that can be part of a file name; different texts have different results.

    Characters other than letters, digits and ``_.,=+-`` become ``_``, and a hash of the text is added.
    """
    safe = re.sub(r"[^\w.,=+-]", "_", text, flags=re.ASCII)[:_MOST_CHARACTERS]
    if safe == text:
        return text
    return f"{safe}-{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()[:8]}"


def _command(request: Any) -> str:
    """Return the command that writes the files of the current test, from the folder in which pytest runs."""
    _, separator, test = request.node.nodeid.partition("::")
    path = os.path.relpath(request.node.path, request.config.invocation_params.dir)
    return f"pytest {shlex.quote(path + separator + test)} {_OPTION}"
