"""The specs of constraints, found where the source writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from importlib.util import resolve_name
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from jax_array_info_core.facts.reports.advice import RemedyPlace
from jax_array_info_core.geometry.layouts.spec import entry_code
from jax_array_info_core.programs.advice.edits import Axes, Pin
from jax_array_info_core.programs.raised.source import FUNCTIONS, MISSING, value_of

from .files import File, Files, Span

_WHOLE = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List, ast.Dict)
"""Expressions that need no parentheses, whatever stands around them."""
_SPECS = ("P", "PartitionSpec")
_CONSTRAINTS = ("with_sharding_constraint", "reshard", "filter_shard", "with_logical_constraint")
_MOST_STEPS = 20
"""Names and helpers that lead from a constraint to its spec."""


class NotWrittenError(Exception):
    """A spec that is computed, or stands in an installed package."""


class Found(NamedTuple):
    """A text of a file, and the one in its place."""

    file: File
    span: Span
    new: str
    shown: Span
    """The call or the assignment with which it is printed."""


class _Scope(NamedTuple):
    """The place of an expression."""

    file: File
    function: Any = None
    """The function around it; None for the module."""
    caller: tuple[ast.Call, _Scope] | None = None
    """The call of the function, where it is known."""


_Placed = tuple[Any, _Scope]
"""A node, and its place."""


class WrittenSpec(NamedTuple):
    """A spec as it is written."""

    file: File
    node: ast.AST
    """The call with its entries: of ``P``, or of a helper that passes them on."""
    span: Span
    """The text that is replaced."""
    start: str
    """What stands in it before the entries."""
    end: str
    texts: list[str]
    """Text of each entry."""
    axes: Axes
    """Mesh axes of each entry."""

    def is_of(self, axes: Axes) -> bool:
        """Return whether it is that of a sharding."""
        return _stripped(self.axes) == _stripped(axes)

    def changed(self, axes: Axes, calls: Sequence[ast.Call] = ()) -> Found:
        """Return the change to other mesh axes, which keeps the entries that stay.

        Args:
            axes: The mesh axes of each dimension.
            calls: Calls with which it can be printed.
        """
        count = max(len(self.axes), len(_stripped(axes)))
        wanted = (*axes, *[()] * count)[:count]
        new = [*map(entry_code, wanted)]
        for number, (old, text) in enumerate(zip(self.axes, self.texts, strict=True)):
            new[number] = text if old == wanted[number] else new[number]
        return Found(self.file, self.span, f"{self.start}{', '.join(new)}{self.end}", self._shown(calls))

    def _shown(self, calls: Sequence[ast.Call]) -> Span:
        """Return the call, the item of a dict or the assignment to print it with; itself if that is long."""
        node, span, file = self.node, self.span, self.file
        while not isinstance(node, ast.stmt):
            inner, node = node, file.around[node]
            if inner in calls:
                span = file.span(inner)
                break
            if isinstance(node, ast.Dict) and inner in node.values:
                key = node.keys[node.values.index(inner)]
                span = file.span(key or inner)[0], file.span(inner)[1]
                break
            if isinstance(node, ast.Assign | ast.AnnAssign):
                span = file.span(node)
        return self.span if "\n" in file.text(span) else span

    def matches(self, path: str) -> int | None:
        """Return how many keys of its dicts are the end of a path; 0 for a module's variable, else None."""
        node, keys = self.node, list[str]()
        while isinstance(outer := self.file.around[node], ast.Dict | ast.Call | ast.Tuple):
            if isinstance(outer, ast.Dict):
                key = outer.keys[outer.values.index(node)] if node in outer.values else None
                keys.insert(0, str(getattr(key, "value", None)))
            node = outer
        if keys:
            return len(keys) if path.split("/")[-len(keys) :] == keys else None
        return 0 if isinstance(outer, ast.Assign) and self.file.function(outer) is None else None


