"""Modules that JAX keeps private."""

from __future__ import annotations

import importlib
from typing import Any


def private(name: str) -> Any:
    """Return a module that jax keeps private."""
    return importlib.import_module(f"jax._src.{name}")
