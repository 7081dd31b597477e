"""Rows of a program that are equal but for their named scopes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from ..reports.program import Collective
from ..reports.program_memory import Temporary

MOST_SCOPES = 16
"""Maximum number of named scopes of a row."""

_Row = TypeVar("_Row", Collective, Temporary)


def merged(rows: Iterable[_Row]) -> list[_Row]:
    """Return rows with those merged that differ at most in their scopes, in the order of the first."""
    scopes: dict[_Row, list[tuple[str, ...]]] = {}
    for row in rows:
        scopes.setdefault(replace(row, scopes=()), []).append(row.scopes)
    return [
        replace(row, count=len(found), scopes=tuple(dict.fromkeys(sum(found, ())))[:MOST_SCOPES])
        for row, found in scopes.items()
    ]
