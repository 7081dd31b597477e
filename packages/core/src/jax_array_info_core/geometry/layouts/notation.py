"""Parsers and formatters of meshes, shapes, partition specs and their rules. No text is evaluated."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn, TypeVar

from ...base.errors import NotationError, UnsupportedValueError
from ...base.quantities import parse_bytes
from ...base.text import plain_text, unquoted
from .dtypes import is_full_name, named_in_full
from .spec import Spec, mesh_sizes

_T = TypeVar("_T")


class Scanner:
    """A text and the position up to which it has been read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def take(self, pattern: str) -> str | None:
        """Skip blanks, then return the text that matches a pattern and move past it; None without a match."""
        match = re.compile(rf"\s*+({pattern})").match(self.text, self.position)
        if match is None:
            return None
        self.position = match.end()
        return match[1]

    def expect(self, pattern: str, expected: str) -> str:
        """Return the text that matches a pattern and move past it, or raise an error with the expectation."""
        token = self.take(pattern)
        if token is None:
            self.fail(f"expected {expected}")
        return token

    def number(self, *, least: int = 0) -> int:
        """Read a decimal number."""
        before = self.position
        digits = self.expect(r"[0-9]+", "a number")
        if len(digits) > 18:
            self.fail("expected a number of at most 18 digits", before)
        number = int(digits)
        if number < least:
            self.fail(f"expected a number of at least {least}", before)
        return number

    def listed(self, item: Callable[[], _T], closing: str) -> tuple[_T, ...]:
        """Read items separated by commas, and the text that closes the list."""
        items: list[_T] = []
        while self.take(re.escape(closing)) is None:
            items.append(item())
            if self.take(",") is None:
                self.expect(re.escape(closing), f"',' or '{closing}'")
                break
        return tuple(items)

    def separated(self, item: Callable[[], _T], by: str) -> tuple[_T, ...]:
        """Read one or more items with a separator between them."""
        items = [item()]
        while self.take(by):
            items.append(item())
        return tuple(items)

    def at_end(self) -> bool:
        """Return whether only blanks remain."""
        return self.take(r"\Z") is not None

    def end(self, expected: str = "the end") -> None:
        """Raise an error if anything but blanks remains."""
        if not self.at_end():
            self.fail(f"expected {expected}")

    def fail(self, problem: str, position: int | None = None) -> NoReturn:
        """Raise an error that shows the text with a caret under a position, the current one by default."""
        at = self.position if position is None else position
        at += len(self.text[at:]) - len(self.text[at:].lstrip())
        raise NotationError(self.text, at, problem)


_NAME = r"[^\W\d][\w.]*"
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""


def parse_mesh(text: str) -> dict[str, int]:
    """Parse a mesh such as ``data=8,fsdp=32`` and return the size of each axis by name, in order.

    Raises:
        NotationError: (a ValueError) If the text is not a mesh. The message marks the error.

    >>> parse_mesh("data=8,fsdp=32")
    {'data': 8, 'fsdp': 32}
    """
    scanner = Scanner(text)
    mesh: dict[str, int] = {}

    def axis() -> None:
        before = scanner.position
        name = _name(scanner)
        if name in mesh:
            scanner.fail(f"mesh axis '{name}' is listed twice", before)
        scanner.expect("=", "'=' and the size of the axis")
        mesh[name] = scanner.number(least=1)

    scanner.separated(axis, ",")
    scanner.end()
    return mesh


