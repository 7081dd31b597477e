"""Kinds of errors that JAX raises in Explicit mode: message, rule and recipes for edits."""

from __future__ import annotations

from .kind import Kind
from .recipes import as_another, out_sharding, unsharded

KINDS: tuple[Kind, ...] = (
    Kind(
        name="incompatible operands",
        pattern=r"(?P<primitive>\w+) got incompatible shardings for broadcasting: (?P<specs>.*)",
        rule="{primitive} needs operands that are sharded alike along each dimension, got {specs}",
        recipes=(as_another,),
    ),
    Kind(
        name="ambiguous contraction",
        pattern=r"Contracting dimensions are sharded and it is ambiguous how the output should be sharded",
        rule="{call} contracts a dimension that is sharded: the sharding of the result must be given",
        recipes=(out_sharding,),
    ),
    Kind(
        name="accumulated dimension",
        pattern=r"Input should be unsharded over the axis being reduced\. .*axis=(?P<dims>\d+)",
        rule="{call} accumulates along dimension {dims}, which must not be sharded",
        recipes=(unsharded,),
    ),
)
"""The first kind that matches the beginning of a message explains it."""
