"""Facts and edits of errors about devices, sizes and buffers: which array is where, what refers to it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any

from ...arrays.holders.search import find_holders
from ...arrays.origins.origins import cell_number, wrapped_functions
from ...base.grouping import by_key
from ...base.quantities import format_device_ids
from ...compat.arrays import buffer_key, is_committed
from ...compat.jitted import donated_parameters
from ...compat.shardings import device_assignment
from ...compat.values import is_abstract_mesh, is_array, is_mesh, is_tracer
from ...facts.reports.origin import SourceLine
from .explanation import Edit, Operand
from .kind import Facts
from .site import Site
from .source import FUNCTIONS, MISSING, Place, at_path
from .types import Axes, specs_in, types_in

_SECONDS = 1.0
"""Time limit of the search for what refers to a leaked value."""

_PART = re.compile(
    r"(?:argument (?P<argument>\S+) of .+? with shape (?P<type>\S+) and|(?:Got|and) ?(?P<other>[\w' ]+?))"
    r"(?: with)? device ids \[(?P<ids>[\d, ]*)\]"
)
_TREE_MAP = ("jax.tree.map", "jax.tree_util.tree_map")
_OF_C = re.compile(r"(tuple|list|dict|cell|frame)\b")
_BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.Match, ast.While)
"""Statements that may have run in part, or not at all."""


def _leaves(place: Place) -> Iterator[tuple[ast.AST, str, Any]]:
    """Yield the arrays of an expression: the part that contains it, the code of the array, the array."""
    import jax

    nodes: list[ast.AST] = [place.node]
    while nodes:
        node = nodes.pop(0)
        value = place.value(node)
        if value is MISSING:
            nodes += [] if isinstance(node, ast.Lambda) else ast.iter_child_nodes(node)
            continue
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
            if is_array(leaf) or is_tracer(leaf):
                yield node, place.text(node) + jax.tree_util.keystr(path), leaf


def different_devices(match: re.Match[str], place: Place) -> Facts:
    """Tell which array is where."""
    arrays, parts = _placed(place), _told_devices(match)
    operands = []
    for part, ids in parts:
        alike = [
            name
            for _, name, leaf, device_ids in arrays
            if (device_ids, leaf.aval.str_short()) == (ids, part["type"])
        ]
        name = part["other"] or next(iter(alike), part["argument"])
        made = f"on {_listed(ids)}"
        operands.append(Operand(expression=name, type=_short(part["type"] or ""), made=made))
    is_order = len(parts) > 1 and sorted(parts[0][1]) == sorted(parts[1][1])
    return Facts({"order": ", in one order" if is_order else ""}, operands)


def moved(site: Site) -> Iterator[Edit]:
    """Move the arrays that are on other devices to those of the one on the most."""
    most = max((ids for _, ids in _told_devices(site.found)), key=len)
    arrays = _placed(site.place)
    wrong = {node: name for node, name, _, device_ids in arrays if device_ids != most}
    target = next((f"{name}.sharding" for _, name, _, device_ids in arrays if device_ids == most), "")
    sharding = target if len(most) == 1 and target else _sharding_on(site, most)
    if wrong and all(name == site.place.text(node) for node, name in wrong.items()):
        put = site.place.path_to("jax.device_put")
        yield site.edited({node: f"{put}({name}, {sharding})" for node, name in wrong.items()})


def _told_devices(match: re.Match[str]) -> list[tuple[re.Match[str], list[int]]]:
    """Return the parts of a message that tell devices, with these."""
    parts = _PART.finditer(match.string)
    return [(part, [int(number) for number in re.findall(r"\d{1,18}", part["ids"])]) for part in parts]


def _placed(place: Place) -> list[tuple[ast.AST, str, Any, list[int]]]:
    """Return the arrays of an expression that were placed on their devices explicitly, with these."""
    leaves = [leaf for leaf in _leaves(place) if is_array(leaf[2]) and is_committed(leaf[2])]
    return [(node, name, leaf, _ids(leaf)) for node, name, leaf in leaves]


def _ids(array: Any) -> list[int]:
    return [device.id for device in device_assignment(array.sharding, array.shape)]


def _short(text: str) -> str:
    """Return a type in a message with the short name of its dtype."""
    return next(map(str, types_in(text, None)), text)


def _listed(ids: list[int]) -> str:
    """Return devices as text, in their order unless that is the usual one."""
    text = format_device_ids(ids) if ids == sorted(ids) else ",".join(map(str, ids))
    return f"device{'s' * (len(ids) > 1)} {text}"


def _sharding_on(site: Site, ids: list[int]) -> str:
    """Return code for a replicated sharding on some devices, from a mesh of the program.

    Raises:
        LookupError: If the program has no mesh of these, or no name for what is needed.
    """
    sharding = site.place.path_to("jax.sharding.NamedSharding", "jax.NamedSharding")
    names = site.place.names
    meshes = [name for name in names if is_mesh(names[name]) and not is_abstract_mesh(names[name])]
    known = {tuple(device.id for device in names[name].devices.flat): name for name in meshes}
    return f"{sharding}({known[tuple(ids)]}, {site.spec(())})"


def outside_the_mesh(site: Site) -> Iterator[Edit]:
    """Read an operand on the host, or set a mesh of its device, where the context mesh has other devices."""
    shown = [_short(part["type"]) for part, _ in _told_devices(site.found) if part["type"]]
    (array,) = [array for array in site.arrays if array.type and [str(array.type)] == shown]
    import numpy

    place, text = site.place, site.place.text(array.node)
    host = next((name for name, value in place.names.items() if value is numpy), "np")
    parts: dict[Any, str] = {array.node: f"{host}.asarray({text})"}
    if isinstance(place.node, ast.Call) and place.value(place.node.func) is at_path(
        f"jax.numpy.{site.last_name}"
    ):
        parts[place.node.func] = f"{host}.{site.last_name}"
    yield site.edited(parts)
    mesh = f"{place.path_to('jax.sharding.Mesh')}({host}.array({text}.device), ())"
    yield Edit(code=f"with {place.path_to('jax.set_mesh')}({mesh}):", is_around=True)


def in_other_processes(match: re.Match[str], place: Place) -> Facts:
    """Tell which array has shards in other processes."""
    arrays = _in_part(leaf for _, *leaf in _leaves(place))
    operands = [Operand(expression=name, type=_short(leaf.aval.str_short())) for name, leaf in arrays]
    return Facts({"name": next((name for name, _ in arrays), "an array")}, operands)


def _in_part(named: Iterable[Any]) -> list[tuple[str, Any]]:
    """Return the arrays that have shards in other processes, with their names."""
    return [(name, leaf) for name, leaf in named if is_array(leaf) and not leaf.is_fully_addressable]


def gathered(site: Site) -> Iterator[Edit]:
    """Gather an array that has shards in other processes."""
    place, names = site.place, {name for name, _ in _in_part(leaf for _, *leaf in _leaves(site.place))}
    (node,) = [node for node, name, _ in _leaves(place) if name in names and name == place.text(node)]
    code = f"process_allgather({place.text(node)}, tiled=True)"
    is_read = site.last_name in ("device_get", "asarray", "array")
    yield Edit(code=code) if is_read or node is place.node else site.edited({node: code})


def closed_over(match: re.Match[str], place: Place) -> Facts:
    """Tell which function closes over which array that has shards in other processes."""
    value = place.value(place.node.func) if isinstance(place.node, ast.Call) else MISSING
    function = None if value is MISSING else wrapped_functions(value)[-1]
    variables: dict[str, Any] = {}
    if isinstance(function, FunctionType):
        closure = inspect.getclosurevars(function)
        variables = {**closure.globals, **closure.nonlocals}
    arrays = [one for one in _in_part(variables.items()) if one[1].aval.str_short() == match["type"]]
    operands = [Operand(expression=name, type=_short(match["type"])) for name, _ in arrays]
    names = " and ".join(name for name, _ in arrays) or f"an array of type {_short(match['type'])}"
    return Facts({"function": getattr(function, "__name__", "The function"), "names": names}, operands)


def indivisible(match: re.Match[str], place: Place) -> Facts:
    """Tell the nearest sizes."""
    parts, size = int(match["parts"]), int(match["size"])
    below, above = size // parts * parts, -(-size // parts) * parts
    names = [", ".join(names) for spec in specs_in(match.string)[:1] for names in spec]
    over = dict(enumerate(names)).get(int(match["dim"]))
    nearest = f"{below} and {above}" if below else str(above)
    return Facts({"nearest": nearest, "over": f" over {over}" if over else ""})


def divisors(site: Site, spec: Axes) -> list[Axes]:
    """Return specs with one mesh axis that divides a dimension, or none, in place of those that do not."""
    dim, size = int(site.found["dim"]), int(site.found["size"])
    used = {name for names in spec for name in names}
    free = [
        (name,) for name, count in site.sizes.items() if count > 1 and not size % count and name not in used
    ]
    return [(*spec[:dim], names, *spec[dim + 1 :]) for names in (*free, ())]


def donated_twice(match: re.Match[str], place: Place) -> Facts:
    """Tell which arguments are one array."""
    names = dict.fromkeys(name for _, name in _twice(place))
    return Facts({"names": f": {' and '.join(names)}" if names else ""}, ())


def copied(site: Site) -> Iterator[Edit]:
    """Copy all but the first of the arguments that are one array."""
    if twice := _twice(site.place):
        text = site.place.text
        yield site.edited({node: _copied(site.place, text(node), name) for node, name in twice[1:]})


def _twice(place: Place) -> list[tuple[ast.AST, str]]:
    """Return the places of the only array that an expression has twice; none if there are several."""
    names = by_key((buffer_key(leaf), (node, name)) for node, name, leaf in _leaves(place))
    twice = [alike for key, alike in names.items() if key is not None and len(alike) > 1]
    return twice[0] if len(twice) == 1 else []


def _copied(place: Place, text: str, name: str) -> str:
    """Return code for a copy of an array, or of all arrays in the tree that contains it."""
    if name == text:
        return f"{text}.copy()"
    return f"{place.path_to(*_TREE_MAP)}({place.path_to('jax.numpy.copy')}, {text})"


def deleted(match: re.Match[str], place: Place) -> Facts:
    """Tell which array is gone, and which call has donated it."""
    arrays = {name: leaf for _, name, leaf in _leaves(place) if is_array(leaf) and leaf.is_deleted()}
    name = next(iter(arrays), "an array")
    calls = sorted(_consuming(place, name), key=lambda call: (call.lineno < place.node.lineno, call.lineno))
    what = "donated to a call, or deleted. Use the result of the call, or donate a copy"
    if calls:
        function, line = place.text(calls[-1].func), calls[-1].lineno
        what = f"donated to {function} at line {line}. Use its result, or donate a copy"
        what = f"deleted at line {line}" if function == f"{name}.delete" else what
    operands = [Operand(expression=text, type=_short(leaf.aval.str_short())) for text, leaf in arrays.items()]
    return Facts({"name": name, "what": what}, operands)


def _consuming(place: Place, name: str) -> Iterator[ast.Call]:
    """Yield the calls in the user's function, up to its line, that donate or delete an array.

    Left out are those whose statement assigns its name again, and those that may not have run.
    """
    text, around = place.text, place.source.around(place.node, ast.AST)
    scope = next((outer for outer in around if isinstance(outer, FUNCTIONS)), place.source.tree)
    other: set[ast.AST] = set()
    for node in ast.walk(scope):
        targets = node.targets if isinstance(node, ast.Assign) else ()
        parts = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.expr)]
        is_set = name in map(text, parts)
        if is_set or (isinstance(node, (*FUNCTIONS, *_BRANCHES)) and node not in around):
            other.update(ast.walk(node))
    for call in ast.walk(scope):
        if isinstance(call, ast.Call) and call not in other and call.lineno <= place.node.lineno:
            donated = donated_parameters(place.value(call.func))
            given = [text(argument) for number, argument in enumerate(call.args) if number in donated]
            if name in given or text(call.func) == f"{name}.delete":
                yield call


def leaked(match: re.Match[str], place: Place) -> Facts:
    """Tell where the value was made, and what refers to it: another name than a variable does itself."""
    # A list that is emptied: nothing of it refers to the value.
    values = [(name, leaf) for _, name, leaf in _leaves(place) if is_tracer(leaf)]
    name, value = values.pop() if len(values) == 1 else ("", None)
    path = name
    if name.isidentifier():  # the search may end before it finds what refers to the variable's value
        path = find_holders([value], max_seconds=_SECONDS).paths.get(id(value), "")
    # What only C holds has the name of its class.
    holder = name if _OF_C.match(path) else path
    file, line, _ = match["made"].rsplit(":", 2)
    made = SourceLine(file=file, line=int(line), function="", cell=cell_number(file)).place
    operands = [Operand(expression=name, type=_short(match["type"]), made=f"made at {made}")]
    return Facts({"holder": f" in {holder}" if holder else ""}, operands)
