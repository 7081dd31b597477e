"""Settings that hold for the whole process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Config:
    """Settings; a misspelt one is an AttributeError."""

    assign_labels_to_arrays: bool = True
    """Whether names are remembered as labels of the arrays they were given for, and shown in tables."""


config = Config()
"""The settings in force."""
