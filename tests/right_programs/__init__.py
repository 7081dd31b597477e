"""Programs that divide their work as well as they can, by the name of the scheme: nothing in them is repeated."""

from . import models, science, training
from .registry import PROGRAMS, repetitions_of

FAMILIES = {name.partition(",")[0]: name for name in reversed(PROGRAMS)}
"""The first program of each family: those whose names are the same up to a comma."""

VARIANTS = [name for name in PROGRAMS if name not in FAMILIES.values()]
"""The others, which ``tests/fuzz`` tries."""

__all__ = ["FAMILIES", "PROGRAMS", "VARIANTS", "models", "repetitions_of", "science", "training"]
