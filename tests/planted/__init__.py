"""Programs with a mistake in a marked line, each with its right version."""

from . import simulations, transformer
from .registry import PLANTED, checked

__all__ = ["PLANTED", "checked", "simulations", "transformer"]
