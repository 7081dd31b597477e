"""The bytes that edits send, from the compiled expression where that is possible, and the edits to show."""

from __future__ import annotations

import ast
import contextlib
import json
import marshal
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ...geometry.layouts.dtypes import named_in_full
from ..propagation.helper import ask_sent
from .explanation import Edit
from .operands import is_batched
from .site import RESHARD, Site
from .source import MISSING, at_path
from .types import type_of

_PACKAGES = ("jax.", "numpy.")

_MOST_COMPILED = 16
"""Maximum number of edits that are compiled."""


class _Question(ast.NodeTransformer):
    """An expression whose operands, and whatever can be read without running code, are names.

    Visiting it raises ValueError if something else is in it, such as a function of the user.
    """

    def __init__(self, site: Site) -> None:
        self._place = site.place
        self._known = {ast.unparse(array.node): array for array in site.arrays}
        self.arrays: dict[str, Any] = {}
        self.paths: dict[str, str] = {}
        self.constants: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def visit(self, node: ast.AST) -> Any:
        if not isinstance(node, ast.expr) or isinstance(node, ast.Constant):
            return self.generic_visit(node)
        text = ast.unparse(node)
        if text in self._names:  # what is sent of one array twice may be sent once
            return ast.Name(self._names[text], ast.Load())
        array = None if self._is_resharding(node) else self._known.get(text)
        value = self._place.value(node)
        if known := (array and array.type) or type_of(value):
            dtype = named_in_full(known.dtype) or known.dtype
            return self._named(text, self.arrays, [dtype, known.shape, known.axes, known.unreduced])
        if value is MISSING:
            if isinstance(node, ast.Name) and node.id.startswith("_"):
                raise ValueError(node.id)
            return self.generic_visit(node)
        if (path := _path_of(value)) is not None:
            return self._named(text, self.paths, path)
        marshal.dumps(value)  # its parts are of Python's own types, whose text runs no code of the user
        return self._named(text, self.constants, repr(value))

    def _is_resharding(self, node: ast.expr) -> bool:
        """Return whether an expression reshards an array that is known, which the edit sends, too."""
        match node:
            case ast.Call(func=func, args=[operand, *_]):
                is_reshard = any(self._place.value(func) is at_path(path) for path in RESHARD)
                return is_reshard and type_of(self._place.value(operand)) is not None
        return False

    def _named(self, text: str, names: dict[str, Any], value: Any) -> ast.expr:
        self._names[text] = name = f"_{len(self._names)}"
        names[name] = value
        return ast.Name(name, ast.Load())


def _path_of(value: Any) -> str | None:
    """Return the dotted path of a part of JAX; None if it is none."""
    if type(value).__module__.partition(".")[0] not in ("builtins", "jax", "jaxlib"):
        return None  # to read its name could run code of the user
    name = str(getattr(value, "__name__", ""))
    module = getattr(value, "__module__", "")
    paths = (name, f"{module}.{getattr(value, '__qualname__', '')}", f"jax.numpy.{name}")
    return next((path for path in paths if path.startswith(_PACKAGES) and at_path(path) is value), None)


def compiled_nbytes(site: Site, code: str) -> int | None:
    """Return the bytes that a device sends for code; None if they are not known.

    Raises:
        NoAnswerError: If JAX refuses it, or no helper process has compiled it in time.
    """
    import jax

    left = site.deadline - time.monotonic()
    if site.mesh is None or {*site.mesh.types} != {"Explicit"} or is_batched(site.place) or left <= 0:
        return None
    reader = _Question(site)
    statement: Any = ast.parse(code).body[0]
    expression = statement.value
    if isinstance(statement, ast.AugAssign):
        target = ast.parse(ast.unparse(statement.target), mode="eval").body
        expression = ast.BinOp(target, statement.op, statement.value)
    question = {
        "code": ast.unparse(reader.visit(expression)),
        "mesh": [*zip(site.mesh.names, site.mesh.sizes, site.mesh.types, strict=True)],
        "arrays": reader.arrays,
        "paths": reader.paths,
        "constants": reader.constants,
        "x64": bool(jax.config.jax_enable_x64),
    }
    return ask_sent(json.dumps(question).encode(), left)


def measured(site: Site, edits: Iterable[Edit]) -> Iterator[Edit]:
    """Yield edits with the bytes that they send when they are compiled, as far as there is time.

    Those in reserve are left out unless they compile.
    """
    for number, edit in enumerate(edits):
        nbytes = None
        # It cannot be read or compiled, or there is no helper. The edit is right without its bytes.
        with contextlib.suppress(Exception):
            nbytes = compiled_nbytes(site, edit.code) if number < _MOST_COMPILED else None
        if nbytes is not None:
            yield replace(edit, sent_nbytes=nbytes)
        elif not edit.is_reserve:
            yield replace(edit, is_at_least=True)


def cheapest(edits: Iterable[Edit]) -> list[Edit]:
    """Return the edits that send at most twice what the cheapest one sends, in the order of their bytes.

    Those in reserve are left out, unless all are.
    """
    edits = [*edits]
    known = [edit for edit in edits if edit.sent_nbytes is not None]
    least = min((edit.sent_nbytes or 0 for edit in known), default=0)
    kept = [edit for edit in known if (edit.sent_nbytes or 0) <= 2 * least] or edits
    own = [edit for edit in kept if not edit.is_reserve] or kept
    return sorted(own, key=lambda edit: edit.sent_nbytes or 0)