class Chain:
    """The calls that lead to a constraint, as far as they are known.

    Args:
        pin: The constraint, with its frames.
        files: The files of the user.
    """

    def __init__(self, pin: Pin, files: Files) -> None:
        self._pin = pin
        self._files = files
        known: list[tuple[File, ast.Call] | None] = []
        for frame, columns in zip(pin.frames, pin.columns or (None,) * len(pin.frames), strict=True):
            file = files.get(frame.file)
            calls = [] if file is None else file.calls(frame.line, columns)
            if file is not None and len(calls) > 1:  # of several lines, or before Python 3.11
                names = {*_CONSTRAINTS}
                if known:
                    function = pin.frames[len(known) - 1].function.rpartition(".")[2]
                    names = {function, _name(*known[-1]) if known[-1] else function}
                calls = [call for call in calls if {_called(call, file), _last(call.func)} & names]
            known.append((file, calls[0]) if file is not None and len(calls) == 1 else None)
        self._calls: list[_Placed] = []
        caller: _Placed | None = None
        for one in reversed(known):
            if one is not None:
                file, call = one
                name = _name(file, call)
                is_called = caller is not None and name and name in (_last(caller[0].func), "__call__")
                self._calls.insert(
                    0, (call, _Scope(file, file.function(call), caller if is_called else None))
                )
            caller = self._calls[0] if one is not None else None
        self._is_known = bool(known) and known[0] is not None
        """Whether the innermost call is known."""

    def respecified(self, axes: Axes) -> Found:
        """Return the change that gives the constraint another spec.

        Raises:
            NotWrittenError: If its spec is computed.
        """
        for before, wanted in _without_mapped(self._pin.before, axes):
            for spec in self._specs(before):
                if spec.is_of(before) and not spec.is_of(wanted):
                    return spec.changed(wanted, [call for call, _ in self._calls])
        raise NotWrittenError

    def removed(self) -> Found:
        """Return the change that takes the constraint away: its value stands in the place of the call.

        Raises:
            NotWrittenError: If the constraint is not a call of its own.
        """
        call, scope, value = self._outermost()
        if value is None or _called(self._calls[0][0], self._calls[0][1].file) not in _CONSTRAINTS:
            raise NotWrittenError
        span, text = scope.file.span(call), scope.file.text(scope.file.span(value))
        is_apart = isinstance(scope.file.around.get(call), ast.Assign | ast.Return | ast.Call)
        is_whole = isinstance(value, _WHOLE) or (is_apart and "\n" not in text)
        return Found(scope.file, span, text if is_whole else f"({text})", span)

    def named(self) -> tuple[RemedyPlace, str]:
        """Return where a reader looks for the spec, and the call there; empty if that is long or unknown."""
        call, scope, _ = self._outermost()
        if call is None:
            file, line, function = self._pin.frames[0]
            return RemedyPlace(file=file, line=line, function=function or None), ""
        text = scope.file.text(scope.file.span(call))
        return scope.file.place(scope.file.span(call)), "" if "\n" in text else text

    def _outermost(self) -> tuple[Any, Any, ast.expr | None]:
        """Return the call that constrains a value, its place, and the value; that of a helper of one line."""
        if not self._is_known:
            return None, None, None
        call, scope = self._calls[0]
        value = _argument(call, 0, "x")
        while scope.caller is not None and isinstance(value, ast.Name):
            passed = self._passed(value.id, scope) if _returned(scope.function) is call else None
            if passed is None:
                break
            call, scope = scope.caller
            value = passed[0]
        return call, scope, value

    def _specs(self, before: Axes) -> Iterator[WrittenSpec]:
        """Yield the specs that can be that of the constraint: those that it is given, then those of calls."""
        if self._is_known:
            call, scope = self._calls[0]
            given = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
            yield from filter(None, (self._spec(node, scope) for node in given))
        for call, scope in self._calls:
            given = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
            nodes = (node for part in given for node in ast.walk(part) if isinstance(node, ast.Call))
            specs = {spec.span: spec for node in nodes if (spec := self._spec(node, scope)) is not None}
            alike = [spec for spec in specs.values() if spec.is_of(before)]
            yield from alike if len(alike) == 1 else ()

    def _spec(self, node: ast.AST, scope: _Scope, steps: int = 0) -> WrittenSpec | None:
        """Return the spec of a sharding or of a spec; None if it is computed."""
        node, scope = self._followed(node, scope)
        if not isinstance(node, ast.Call) or steps > _MOST_STEPS:
            return None
        match _called(node, scope.file):
            case name if name in _SPECS:
                return _written(node, scope)
            case "NamedSharding":
                inner = _argument(node, 1, "spec")
                return None if inner is None else self._spec(inner, scope, steps + 1)
        file, function = self._defined(value_of(node.func, scope.file.names))
        returned = _returned(function)
        inside = None if file is None else _Scope(file, function, (node, scope))
        return None if returned is None or inside is None else self._spec(returned, inside, steps + 1)

    def _followed(self, node: Any, scope: _Scope) -> _Placed:
        """Return the expression that makes the value of a name, an item or a module's attribute."""
        for _ in range(_MOST_STEPS):
            found = None
            match node:
                case ast.Name():
                    found = self._bound(node.id, scope)
                case ast.Attribute():
                    module = value_of(node.value, scope.file.names)
                    file = self._files.get(
                        getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
                    )
                    found = None if file is None else self._bound(node.attr, _Scope(file))
                case ast.Subscript(slice=ast.Constant(value=key)):
                    held, of_held = self._followed(node.value, scope)
                    item = _item(held, key)
                    found = None if item is None else (item, of_held)
            if found is None:
                break
            node, scope = found
        return node, scope

    def _bound(self, name: str, scope: _Scope) -> _Placed | None:
        """Return the expression that a name is bound to; None if it is bound twice, or in another way."""
        if scope.function is not None and name in _parameters(scope.function):
            return self._passed(name, scope)
        bindings = scope.file.bindings(name, scope.function)
        if not bindings and scope.function is not None:
            outer = scope.file.function(scope.function)
            known = (one for _, one in self._calls if one.function is outer is not None)
            return self._bound(name, next(known, _Scope(scope.file, outer)))
        if len(bindings) != 1:
            return None
        binding: Any = bindings[0]
        around = scope.file.around[binding]
        match around:
            case ast.Assign(value=value) | ast.AnnAssign(value=value) if value is not None:
                return value, scope
            case ast.Tuple(elts=elts):  # a, b = P("x"), P()
                value = getattr(scope.file.around[around], "value", None)
                item = _item(value, elts.index(binding)) if isinstance(value, ast.Tuple) else None
                return None if item is None else (item, scope)
            case ast.ImportFrom(module=module, level=level):
                package = scope.file.names.get("__package__") or ""
                path = resolve_name("." * level + (module or ""), package) if level else module
                file = self._files.module(path)
                return None if file is None else self._bound(binding.name, _Scope(file))
        return None

    def _passed(self, name: str, scope: _Scope) -> _Placed | None:
        """Return the expression that a call passes for a parameter, or its default."""
        if scope.caller is None:
            return None
        call, outer = scope.caller
        names, arguments = _positional(scope), scope.function.args
        starred = [number for number, one in enumerate(call.args) if isinstance(one, ast.Starred)]
        given = dict(zip(names, call.args[: starred[0]] if starred else call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        if name in given or starred or any(keyword.arg is None for keyword in call.keywords):
            return (given[name], outer) if name in given else None
        defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
        defaults |= zip((one.arg for one in arguments.kwonlyargs), arguments.kw_defaults, strict=True)
        default = defaults.get(name)
        return None if default is None else (default, _Scope(scope.file))

    def _defined(self, function: Any) -> tuple[File | None, Any]:
        """Return the file and the definition of a function of the user; None for another value."""
        if not isinstance(function, FunctionType):
            return None, None
        code = function.__code__
        file = self._files.get(code.co_filename)
        nodes = [] if file is None else file.on(code.co_firstlineno)
        found = [node for node in nodes if getattr(node, "name", "<lambda>") == code.co_name]
        return file, next((node for node in reversed(found) if isinstance(node, FUNCTIONS)), None)


def written_specs(file: File) -> Iterator[WrittenSpec]:
    """Yield the specs that are written in a file."""
    for call in file.around:
        if isinstance(call, ast.Call) and _called(call, file) in _SPECS:
            spec = _written(call, _Scope(file, file.function(call)))
            yield from () if spec is None else (spec,)


def _written(node: ast.Call, scope: _Scope) -> WrittenSpec | None:
    """Return the spec of ``P(…)``, or that of the arguments that a helper passes on to it: ``P(*spec)``."""
    file, entries, count = scope.file, node.args, 0
    span, start, end = file.span(node), f"{file.text(file.span(node.func))}(", ")"
    while (call := _passing(entries, scope)) is not None:
        count, node = len(_positional(scope)), call[0]
        scope = call[1]
        file, entries = scope.file, node.args[count:]
        if not node.args or len(node.args) < count:
            return None
        last, end = file.span(node.args[-1])[1], ""
        start, span = ("", (file.span(entries[0])[0], last)) if entries else (", ", (last, last))
    axes = [axes for entry in entries if (axes := _entry(entry, scope)) is not None]
    if len(axes) < len(entries) or (node.keywords and end):
        return None
    texts = [file.text(file.span(entry)) for entry in entries]
    return WrittenSpec(file, node, span, start, end, texts, tuple(axes))


def _passing(entries: list[ast.expr], scope: _Scope) -> tuple[ast.Call, _Scope] | None:
    """Return the call whose last arguments a helper passes on as ``*spec``; None without one."""
    vararg = getattr(getattr(scope.function, "args", None), "vararg", None)
    match entries:
        case [ast.Starred(value=ast.Name(id=name))] if vararg and vararg.arg == name:
            return scope.caller
    return None


def _entry(node: ast.expr, scope: _Scope) -> tuple[str, ...] | None:
    """Return the mesh axes of an entry of a spec; None if they are computed."""
    if isinstance(node, ast.Tuple):
        parts = [_entry(part, scope) for part in node.elts]
        return None if None in parts else tuple(name for part in parts for name in part or ())
    if isinstance(node, ast.Attribute) and node.attr == "UNCONSTRAINED":
        return ()
    is_own = (
        isinstance(node, ast.Name) and scope.function is not None and node.id in _parameters(scope.function)
    )
    value = MISSING if is_own else value_of(node, scope.file.names)
    return () if value is None else (value,) if isinstance(value, str) else None


def _without_mapped(before: Axes, after: Axes) -> Iterator[tuple[Axes, Axes]]:
    """Yield two shardings, then both without each dimension that does not change: one of ``vmap``."""
    yield before, after
    for dim, (old, new) in enumerate(zip(before, after, strict=False)):
        if old == new:
            yield (*before[:dim], *before[dim + 1 :]), (*after[:dim], *after[dim + 1 :])


def _stripped(axes: Axes) -> Axes:
    """Return the mesh axes of dimensions without the last ones that have none."""
    count = max((number for number, names in enumerate(axes, 1) if names), default=0)
    return tuple(axes[:count])


def _last(node: ast.AST) -> str:
    """Return the last name of a dotted one; empty for another expression."""
    return str(getattr(node, "id", getattr(node, "attr", "")))


def _called(call: ast.Call, file: File) -> str:
    """Return the name of the function that is called, of its own where it is known."""
    return str(getattr(value_of(call.func, file.names), "__name__", _last(call.func)))


def _name(file: File, node: ast.AST) -> str:
    """Return the name of the function around a node; empty for one without."""
    function = file.function(node)
    outer = file.around.get(function)
    if isinstance(function, ast.Lambda):
        return _last(outer.targets[0]) if isinstance(outer, ast.Assign) else ""
    return getattr(function, "name", "")


def _returned(function: Any) -> ast.expr | None:
    """Return the expression that is all that a function does; None if it does more."""
    match function:
        case ast.Lambda(body=body):
            return body
        case ast.FunctionDef(body=[ast.Return(value=value)]):
            return value
        case ast.FunctionDef(body=[ast.Expr(value=ast.Constant()), ast.Return(value=value)]):
            return value
    return None


def _parameters(function: Any) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def _positional(scope: _Scope) -> list[str]:
    """Return the names of the parameters that positional arguments of a call are passed for."""
    arguments, name = scope.function.args, getattr(scope.function, "name", "")
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    decorators = map(_last, getattr(scope.function, "decorator_list", ()))
    is_method = (
        isinstance(scope.file.around.get(scope.function), ast.ClassDef) and "staticmethod" not in decorators
    )
    is_bound = scope.caller is not None and isinstance(scope.caller[0].func, ast.Attribute)
    return names[1:] if is_method and (is_bound or name == "__call__") else names


def _argument(call: ast.Call, number: int, name: str) -> ast.expr | None:
    """Return an argument of a call by its number or its name; None without one."""
    if any(isinstance(one, ast.Starred) for one in call.args[: number + 1]):
        return None
    given = (keyword.value for keyword in call.keywords if keyword.arg == name)
    return call.args[number] if len(call.args) > number else next(given, None)


def _item(node: ast.AST, key: Any) -> ast.AST | None:
    """Return an item of a dict, a tuple or a list that is written out; None without one."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return next(
            (value for one, value in pairs if isinstance(one, ast.Constant) and one.value == key), None
        )
    is_item = isinstance(node, ast.Tuple | ast.List) and isinstance(key, int) and key < len(node.elts)
    return node.elts[key] if is_item else None  # type: ignore[attr-defined]
