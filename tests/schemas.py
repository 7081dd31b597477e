"""Hypothesis strategies for the JSON that a JSON schema accepts."""

from itertools import product
from random import Random

from hypothesis import strategies as st

from tests.agreeing import AGREEING

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
            case "object" if "properties" not in node:
                return st.dictionaries(st.text(max_size=3), of(node["additionalProperties"]), max_size=2)
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
            case "integer" if "minimum" in node:
                # A number out of bounds is always rejected.
                most = node.get("maximum", max(NUMBERS))
                within = [one for one in NUMBERS if node["minimum"] <= one <= most]
                return st.sampled_from(within) | integers
            case json_type:
                return PLAIN[json_type]

    def named(definition):
        plain = of(schema["$defs"][definition])
        # Values that only satisfy the schema are nearly always rejected, as their parts do not agree.
        return st.one_of(plain, plain.map(AGREEING[definition])) if definition in AGREEING else plain

    return named(name)


PLAIN = {
    "string": texts,
    "integer": integers,
    "number": numbers,
    "boolean": st.booleans(),
    "null": st.none(),
}


def covering(schema, name, text, turns):
    """Return values of ``complete``: those that have each pair of alternatives of a definition, and the others."""
    values = []
    for turn in range(turns):
        chosen = set()
        value = complete(schema, name, turn, text, chosen)
        pairs = {(first, second) for first, second in product(chosen, repeat=2) if first[0] == second[0]}
        values.append((value, pairs))
    missing, cover = set().union(*(pairs for _, pairs in values)), []
    while missing or not cover:
        best = max(values, key=lambda candidate: len(candidate[1] & missing))
        values.remove(best)
        missing -= best[1]
        cover.append(best[0])
    return cover, [value for value, _ in values]


def complete(schema, name, turn, text, chosen):
    """Return a value of a definition with every optional field present.

    Args:
        schema: The schema.
        name: Name of a definition in it.
        turn: Seed of the choices between alternatives.
        text: Function from the name of a definition and of its field to the text of that field.
        chosen: Set to which each choice is added: its place, the field, and the number of the alternative. The
            place is the definition; many words are a place of their own, since they make too many pairs.
    """

    random = Random(turn)

    def choice(alternatives, place, field):
        number = random.randrange(len(alternatives))
        chosen.add((place, field, number))
        return alternatives[number]

    def of(node, definition, field):
        if "const" in node or "enum" in node:
            words = node.get("enum") or [node["const"]]
            return choice(words, (definition, field) if len(words) > 4 else definition, field)
        if "anyOf" in node:
            return of(choice(node["anyOf"], definition, field), definition, field)
        if "$ref" in node:
            return named(node["$ref"].rpartition("/")[2])
        match node["type"]:
            case "object" if "properties" not in node:
                return {"one": of(node["additionalProperties"], definition, field)}
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
