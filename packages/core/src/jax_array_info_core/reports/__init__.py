"""Reports: frozen dataclasses with the facts about an array, a mesh, a tree or a program.

They hold plain values and numpy arrays of device ids. They keep no JAX array alive and draw nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..names import import_on_demand

if TYPE_CHECKING:
    from .all_reports import *  # noqa: F403
else:
    _classes, _get, __dir__ = import_on_demand(__name__, "all_reports", rooms=())
    __all__ = sorted({*_classes, "Report"} - {"ShardingLayout"})

    def __getattr__(name: str) -> Any:
        return import_module(".all_reports", __name__).Report if name == "Report" else _get(name)
