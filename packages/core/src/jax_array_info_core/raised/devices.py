"""Kinds of errors about devices, sizes and buffers: which array is where, what divides, what refers to it."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..compat.arrays import buffer_key, is_committed
from ..compat.jitted import donated_parameters
from ..compat.shardings import device_assignment
from ..compat.values import is_abstract_mesh, is_array, is_mesh, is_tracer
from ..holders.search import find_holders
from ..origins.origins import cell_number
from ..quantities import format_device_ids
from ..reports.origin import SourceLine
from ..text import plain_text
from .explain import MOST_CHARACTERS
from .explanation import Edit, Explanation, Operand
from .kind import Kind
from .operands import arrays_of, described
from .places import with_the_spec
from .rewrites import respecified
from .site import SPECS, Site
from .source import MISSING, Place, place_of
from .types import Axes, mesh_in, specs_in, types_in

_SECONDS = 1.0
"""Time limit of the search for what refers to a leaked value."""


class Facts(NamedTuple):
    """Facts about an error at the user's line."""

    words: Mapping[str, str]
    """Words of the rule that are not groups of the pattern."""
    operands: Sequence[Operand] = ()
    edits: Sequence[Edit] = ()
    place: Place | None = None
    """Place of the edits; None for the line that raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind(Kind):
    """A kind of error whose rule has facts of this program."""

    facts: Callable[[re.Match[str], Place], Facts] = lambda found, place: Facts({})
    """Function that returns them."""


def device_explanation(error: BaseException) -> Explanation | None:
    """Return why JAX raised an error about devices, sizes or buffers; None for any other error."""
    message = plain_text(error)[:MOST_CHARACTERS].replace("PartitionSpec(", "P(")
    for kind in KINDS:
        found = re.match(kind.pattern, message, re.DOTALL)
        place = None if found is None else place_of(error)
        if found is None or place is None:
            continue
        with contextlib.suppress(ArithmeticError, LookupError, ValueError):  # the message has another form
            words, operands, edits, other = kind.facts(found, place)
            place = other or place
            source, node = place.source, place.node
            whole = source.unique(node)
            codes = [source.replaced(whole, {node: edit.code}) for edit in edits]
            return Explanation(
                kind=kind.name,
                rule=kind.rule.format(**{**found.groupdict(), **words}),
                file=place.file,
                line=whole.lineno,
                function=place.function,
                expression=place.text(whole),
                operands=tuple(operands),
                edits=tuple(Edit(code=code) for code in codes),
            )
    return None


_PART = re.compile(
    r"(?:argument (?P<argument>\S+) of .+? with shape (?P<type>\S+) and|(?:Got|and) ?(?P<other>[\w' ]+?))"
    r"(?: with)? device ids \[(?P<ids>[\d, ]*)\]"
)
_TREE_MAP = ("jax.tree.map", "jax.tree_util.tree_map")
_OF_C = re.compile(r"(tuple|list|dict|cell|frame)\b")
_BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.Match, ast.While)
"""Statements that may have run in part, or not at all."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


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


def _devices(found: re.Match[str], place: Place) -> Facts:
    """Tell which is where, and move the others to the devices of the one on the most."""
    leaves = [leaf for leaf in _leaves(place) if is_array(leaf[2]) and is_committed(leaf[2])]
    arrays = [(node, name, leaf, _ids(leaf)) for node, name, leaf in leaves]
    operands, ids = [], []
    for part in _PART.finditer(found.string):
        known = [int(number) for number in part["ids"].split(",")], part["type"] or ""
        alike = [name for _, name, leaf, own in arrays if (own, leaf.aval.str_short()) == known]
        name = part["other"] or next(iter(alike), part["argument"])
        operands.append(Operand(expression=name, type=_short(known[1]), made=f"on {_listed(known[0])}"))
        ids.append(known[0])
    most = max(ids, key=len, default=[])
    wrong = {node: name for node, name, _, own in arrays if own != most}
    edits = []
    with contextlib.suppress(LookupError):  # the program has no name for what is needed
        target = next((f"{name}.sharding" for _, name, _, own in arrays if own == most), "")
        sharding = target if len(most) == 1 and target else _sharding_on(place, most)
        if wrong and all(name == place.text(node) for node, name in wrong.items()):
            put = place.path_to("jax.device_put")
            parts = {node: f"{put}({name}, {sharding})" for node, name in wrong.items()}
            edits.append(Edit(code=place.source.replaced(place.node, parts)))
    is_order = len(ids) > 1 and sorted(ids[0]) == sorted(ids[1])
    return Facts({"order": ", in one order" if is_order else ""}, operands, edits)


