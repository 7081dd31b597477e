"""Programs that divide their work as well as they can, by the name of the scheme: nothing in them is repeated."""

from . import models, science, training
from .registry import PROGRAMS, compiled_for

__all__ = ["PROGRAMS", "compiled_for", "models", "science", "training"]
