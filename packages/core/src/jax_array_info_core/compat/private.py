"""Access to JAX's private modules."""

from __future__ import annotations

import importlib
from typing import Any


def private(name: str) -> Any:
    """Return the module ``jax._src.<name>``."""
    return importlib.import_module(f"jax._src.{name}")
