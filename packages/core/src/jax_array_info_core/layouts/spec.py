"""Mesh axes and partition specs as plain values."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class MeshAxes:
    """The axes of a device mesh."""

    names: tuple[str, ...]
    """Axis names, in the order of the mesh."""

    sizes: tuple[int, ...]
    """Number of devices along each axis."""

    types: tuple[str, ...] = ()
    """``Auto``, ``Explicit`` or ``Manual`` for each axis; empty in versions of JAX without axis types."""

    @property
    def shape(self) -> dict[str, int]:
        """Size of each axis by name, like ``Mesh.shape``."""
        return dict(zip(self.names, self.sizes, strict=True))


@dataclass(frozen=True, slots=True)
class Spec:
    """A PartitionSpec as plain values: the mesh axes over which each array axis is sharded."""

    axes: tuple[tuple[str, ...], ...]
    """Mesh axes of each array axis, major to minor; empty for an unsharded axis."""

    unconstrained: tuple[int, ...] = ()
    """Indices of the array axes that the spec leaves to XLA."""

    unreduced: tuple[str, ...] = ()
    """Mesh axes over which the values are partial sums."""

    def __str__(self) -> str:
        unconstrained = set(self.unconstrained)
        entries = tuple(
            "UNCONSTRAINED" if axis in unconstrained else _entry(names)
            for axis, names in enumerate(self.axes)
        )
        text = ", ".join(entries) + ("," if len(entries) == 1 else "")
        if self.unreduced:
            text = ", ".join((*entries, f"unreduced={{{', '.join(map(repr, self.unreduced))}}}"))
        return f"P({text})"


def _entry(names: tuple[str, ...]) -> str:
    """Return one entry of a PartitionSpec as JAX prints it."""
    return repr((names[0] if len(names) == 1 else names) if names else None)


def effective_axes(spec: Spec, sizes: Mapping[str, int], ndim: int) -> tuple[tuple[str, ...], ...]:
    """Return the mesh axes that shard each array axis, without mesh axes of size 1.

    Specs with the same result shard an array in the same way: ``P('x')``, ``P(('x',), None)`` and, if ``y``
    has size 1, ``P(('x', 'y'))``. Names that are not mesh axes are kept, and so are non-empty entries beyond
    the axes of the array. ``unconstrained`` and ``unreduced`` are not considered.

    Args:
        spec: The spec.
        sizes: Size of each mesh axis by name; empty without a mesh.
        ndim: Number of axes of the array.

    >>> effective_axes(Spec((("x", "y"),)), {"x": 8, "y": 1}, 2)
    (('x',), ())
    """
    axes = [tuple(name for name in names if sizes.get(name) != 1) for names in spec.axes]
    axes += [()] * (ndim - len(axes))
    while len(axes) > ndim and not axes[-1]:
        axes.pop()
    return tuple(axes)


def effective_spec(spec: Spec, sizes: Mapping[str, int]) -> Spec:
    """Return a spec without mesh axes of size 1 and without trailing entries of None.

    >>> str(effective_spec(Spec((("x", "y"), ("y",))), {"x": 8, "y": 1}))
    "P('x',)"
    """
    least = max((axis + 1 for axis in spec.unconstrained if axis < len(spec.axes)), default=0)
    return replace(spec, axes=effective_axes(spec, sizes, least))


def some_axes(axes: MeshAxes, names: Container[str]) -> MeshAxes:
    """Return the axes of a mesh with the given names."""
    chosen = [number for number, name in enumerate(axes.names) if name in names]
    return MeshAxes(
        tuple(axes.names[number] for number in chosen),
        tuple(axes.sizes[number] for number in chosen),
        tuple(axes.types[number] for number in chosen) if axes.types else (),
    )
