"""Reports: frozen dataclasses with the facts about an array, a mesh, a tree or a program.

They hold plain values and numpy arrays of device ids. They keep no JAX array alive and draw nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .all_reports import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Return a report class or ``Report``. At first use, all of them are imported."""
    classes = vars(import_module(".all_reports", __name__)) if name[0].isupper() else {}
    if name not in classes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return classes[name]
