"""Locations of the operations of a lowered program, and strings as XLA and MLIR print them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_Frame = tuple[str, int, int, str]
"""File, line, column and function."""
Stack = tuple[_Frame, ...]
"""Frames of an operation, outermost first."""

_LOCATION = re.compile(r"(#loc\d*) = loc\((.*)\)")
_OF_OPERATION = re.compile(r"loc\((#loc\d*)\)$")
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d{1,9}):(\d{1,9})')
_NAMED = re.compile(r'"((?:[^"\\]|\\.)*)"\((#loc\d*)\)')
_CALL_SITE = re.compile(r"callsite\((#loc\d*) at (#loc\d*)\)")
_FUNCTION = re.compile(r"\s*func\.func (?:\w+ )?@([^\s(]+)\(")
_CALL = re.compile(r"(?:^|= |\s)(?:func\.)?call @([^\s(]+)\(")


def operations(mlir: str) -> Iterator[tuple[str, Stack]]:
    """Yield the names and stacks of the operations, those of a called function at its first call.

    In some versions, names and stacks of a called function begin in it: XLA puts those of each call in front.
    """
    locations: dict[str, str] = {}
    functions: dict[str, list[tuple[str, str]]] = {}
    inside: list[tuple[str, str]] = []
    for line in mlir.splitlines():
        if line.startswith("#loc"):
            location = _LOCATION.fullmatch(line)
            if location is not None:
                locations[location[1]] = location[2]
        elif (function := _FUNCTION.match(line)) is not None:
            inside = functions.setdefault(function[1], [])
        elif (place := _OF_OPERATION.search(line)) is not None:
            called = _CALL.search(line)
            inside.append((place[1], called[1] if called and "custom_call" not in line else ""))
    entered = {"main"}
    waiting = [iter(functions.get("main", ()))]
    while waiting:
        operation = next(waiting[-1], None)
        if operation is None:
            waiting.pop()
        elif operation[1] not in functions:
            yield from _described(operation[0], locations)
        elif operation[1] not in entered:
            entered.add(operation[1])
            waiting.append(iter(functions[operation[1]]))


def source_lines(mlir: str) -> set[tuple[str, int]]:
    """Return file and line of all locations in a lowered program."""
    return {(unescaped(file), int(line)) for file, line, _ in _FILE.findall(mlir)}


def _described(place: str, locations: Mapping[str, str]) -> Iterator[tuple[str, Stack]]:
    """Yield the name and the stack of an operation, if its location is known."""
    named = _NAMED.fullmatch(locations.get(place, ""))
    if named is None:
        return
    frames: list[_Frame] = []
    outer = named[2]
    while (site := _CALL_SITE.fullmatch(locations.get(outer, ""))) is not None and len(frames) < 1000:
        frames += _frame(site[1], locations)
        outer = site[2]
    frames += _frame(outer, locations)
    if frames:
        yield unescaped(named[1]), tuple(reversed(frames))


def _frame(place: str, locations: Mapping[str, str]) -> list[_Frame]:
    """Return the frame of a location: a function's name around a place in a file."""
    named = _NAMED.fullmatch(locations.get(place, ""))
    file = None if named is None else _FILE.match(locations.get(named[2], ""))
    if named is None or file is None:
        return []
    return [(unescaped(file[1]), int(file[2]), int(file[3]), unescaped(named[1]))]


_ESCAPES = re.compile(r"(?:\\(?:[0-7]{3}|x[0-9a-fA-F]{2}|.))+")
_ESCAPE = re.compile(r"\\(?:([0-7]{3})|x([0-9a-fA-F]{2})|(.))")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


def unescaped(text: str) -> str:
    r"""Return the text of a string with its escapes resolved: ``params[\'wi\']`` is ``params['wi']``."""
    return _ESCAPES.sub(_resolve, text) if "\\" in text else text


def _resolve(escapes: re.Match[str]) -> str:
    """Return the text of adjacent escapes. XLA escapes each byte of a character that is not ASCII."""
    found = bytearray()
    for octal, hexadecimal, character in _ESCAPE.findall(escapes[0]):
        if character:
            found += _CONTROL.get(character, character).encode("utf-8", "surrogatepass")
        else:
            found.append(int(octal, 8) & 255 if octal else int(hexadecimal, 16))
    return found.decode("utf-8", "replace")