def _ids(array: Any) -> list[int]:
    return [device.id for device in device_assignment(array.sharding, array.shape)]


def _short(text: str) -> str:
    """Return a type in a message with the short name of its dtype."""
    return next(map(str, types_in(text, None)), text)


def _listed(ids: list[int]) -> str:
    """Return devices as text, in their order unless that is the usual one."""
    text = format_device_ids(ids) if ids == sorted(ids) else ",".join(map(str, ids))
    return f"device{'s' * (len(ids) > 1)} {text}"


def _sharding_on(place: Place, ids: list[int]) -> str:
    """Return code for a replicated sharding on some devices, from a mesh of the program.

    Raises:
        LookupError: If the program has no mesh of these, or no name for what is needed.
    """
    sharding, spec = place.path_to("jax.sharding.NamedSharding", "jax.NamedSharding"), place.path_to(*SPECS)
    meshes = {
        name: mesh for name, mesh in place.names.items() if is_mesh(mesh) and not is_abstract_mesh(mesh)
    }
    known = {tuple(device.id for device in mesh.devices.flat): name for name, mesh in meshes.items()}
    return f"{sharding}({known[tuple(ids)]}, {spec}())"


def _divided(found: re.Match[str], place: Place) -> Facts:
    """Tell the nearest sizes, and shard the dimension over one mesh axis that divides it, or over none."""
    parts, size = int(found["parts"]), int(found["size"])
    below, above = size // parts * parts, -(-size // parts) * parts
    mesh, specs = mesh_in(found.string), specs_in(found.string)
    over = f" over {', '.join(specs[0][int(found['dim'])])}" if specs else ""
    words = {"nearest": f"{below} and {above}" if below else str(above), "over": over}
    other = with_the_spec(place, found) or place
    site = Site(place=other, arrays=arrays_of(other), found=found, types=[], specs=specs, mesh=mesh)
    edits: list[Edit] = []
    with contextlib.suppress(LookupError, ValueError):  # no line has the spec as text
        edits += respecified(_divisors)(site)
    return Facts(words, [one for array in site.arrays for one in described(other, array)], edits, other)


def _divisors(site: Site, spec: Axes) -> list[Axes]:
    """Return specs with one mesh axis that divides a dimension, or none, in place of those that do not."""
    dim, size = int(site.found["dim"]), int(site.found["size"])
    used = {name for names in spec for name in names}
    free = [
        (name,) for name, count in site.sizes.items() if count > 1 and not size % count and name not in used
    ]
    return [(*spec[:dim], names, *spec[dim + 1 :]) for names in (*free, ())]


def _donated_twice(found: re.Match[str], place: Place) -> Facts:
    """Tell which arguments are one array, if only one array is there twice, and copy all but the first."""
    names: dict[Any, list[tuple[ast.AST, str]]] = {}
    for node, name, leaf in _leaves(place):
        if (key := buffer_key(leaf)) is not None:
            names.setdefault(key, []).append((node, name))
    twice = [alike for alike in names.values() if len(alike) > 1]
    if len(twice) != 1:
        return Facts({"names": ""})
    edits = []
    with contextlib.suppress(LookupError):  # the program has no name for what is needed
        parts = {node: _copied(place, place.text(node), name) for node, name in twice[0][1:]}
        edits.append(Edit(code=place.source.replaced(place.node, parts)))
    return Facts({"names": f": {' and '.join(dict.fromkeys(name for _, name in twice[0]))}"}, edits=edits)


def _copied(place: Place, text: str, name: str) -> str:
    """Return code for a copy of an array, or of all arrays in the tree that contains it."""
    if name == text:
        return f"{text}.copy()"
    return f"{place.path_to(*_TREE_MAP)}({place.path_to('jax.numpy.copy')}, {text})"


