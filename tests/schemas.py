"""Hypothesis strategies for the JSON that a JSON schema accepts."""

from random import Random

import numpy as np
from hypothesis import strategies as st

HOSTILE = (
    "\x1b[31m",  # a terminal escape
    "\x1b]0;title\x07",
    "two\nlines\r\t\x0b\x0c",
    "\x00\x7f\x9b31m",
    "\ud800",  # a lone surrogate
    "\ufffe\uffff",
    "\u202e\u2066",  # change the reading direction
    "[red]a[/red] [/]",
    "</pre><script>&amp;'\"]]>",
    "x" * 300,
    "日本" * 40,
    "e\u0301\u200b",
    "",
)
"""Texts that do harm if a terminal, rich, XML or HTML interprets them."""

NUMBERS = (0, 1, 2, 3, 7, -1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**299, -(10**299))
"""Numbers at the limits of arithmetic, all valid in JSON."""

texts = st.sampled_from(HOSTILE) | st.text(max_size=5)
integers = st.integers(0, 4) | st.sampled_from(NUMBERS)
numbers = integers | st.floats() | st.sampled_from([1e299, -1e299, 5e-324])
device_ids = st.recursive(integers, lambda ids: st.lists(ids, max_size=3), max_leaves=6)


def admitted_by(schema, name):
    """Return a strategy for a definition of a schema. Items without a schema are device ids."""

    def of(node):
        if "const" in node or "enum" in node:
            return st.sampled_from(node.get("enum") or [node["const"]])
        if "anyOf" in node:
            return st.one_of([of(choice) for choice in node["anyOf"]])
        if "$ref" in node:
            return st.deferred(lambda: named(node["$ref"].rpartition("/")[2]))
        match node["type"]:
            case "object":
                properties = {key: of(value) for key, value in node["properties"].items()}
                required = {key: properties.pop(key) for key in node.get("required", ())}
                return st.fixed_dictionaries(required, optional=properties)
            case "array" if "prefixItems" in node:
                return st.tuples(*map(of, node["prefixItems"])).map(list)
            case "array" if "items" in node:
                return st.lists(of(node["items"]), max_size=3)
            case "array":
                return device_ids
            case json_type:
                return PLAIN[json_type]

    def named(definition):
        plain = of(schema["$defs"][definition])
        # Values that only satisfy the schema are nearly always rejected, as their parts do not agree.
        return st.one_of(plain, plain.map(AGREEING[definition])) if definition in AGREEING else plain

    return named(name)


def _agreeing_layout(layout):
    """Return a layout whose device ids match its shape, each with a process."""
    counts = [1 + abs(length) % 3 for length in layout["shape"]] + [1 + len(layout["shape"]) % 2]
    ids = np.arange(np.prod(counts))
    processes = [[number, part.tolist()] for number, part in enumerate(np.array_split(ids, 2))]
    return {
        **layout,
        "shape": list(map(abs, layout["shape"])),
        "device_ids": ids.reshape(counts).tolist(),
        "processes": processes if layout.get("processes") else [],
    }


def _agreeing_mesh(mesh):
    """Return a mesh with one size and one type per name."""
    names = list(dict.fromkeys(mesh["names"]))
    types = [mesh["types"][0] for _ in names] if mesh.get("types") else []
    return {"names": names, "sizes": [1 + len(name) % 4 for name in names], "types": types}


def _agreeing_mesh_report(report):
    """Return a mesh report whose layout has the sizes of its axes."""
    axes = _agreeing_mesh(report["axes"])
    layout = {**report["layout"], "shape": axes["sizes"]}
    ids = np.arange(np.prod(axes["sizes"], dtype=int)).reshape([*axes["sizes"], 1])
    return {"axes": axes, "layout": {**layout, "device_ids": ids.tolist(), "processes": []}}


def _agreeing_sharding(sharding):
    """Return a sharding whose mesh also has the axes that its spec names."""
    spec, mesh = sharding.get("spec"), sharding.get("mesh")
    if not spec or not mesh:
        return sharding
    named = [name for entry in (*spec["axes"], spec.get("unreduced", ())) for name in entry]
    return {**sharding, "mesh": _agreeing_mesh({**mesh, "names": [*named, *mesh["names"]]})}


def _agreeing_array(array):
    """Return an array report that has a local part only if it has a layout."""
    return array if array.get("layout") else {**array, "local_part": None}


AGREEING = {
    "ArrayReport": _agreeing_array,
    "ShardingDescription": _agreeing_sharding,
    "ShardingLayout": _agreeing_layout,
    "MeshAxes": _agreeing_mesh,
    "MeshReport": _agreeing_mesh_report,
}

PLAIN = {
    "string": texts,
    "integer": integers,
    "number": numbers,
    "boolean": st.booleans(),
    "null": st.none(),
}


def complete(schema, name, turn, text):
    """Return a value of a definition with every optional field present.

    Args:
        schema: The schema.
        name: Name of a definition in it.
        turn: Seed of the choices between alternatives.
        text: Function from the name of a definition and of its field to the text of that field.
    """

    random = Random(turn)

    def of(node, definition, field):
        if "const" in node or "enum" in node:
            return random.choice(node.get("enum") or [node["const"]])
        if "anyOf" in node:
            return of(random.choice(node["anyOf"]), definition, field)
        if "$ref" in node:
            return named(node["$ref"].rpartition("/")[2])
        match node["type"]:
            case "object":
                return {key: of(value, definition, key) for key, value in node["properties"].items()}
            case "array" if "prefixItems" in node:
                return [of(item, definition, field) for item in node["prefixItems"]]
            case "array":
                return [of(node["items"], definition, field)] if "items" in node else [0]
            case "string":
                return text(definition, field)
        return {"integer": 1, "number": 0.5, "boolean": random.random() < 0.5, "null": None}[node["type"]]

    def named(definition):
        made = of(schema["$defs"][definition], definition, "")
        return AGREEING.get(definition, dict)(made)

    return named(name)


def changed(value, draw):
    """Return a JSON value with one change: another number or text, or one entry more or less."""
    places = list(_places(value, ()))
    place = draw(st.sampled_from(places))
    return _with(value, place, lambda old: _other(old, draw))


def _places(value, place):
    yield place
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, entry in entries:
        yield from _places(entry, (*place, key))


def _with(value, place, change):
    if not place:
        return change(value)
    copy = value.copy()
    copy[place[0]] = _with(value[place[0]], place[1:], change)
    return copy


def _other(value, draw):
    if isinstance(value, list) and value and draw(st.booleans()):
        return value[1:] if draw(st.booleans()) else [*value, value[-1]]
    if isinstance(value, str):
        return draw(texts)
    return draw(st.sampled_from([integers, numbers, st.none(), st.just([])]).flatmap(lambda drawn: drawn))
