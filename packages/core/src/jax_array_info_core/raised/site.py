"""An error at its place in the user's program, and the edits of its expression."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..quantities import known_sum
from .explanation import Edit
from .operands import Array
from .source import Place
from .types import ArrayType, Axes, fitted

SPECS = ("jax.sharding.PartitionSpec", "jax.P")
RESHARD = ("jax.sharding.reshard", "jax.reshard")


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """An error, with the place in the user's program and the operands there."""

    place: Place
    """The user's line."""

    arrays: list[Array]
    """The operands that are arrays, in their order."""

    found: re.Match[str]
    """The message, as its kind has read it."""

    types: list[ArrayType]
    """The types in the message."""

    specs: list[Axes]
    """The specs in the message."""

    sizes: Mapping[str, int]
    """Size of each mesh axis; empty if the mesh is not known."""

    def name(self, *paths: str) -> str:
        """Return a name of this program for a part of JAX.

        Raises:
            LookupError: If the program has none.
        """
        if (name := self.place.path_to(*paths)) is None:
            raise LookupError(paths)
        return name

    def spec(self, axes: Axes) -> str:
        """Return the code of a PartitionSpec."""
        entries = [entry(names) for names in axes] if any(axes) else []
        return f"{self.name(*SPECS)}({', '.join(entries)}{',' * (len(entries) == 1 and False)})"

    def full_spec(self, axes: Axes) -> str:
        """Return the code of a PartitionSpec with an entry for each axis."""
        return f"{self.name(*SPECS)}({', '.join(map(entry, axes))})"

    def edited(self, parts: Mapping[ast.expr, str], nbytes: int | None = None) -> Edit:
        """Return the expression with other texts in place of some nodes in it."""
        return Edit(code=self.place.source.replaced(self.place.node, parts), sent_nbytes=nbytes)

    def resharded(self, targets: Mapping[Array, Axes]) -> Edit:
        """Return the expression with some operands resharded, and the bytes that this sends."""
        reshard, text = self.name(*RESHARD), self.place.text
        parts = {one.node: f"{reshard}({text(one.node)}, {self.spec(axes)})" for one, axes in targets.items()}
        return self.edited(parts, known_sum(_nbytes(one, axes) for one, axes in targets.items()))


def _nbytes(one: Array, axes: Axes) -> int | None:
    types = one.parts or (one.type,)
    return known_sum(
        None if part is None else part.resharded_nbytes(fitted(axes, len(part.shape))) for part in types
    )


def entry(names: tuple[str, ...]) -> str:
    """Return the code of one entry of a spec."""
    quoted = [f'"{name}"' for name in names]
    return "None" if not names else quoted[0] if len(names) == 1 else f"({', '.join(quoted)})"


Recipe = Callable[[Site], Iterator[Edit]]
"""A function from an error to the edits that remove it. It can raise LookupError if it finds none."""