def _deleted(found: re.Match[str], place: Place) -> Facts:
    """Tell which array is gone, and which call has donated it."""
    arrays = {name: leaf for _, name, leaf in _leaves(place) if is_array(leaf) and leaf.is_deleted()}
    name = next(iter(arrays), "an array")
    calls = sorted(_consuming(place, name), key=lambda one: (one.lineno < place.node.lineno, one.lineno))
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
    text, span = place.text, place.source.span
    start, stop = span(place.node)
    around: list[Any] = [place.source.tree]
    for one in around:  # grows
        inside = [(*span(inner), inner) for inner in ast.iter_child_nodes(one) if hasattr(inner, "lineno")]
        around += [inner for first, last, inner in inside if first <= start and stop <= last]
    scope = next(one for one in reversed(around) if isinstance(one, (*_FUNCTIONS, ast.Module)))
    other: set[ast.AST] = set()
    for one in ast.walk(scope):
        targets = one.targets if isinstance(one, ast.Assign) else ()
        parts = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.expr)]
        is_set = name in map(text, parts)
        if is_set or (isinstance(one, (*_FUNCTIONS, *_BRANCHES)) and one not in around):
            other.update(ast.walk(one))
    for call in ast.walk(scope):
        if isinstance(call, ast.Call) and call not in other and call.lineno <= place.node.lineno:
            donated = donated_parameters(place.value(call.func))
            given = [text(one) for number, one in enumerate(call.args) if number in donated]
            if name in given or text(call.func) == f"{name}.delete":
                yield call


def _leaked(found: re.Match[str], place: Place) -> Facts:
    """Tell where the value was made, and what refers to it: another name than a variable does itself."""
    # A list that is emptied: nothing of it refers to the value.
    values = [(name, leaf) for _, name, leaf in _leaves(place) if is_tracer(leaf)]
    name, value = values.pop() if len(values) == 1 else ("", None)
    path = name
    if name.isidentifier():  # the search may end before it finds what refers to the variable's value
        path = find_holders([value], max_seconds=_SECONDS).paths.get(id(value), "")
    # What only C holds has the name of its class.
    holder = name if _OF_C.match(path) else path
    file, line, _ = found["made"].rsplit(":", 2)
    made = SourceLine(file=file, line=int(line), function="", cell=cell_number(file)).place
    operands = [Operand(expression=name, type=_short(found["type"]), made=f"made at {made}")]
    return Facts({"holder": f" in {holder}" if holder else ""}, operands)


KINDS = (
    DeviceKind(
        name="incompatible devices",
        pattern=r"Received incompatible devices for \w+ computation",
        rule="All arrays and shardings of a computation must be on the same devices{order}.",
        facts=_devices,
    ),
    DeviceKind(
        name="size not divisible",
        pattern=r".*?(?:array axis|dimension) (?P<dim>\d+) (?:is partitioned|should be divisible by)"
        r" (?P<parts>\d+)(?: times)?, but (?:the dimension size is|it is equal to|does not evenly divide the"
        r" dimension size) (?P<size>\d+)",
        rule="Dimension {dim} has {size} elements, which cannot be divided into {parts} shards{over}."
        " The nearest sizes that can: {nearest}.",
        facts=_divided,
    ),
    DeviceKind(
        name="donated twice",
        pattern=r"INVALID_ARGUMENT: Attempt to (?:donate the same buffer twice|use a buffer that was)",
        rule="The call donates an array that it gets twice{names}.",
        facts=_donated_twice,
    ),
    DeviceKind(
        name="deleted array",
        pattern=r"Array has been deleted|INVALID_ARGUMENT: .*buffer has been deleted or donated",
        rule="The memory of {name} is gone: it was {what}.",
        facts=_deleted,
    ),
    DeviceKind(
        name="leaked value",
        pattern=r"Encountered an unexpected tracer\..*?with type (?P<type>\S+) wrapped.*?leaked was"
        r" (?P<function>\S+) at .*? traced for (?P<by>\w+)\..*?created on line (?P<made>\S+:\d+:\d+) ",
        rule="{function} has left a value of its tracing for {by}{holder}: return the value instead.",
        facts=_leaked,
    ),
    DeviceKind(
        name="leaked value",
        pattern=r"Leaked trace .*?tracing the function (?P<function>\S+) at .*? for (?P<by>\w+)\."
        r".*?\((?P<holder>\S+)\) closed-over variable (?P<variable>\w+)",
        rule="{function} has left a value of its tracing for {by} in {variable}, which {holder} closes over:"
        " return the value instead.",
    ),
)
"""The first kind whose pattern matches explains an error."""