def format_mesh(mesh: Any) -> str:
    """Return the sizes of a Mesh, an AbstractMesh or a mapping as text that ``parse_mesh`` accepts.

    >>> format_mesh({"data": 8, "fsdp": 32})
    'data=8,fsdp=32'
    """
    return ",".join(f"{_quoted_if_needed(name)}={size}" for name, size in mesh_sizes(mesh).items())


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse a shape such as ``16,16`` or ``(16, 16)``; ``()`` is the shape of a scalar.

    Raises:
        NotationError: (a ValueError) If the text is not a shape. The message marks the error.

    >>> parse_shape("16,16")
    (16, 16)
    """
    scanner = Scanner(text)
    is_tuple = scanner.take(r"\(")
    shape = scanner.listed(scanner.number, ")") if is_tuple else scanner.separated(scanner.number, ",")
    scanner.end()
    return shape


def parse_spec(text: str) -> Spec:
    """Parse a partition spec, as JAX prints it or in the short notation for shells.

    In the short notation, ``P(None, ('data', 'fsdp'))`` is ``-,data+fsdp``: one entry per array axis, ``-``
    for None, ``+`` between the mesh axes of one entry, and ``?`` for UNCONSTRAINED. Empty text is ``P()``.

    Raises:
        NotationError: (a ValueError) If the text is not a spec. The message marks the error.

    >>> parse_spec("-,data+fsdp") == parse_spec("P(None, ('data', 'fsdp'))")
    True
    """
    return _spec(Scanner(text))


class ArrayNotation(NamedTuple):
    """Type and sharding of an array."""

    dtype: str
    """Full name of the dtype, such as ``float32``."""

    shape: tuple[int, ...]
    """Global shape."""

    spec: Spec
    """Partition spec; ``P()`` where the text has none."""


def parse_array(text: str) -> ArrayNotation:
    """Parse an array such as ``float32[64,128]@data,-`` and return its dtype, shape and spec.

    The dtype can have its short name in XLA or in a jaxpr, such as ``f32``, ``s32``, ``i32`` or ``pred``. The
    spec is read as by ``parse_spec``, or after each length, as JAX prints types: ``float32[64@data,128]``.
    Without ``@``, the array is replicated.

    Raises:
        NotationError: (a ValueError) If the text is not an array. The message marks the error.

    >>> array = parse_array("bf16[64,128]@data,-")
    >>> array.dtype, array.shape, str(array.spec)
    ('bfloat16', (64, 128), "P('data', None)")
    """
    scanner = Scanner(text)
    name = scanner.expect(_NAME, "a dtype and a shape, such as float32[8,4]")
    dtype = named_in_full(name) or name
    if not is_full_name(dtype):
        scanner.fail(f"'{name}' is not a dtype: use one such as float32, bf16 or int4", 0)
    scanner.expect(r"\[", "'[' and the shape, such as [8,4]")
    pairs = scanner.listed(lambda: (scanner.number(), _names(scanner) if scanner.take("@") else ()), "]")
    shape, axes = tuple(length for length, _ in pairs), tuple(names for _, names in pairs)
    if not any(axes) and scanner.take("@"):
        return ArrayNotation(dtype, shape, _spec(scanner))
    scanner.end("'@' and a spec, or the end")
    return ArrayNotation(dtype, shape, Spec(axes if any(axes) else ()))


def parse_rule(text: str) -> tuple[str, Spec]:
    """Parse a rule such as ``*mlp/w*=fsdp,tensor`` and return its pattern of paths and its spec.

    The text is divided at the first ``=``. The spec is read as by ``parse_spec``; if it shards nothing, such
    as ``-``, it becomes ``P()``, which fits arrays with any number of axes.

    Raises:
        NotationError: (a ValueError) If the text is not a rule. The message marks the error.

    >>> pattern, spec = parse_rule("*mlp/w*=fsdp,tensor")
    >>> print(pattern, spec)
    *mlp/w* P('fsdp', 'tensor')
    """
    scanner = Scanner(text)
    pattern, equals, _ = text.partition("=")
    if not equals:
        scanner.fail("expected '=' and a spec after the pattern", len(text))
    if not pattern:
        scanner.fail("expected a pattern of paths before the '='")
    scanner.position = len(pattern) + 1
    spec = _spec(scanner)
    is_replicated = not (any(spec.axes) or spec.unconstrained or spec.unreduced)
    return pattern, Spec(()) if is_replicated else spec


def parse_logical_axes(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Parse rules for logical axes such as ``embed=fsdp+tensor,norm=-``: the mesh axes of each, in order.

    ``+`` stands between several mesh axes, and ``-`` for none: the logical axis is replicated. Further rules
    for a name are fallbacks.

    Raises:
        NotationError: (a ValueError) If the text is not a list of rules. The message marks the error.

    >>> parse_logical_axes("embed=fsdp+tensor,norm=-")
    (('embed', ('fsdp', 'tensor')), ('norm', ()))
    """
    scanner = Scanner(text)

    def rule() -> tuple[str, tuple[str, ...]]:
        name = _name(scanner, "the name of a logical axis")
        scanner.expect("=", "'=' and a mesh axis, or '-' for none")
        return name, () if scanner.take("-") else scanner.separated(lambda: _name(scanner), r"\+")

    rules = scanner.separated(rule, ",")
    scanner.end()
    return rules


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names of mesh axes such as ``data,expert``.

    Raises:
        NotationError: (a ValueError) If the text is not a list of names. The message marks the error.

    >>> parse_names("data,expert")
    ('data', 'expert')
    """
    scanner = Scanner(text)
    names = scanner.separated(lambda: _name(scanner), ",")
    scanner.end()
    return names


def format_spec(spec: Spec) -> str:
    """Return a spec in the short notation of ``parse_spec``.

    A spec with unreduced axes is written as JAX prints it.

    >>> format_spec(Spec(((), ("data", "fsdp"))))
    '-,data+fsdp'
    """
    unconstrained = set(spec.unconstrained)
    entries = [
        "?" if axis in unconstrained else "+".join(map(_quoted_if_needed, names)) or "-"
        for axis, names in enumerate(spec.axes)
    ]
    return str(spec) if spec.unreduced else ",".join(entries)


def _name(scanner: Scanner, expected: str = "the name of a mesh axis") -> str:
    token = scanner.expect(f"{_NAME}|{_QUOTED}", expected)
    if token[0] not in "'\"":
        return token
    name = unquoted(token)
    if not name:
        scanner.fail("expected a name between the quotes", scanner.position - len(token))
    return name


def _names(scanner: Scanner) -> tuple[str, ...]:
    """Read one mesh axis, or several in parentheses."""
    return scanner.listed(lambda: _name(scanner), ")") if scanner.take(r"\(") else (_name(scanner),)


def _quoted_if_needed(name: str) -> str:
    return name if re.fullmatch(_NAME, name) else repr(name)


_Entry = tuple[str, ...] | Literal["unconstrained"]


def _spec(scanner: Scanner) -> Spec:
    spec = (_jax_spec if scanner.take(r"(?:P|PartitionSpec)?\s*\(") else _short_spec)(scanner)
    scanner.end()
    return spec


def _jax_spec(scanner: Scanner) -> Spec:
    unreduced: list[str] = []

    def entry() -> _Entry | None:
        if scanner.take(r"None\b"):
            return ()
        if scanner.take(r"(?:P\.|PartitionSpec\.)?UNCONSTRAINED\b"):
            return "unconstrained"
        if scanner.take(r"unreduced\s*=\s*\{"):
            unreduced.extend(scanner.listed(lambda: _name(scanner), "}"))
            return None
        return _names(scanner)

    return _spec_from([names for names in scanner.listed(entry, ")") if names is not None], unreduced)


def _short_spec(scanner: Scanner) -> Spec:
    def entry() -> _Entry:
        if scanner.take("-"):
            return ()
        if scanner.take(r"\?"):
            return "unconstrained"
        return scanner.separated(lambda: _name(scanner), r"\+")

    return _spec_from(() if scanner.at_end() else scanner.separated(entry, ","))


def _spec_from(entries: Sequence[_Entry], unreduced: Sequence[str] = ()) -> Spec:
    return Spec(
        tuple(() if entry == "unconstrained" else entry for entry in entries),
        tuple(axis for axis, entry in enumerate(entries) if entry == "unconstrained"),
        tuple(sorted(unreduced)),
    )


def as_nbytes(argument: str, value: Any, names: Mapping[str, int] | None = None) -> int:
    """Return a number of bytes that is given as an integer or as a size such as ``"16GiB"``.

    Args:
        argument: Name of the argument, for the message.
        value: The number of bytes.
        names: Other texts, in lower case, with their bytes.

    Raises:
        UnsupportedValueError: (a ValueError) If it is neither, or negative.

    >>> as_nbytes("hbm_nbytes", "16GiB") == as_nbytes("hbm_nbytes", 16 * 2**30)
    True
    """
    known = names or {}
    if isinstance(value, str) and value.strip().lower() in known:
        return known[value.strip().lower()]
    try:
        if not isinstance(value, bool):
            nbytes = parse_bytes(value) if isinstance(value, str) else int(operator.index(value))
            if nbytes >= 0:
                return nbytes
        raise TypeError(type(value))
    except (TypeError, ValueError) as error:
        named = f"or one of {', '.join(known)}, " if known else ""
        raise UnsupportedValueError(
            f'{argument} must be a number of bytes, an integer or a size such as "16GiB", {named}'
            f"got {plain_text(value, repr)}"
        ) from error
