"""Shardings as they are copied from programs, messages and types, in the notations of XLA, Shardy and JAX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import NamedTuple

from .notation import Scanner, parse_array
from .spec import Spec
from .xla import mesh_of_xla, parse_xla_sharding, spec_of_xla
from .xla_sharding import XlaSharding

_ONE = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}|(?:#sdy\.sharding\s*)?<[^<>]*>|[\s\S]*"
"""A sharding up to its closing brace; everything if it has none."""
_SDY = re.compile(r'(?:#sdy\.sharding\s*)?<\s*@(?:"[^"]*"|[\w.$-]+)\s*,(?P<axes>[^<>]*)>')


class Copied(NamedTuple):
    """A sharding that was copied."""

    sharding: XlaSharding
    """The sharding. If it names mesh axes of unknown sizes, these are assumed to be 2."""
    mesh: Mapping[str, int] | None = None
    """Size of each mesh axis by name; None if the text has none, or not the devices in order."""
    spec: Spec | None = None
    """Partition spec of a sharding that names mesh axes of unknown sizes; else None."""
    shape: tuple[int, ...] | None = None
    """Global shape, if the text is the type of an array."""


def parse_copied(text: str, mesh: Mapping[str, int] | None = None) -> tuple[Copied, ...]:
    """Parse a sharding, or a tuple of them, with or without what stands around it in a program.

    Args:
        text: A sharding of XLA such as ``{devices=[4,2]<=[8]}``, one of Shardy such as
            ``#sdy.sharding<@mesh, [{"x"}, {}]>``, or the type of an array such as ``float32[8@x,8]``.
        mesh: Size of each mesh axis by name, for a text that names axes without their sizes.

    Raises:
        NotationError: (a ValueError) If the text is in none of these forms. The message marks the error.

    >>> [str(one.sharding) for one in parse_copied("sharding={{replicated}, {devices=[4]<=[4]}}")]
    ['{replicated}', '{devices=[4]<=[4]}']
    >>> print(parse_copied('#sdy.sharding<@mesh, [{"x"}, {}]>')[0].spec)
    P('x',)
    """
    scanner = Scanner(re.sub(r"/\*index=\d+\*/", "", text))  # XLA numbers the elements of a tuple
    scanner.take(r'(?:[\w.]*sharding\s*=\s*)?(?:"|GSPMDSharding\s*\()?')
    opening = scanner.take(r"\{(?=\s*\{)|#sdy\.sharding_per_value\s*<\s*\[")
    closing = "}" if opening == "{" else "]>"
    found = scanner.listed(lambda: scanner.take(_ONE), closing) if opening else (scanner.take(_ONE),)
    scanner.take(r'"?(?:,\s*[\w.]+\s*=.*)?\)?,?')  # further attributes of the operation
    scanner.end()
    return tuple(_read(one or "", mesh) for one in found)


def _read(text: str, mesh: Mapping[str, int] | None) -> Copied:
    if text.startswith("{"):
        return Copied(parse_xla_sharding(text), mesh_of_xla(text))
    if re.match(r"\w+\s*\[", text):
        array = parse_array(text)
        entries = zip_longest(array.spec.axes, array.shape, fillvalue=())
        axes = ", ".join(f"{{{', '.join(map(repr, names))}}}" for names, _ in entries)
        return _of_axes(f"[{axes}]", mesh)._replace(shape=array.shape)
    found = _SDY.fullmatch(text) or Scanner(text).fail(
        "expected a sharding, such as {devices=[4,2]<=[8]},"
        ' #sdy.sharding<@mesh, [{"x"}, {}]> or float32[8@x,8]'
    )
    return _of_axes(re.sub(r"\}\s*p\d+", "}", found["axes"]), mesh)  # without priorities


def _of_axes(axes: str, mesh: Mapping[str, int] | None) -> Copied:
    """Return the sharding over the mesh axes of each array axis, such as ``[{"x"}, {}]``."""
    if mesh is None and re.search(r"""["']\s*:""", axes):
        Scanner(axes).fail("expected whole mesh axes: pass a mesh with their sizes", axes.index(":"))
    # The spec is the same for all sizes.
    sizes = {name: 2 for _, name in re.findall(r"""(["'])(.+?)\1""", axes)} if mesh is None else mesh
    named = ",".join(f"'{name}'={size}" for name, size in sizes.items())
    sharding = parse_xla_sharding(f"{{mesh[{named}], {axes.strip()}}}")
    return Copied(sharding, mesh, spec_of_xla(sharding, sizes) if mesh is None else None)
