"""The user's source with each expression wrapped in a call, or with one expression replaced."""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import decode_source
from types import ModuleType
from typing import Any, NamedTuple

from jax_array_info_core.programs.advice.candidates import Site

CALL = "__jai_value__"
"""Name of the function that is called with each value. It ends so that no class mangles it."""
_WRAPPED = (ast.BinOp, ast.UnaryOp, ast.Call, ast.Subscript)
_TRANSPOSED = ("T", "mT")
_CHANGING = (ast.Call, ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
"""Expressions that cannot be evaluated twice."""


class Expression(NamedTuple):
    """An expression of the user's source."""

    site: Site
    text: str
    """Its source text."""
    column: int
    """Column at which it begins, in characters."""
    function: str
    """Name of the function around it."""
    operands: tuple[str, ...]
    """Names in it, and parts of it that can be evaluated twice: ``x``, ``p["w"]``."""


class Source:
    """The user's files, as they are run in this process: with a call around each expression.

    Args:
        is_hidden: Whether a file is that of an installed package, which stays as it is.
        replaced: Texts that stand in the place of expressions. With any, no expression is wrapped.
        value: The function that is called with each expression and its value, and returns its value.
    """

    def __init__(
        self,
        is_hidden: Callable[[str], bool],
        replaced: Mapping[Site, str],
        value: Callable[[Expression, Any], Any],
    ) -> None:
        self._is_hidden = is_hidden
        self._replaced = replaced
        self._value = value
        self._expressions: list[Expression] = []

    def run(self, code: bytes, path: str, namespace: dict[str, Any]) -> None:
        """Run the code of a file as a module."""
        tree = ast.parse(code, path)
        if self._replaced:
            tree = _Replacing(path, self._replaced).visit(tree)
        elif not self._is_hidden(path):
            with contextlib.suppress(RecursionError):  # it runs as it is from there on
                tree = _Wrapping(path, code, self._expressions).visit(tree)
            namespace[CALL] = lambda number, value: self._value(self._expressions[number], value)
        exec(compile(tree, path, "exec", dont_inherit=True), namespace)

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


class _Inside(ast.NodeTransformer):
    """Visits the expressions in the bodies of functions, without decorators, defaults and annotations."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._functions: list[str] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return self._function(node, node.name)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self._function(node, node.name)

    def _function(self, node: Any, name: str) -> Any:
        self._functions.append(name)
        node.body = [self.visit(statement) for statement in node.body]
        self._functions.pop()
        return node

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
        assert isinstance(node, ast.expr)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        place = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
        new = self.placed(Site(self._path, *place), visited)
        for part in ast.walk(new) if new is not visited else ():
            if not hasattr(part, "lineno") and isinstance(part, ast.expr | ast.keyword):
                ast.copy_location(part, node)
        return new

    def placed(self, site: Site, visited: ast.expr) -> ast.expr:
        """Return what stands in the place of an expression."""
        raise NotImplementedError


class _Wrapping(_Inside):
    """Wraps expressions in a call with their number, and adds them to a list."""

    def __init__(self, path: str, code: bytes, expressions: list[Expression]) -> None:
        super().__init__(path)
        self._lines = decode_source(code).split("\n")
        self._expressions = expressions

    def placed(self, site: Site, visited: ast.expr) -> ast.expr:
        text, column = self._text(site)
        operands = tuple(_operands(text))
        self._expressions.append(Expression(site, text, column, self._functions[-1], operands))
        number = ast.Constant(len(self._expressions) - 1)
        return ast.Call(ast.Name(CALL, ast.Load()), [number, visited], [])

    def _text(self, site: Site) -> tuple[str, int]:
        """Return the source text of an expression, and its column in characters."""
        lines = self._lines[site.line - 1 : site.end_line]
        encoded = [line.encode() for line in lines]
        encoded[-1] = encoded[-1][: site.end_column]
        before = encoded[0][: site.column]
        encoded[0] = encoded[0][site.column :]
        return b"\n".join(encoded).decode("utf-8", "replace"), len(before.decode("utf-8", "replace"))


def _operands(text: str) -> list[str]:
    """Return the names in an expression, and its subscripts and attributes that call nothing."""
    code = f"({text}\n)"
    try:
        tree = ast.parse(code, mode="eval")
    except SyntaxError:  # the source has another encoding
        return []
    plain = [
        node
        for node in ast.walk(tree.body)
        if isinstance(node, ast.Name | ast.Subscript | ast.Attribute)
        and not any(isinstance(part, _CHANGING) for part in ast.walk(node))
    ]
    plain.sort(key=lambda node: not isinstance(node, ast.Name))
    return [*dict.fromkeys(filter(None, (ast.get_source_segment(code, node) for node in plain)))]


class _Replacing(_Inside):
    """Puts texts in the place of expressions."""

    def __init__(self, path: str, replaced: Mapping[Site, str]) -> None:
        super().__init__(path)
        self._replaced = replaced

    def placed(self, site: Site, visited: ast.expr) -> ast.expr:
        if site not in self._replaced:
            return visited
        # Its lines and columns are those of a file that is edited.
        before = "(" + "\n" * (site.line - 1) + " " * (site.column - (site.line == 1))
        return ast.parse(f"{before}{self._replaced[site]}\n)", mode="eval").body
