"""Compatibility with every supported version of JAX.

Only these modules compare versions, fall back where a version lacks a feature, or use JAX's private
modules. The first function that needs JAX imports it, so importing the core does not.
"""

from __future__ import annotations

import importlib
from typing import Any


def private(name: str) -> Any:
    """Return the module ``jax._src.<name>``."""
    return importlib.import_module(f"jax._src.{name}")
