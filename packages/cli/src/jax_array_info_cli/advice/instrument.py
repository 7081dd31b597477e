"""The user's source with each expression wrapped in a call, or with one expression edited."""

from __future__ import annotations

import ast
import builtins
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import decode_source
from types import CodeType, MappingProxyType, ModuleType
from typing import Any, NamedTuple

from jax_array_info_core.programs.advice.edits import Site

from .changes import Text

CALL = "__jai_value__"
"""Name of the function that is called with each value. It ends so that no class mangles it."""
_WRAPPED = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Subscript)
_TRANSPOSED = ("T", "mT")
_PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")


class Expression(NamedTuple):
    """An expression of the user's source."""

    site: Site
    text: str
    """Its source text."""
    column: int
    """Column at which it begins, in characters."""
    function: str
    """Name of the function around it."""


class Source:
    """The user's files, as they are run in this process: plain, with calls around expressions, or edited.

    Args:
        is_hidden: Whether a file is that of an installed package, which stays as it is.
        value: The function that is called with each expression and its value, and returns its value; None
            for no calls.
        texts: Texts that are changed in them.
        digests: Digests of files that were read before, by path.
    """

    def __init__(
        self,
        is_hidden: Callable[[str], bool],
        value: Callable[[Expression, Any], Any] | None = None,
        texts: Sequence[Text] = (),
        digests: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self._is_hidden = is_hidden
        self._value = value
        self._texts = texts
        self._expressions: list[Expression] = []
        self.digests = dict(digests)
        self.codes: dict[str, tuple[bytes, dict[str, Any]]] = {}
        """The files that have run, and the variables of their modules, by path."""
        self.changed: list[str] = []
        """Paths of the files that had another digest before."""
        self.too_deep: list[str] = []
        """Paths of the files that run plain, because an expression is nested too deeply."""

    def run(self, code: bytes, path: str, namespace: dict[str, Any]) -> None:
        """Run the code of a file as a module."""
        digest = hashlib.sha256(code).digest()
        if self.digests.setdefault(path, digest) != digest:
            self.changed.append(path)
        self.codes[path] = code, namespace
        text: bytes | str = code
        texts = [text for text in self._texts if text.site.file == path]
        if texts:
            exec("\n".join(dict.fromkeys(text.imports for text in texts)), namespace)
            text = edited(code, texts)
        is_watched = self._value is not None and not self._is_hidden(path)
        compiled = self._with_calls(code, path) if is_watched else None
        exec(compiled or compile(text, path, "exec", dont_inherit=True), namespace)

    def _with_calls(self, code: bytes, path: str) -> CodeType | None:
        """Return the code of a file with calls around its expressions; None if these are too deep."""
        vars(builtins)[CALL] = self._called  # a function can have other globals than those of its file
        try:
            tree = _Wrapping(path, code, self._expressions).visit(ast.parse(code, path))
            return compile(tree, path, "exec", dont_inherit=True)
        except RecursionError:
            self.too_deep.append(path)
            return None

    def _called(self, number: int, value: Any) -> Any:
        assert self._value is not None
        return self._value(self._expressions[number], value)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of the user, as a finder of ``sys.meta_path``."""
        finders = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        specs = (finder.find_spec(name, path, target) for finder in finders)
        spec = next(filter(None, specs), None)
        if (
            spec is None
            or type(spec.loader) is not SourceFileLoader
            or spec.origin is None
            or self._is_hidden(spec.origin)
        ):
            return None
        spec.loader = _Loader(name, spec.origin, self)
        return spec


class _Loader(SourceFileLoader):
    """Runs a file with other code than it has, and leaves no bytecode."""

    def __init__(self, name: str, path: str, source: Source) -> None:
        super().__init__(name, path)
        self._source = source

    def exec_module(self, module: ModuleType) -> None:
        self._source.run(self.get_data(self.path), self.path, module.__dict__)


class _Wrapping(ast.NodeTransformer):
    """Wraps expressions in a call with their number, and adds them to a list.

    They are those in the bodies of functions, without decorators, defaults and annotations.
    """

    def __init__(self, path: str, code: bytes, expressions: list[Expression]) -> None:
        self._path = path
        self._lines = _lines(code)
        self._expressions = expressions
        self._functions: list[str] = []

    def visit_FunctionDef(self, node: Any) -> Any:
        self._functions.append(node.name)
        self.visit_match_case(node)
        self._functions.pop()
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._functions.append("<lambda>")
        node.body = self.visit(node.body)
        self._functions.pop()
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node  # a text is no array, and before Python 3.12, its parts have no places

    def visit_match_case(self, node: Any) -> Any:
        """Visit the statements in a node alone."""
        node.body = [self.visit(statement) for statement in node.body]
        return node

    def visit(self, node: ast.AST) -> Any:
        """Visit a node, and return what stands in its place."""
        visited = super().visit(node)
        is_value = isinstance(node, _WRAPPED) or (
            isinstance(node, ast.Attribute) and node.attr in _TRANSPOSED
        )
        if not (is_value and self._functions and isinstance(getattr(node, "ctx", ast.Load()), ast.Load)):
            return visited
        site = Site(self._path, *(getattr(node, name) for name in _PLACE))
        text, column = self._text(site)
        self._expressions.append(Expression(site, text, column, self._functions[-1]))
        number = ast.Constant(len(self._expressions) - 1)
        call = ast.Call(ast.Name(CALL, ast.Load()), [number, visited], [])
        for part in (call, call.func, number):
            ast.copy_location(part, node)
        return call

    def _text(self, site: Site) -> tuple[str, int]:
        """Return the source text of an expression, and its column in characters."""
        lines = self._lines[site.line - 1 : site.end_line]
        lines[-1] = lines[-1][: site.end_column]
        before, lines[0] = lines[0][: site.column], lines[0][site.column :]
        return b"\n".join(lines).decode("utf-8", "replace"), len(before.decode("utf-8", "replace"))


def _lines(code: bytes) -> list[bytes]:
    """Return the lines of a file in UTF-8, as Python counts their columns."""
    return [line.encode() for line in decode_source(code).split("\n")]


def edited(code: bytes, texts: Iterable[Text]) -> str:
    """Return the text of a file with other texts in the places of some expressions that do not overlap."""
    lines = _lines(code)
    for site, new, _ in sorted(texts, reverse=True):
        before, after = lines[site.line - 1][: site.column], lines[site.end_line - 1][site.end_column :]
        space = " " * (before[-1:].isalnum() and new[:1].isalnum())  # return(x) @ w
        lines[site.line - 1 : site.end_line] = (before + f"{space}{new}".encode() + after).split(b"\n")
    return b"\n".join(lines).decode()
