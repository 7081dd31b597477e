"""Reader of XLA's text of a compiled program."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from ..layouts.layout import MAX_DEVICES
from .frames import SECTIONS, FrameTables, column_of, frames_of
from .module import (
    Alias,
    Computation,
    Frame,
    Instruction,
    Module,
    Type,
    read_attributes,
    read_fields,
    read_type,
)

_HEADER = re.compile(r"HloModule ([^\s,]+)((?s:.*))")
_ALIAS = re.compile(r"\{([\d, ]*)\}: \((\d{1,9}), \{([\d, ]*)\}(?:, [\w-]+)?\)")
_DONOR = re.compile(r"\((\d{1,9}), \{([\d, ]*)\}\)")
_INDEX = re.compile(r"\d{0,9}")


class Header(NamedTuple):
    """The first line of a program."""

    name: str
    """Name of the module."""

    aliases: tuple[Alias, ...]
    """Outputs that reuse the memory of an argument."""

    buffer_donors: tuple[int, ...]
    """Parameters that are donated without a fixed output."""

    device_count: int
    """``num_partitions`` times ``replica_count``."""

    is_understood: bool
    """Whether all of the line that matters was read."""


def read_header(line: str) -> Header | None:
    """Return the facts of the first line; None if a line is not the first one of a program."""
    match = _HEADER.fullmatch(line)
    if match is None:
        return None
    attributes, is_understood = read_attributes(match[2])
    aliases: list[Alias] = []
    rows, is_whole = _rows(_ALIAS, attributes.get("input_output_alias", "{}"))
    for output, number, index in rows:
        place, parameter = _single(output), _parameter(number, index)
        if place is None or parameter is None:
            is_whole = False
        else:
            aliases.append(Alias(place, parameter))
    donated, are_whole = _rows(_DONOR, attributes.get("buffer_donor", "{}"))
    donors = [_parameter(number, index) for number, index in donated]
    counts = [attributes.get(name, "1") for name in ("num_partitions", "replica_count")]
    count = math.prod(int(text) if text.isdecimal() and len(text) < 10 else 0 for text in counts)
    is_count = 0 < count <= MAX_DEVICES
    return Header(
        match[1],
        tuple(aliases),
        tuple(one for one in donors if one is not None),
        count if is_count else 1,
        is_understood and is_whole and are_whole and None not in donors and is_count,
    )


def _rows(pattern: re.Pattern[str], text: str) -> tuple[list[tuple[str, ...]], bool]:
    """Return the elements of a list in braces, and whether there is nothing else in it."""
    found = [match.groups() for match in pattern.finditer(text)]
    return found, not pattern.sub("", text).strip("{}, ")


def _single(index: str) -> int | None:
    """Return the place in a flat tuple: 0 for a result that is not a tuple. None for nested tuples."""
    return int(index or 0) if _INDEX.fullmatch(index) else None


def _parameter(number: str, index: str) -> int | None:
    """Return the number of a parameter.

    On TPU, JAX passes thousands of arguments as one tuple: then it is the place in this tuple.
    """
    if not index:
        return int(number)
    return _single(index) if number == "0" else None


def computation_of(name: str, instructions: Iterable[Instruction]) -> Computation:
    """Return a computation in which each element of a tuple that is used has an instruction of its own."""
    instructions = tuple(instructions)
    if "#" in "".join(chain.from_iterable(one.operands for one in instructions)):
        instructions = tuple(_with_elements(instructions))
    return Computation(name, instructions, {one.name: one for one in instructions})


def _with_elements(instructions: Iterable[Instruction]) -> Iterator[Instruction]:
    """Yield instructions, each after the elements that it is the first to use."""
    seen: dict[str, Instruction] = {}
    for instruction in instructions:
        for operand in instruction.operands:
            whole, separator, place = operand.rpartition("#")
            if separator and operand not in seen and whole in seen and place.isdecimal():
                seen[operand] = _element(operand, seen[whole], place)
                yield seen[operand]
        seen[instruction.name] = instruction
        yield instruction


def _element(name: str, whole: Instruction, place: str) -> Instruction:
    """Return the instruction for an element of a tuple."""
    inside = [shape for shape, group in zip(whole.shapes, whole.groups, strict=False) if str(group) == place]
    return whole._replace(
        name=name,
        opcode="get-tuple-element",
        shapes=tuple(inside),
        groups=tuple(range(len(inside))) if len(inside) > 1 else (),
        operands=(whole.name,),
        attributes={"index": place},
        literal="",
        is_root=False,
    )


# A type has spaces only if it is a tuple.
START = r"\s*+(ROOT )?%?([^\s=(),{}]++) = ((?!\()\S++|\(.*?\)(?= [a-z][\w-]*+\()) ([a-z][\w-]*+)\("
"""Pattern of an instruction up to its operands: ``ROOT``, its name, its type and its operation."""

_START = re.compile(START)
_SENDS = re.compile(r"all-|collective|reduce-scatter|send|recv|custom-call")
_GROUPS = re.compile(r"\b(?:replica_groups|source_target_pairs)=")
_ROW = re.compile(r'\d+ [{"]')
"""Start of a row of the tables of stack frames."""

_LONGEST = 300
"""Characters of a line."""
_LONGEST_TYPE = 100


def clipped(line: str) -> str:
    """Return the beginning of a line, with its operation after a long tuple of types."""
    line = line.strip()
    if len(line) > _LONGEST and (start := _START.match(line)) and start.end(3) > _LONGEST_TYPE:
        line = f"{line[:_LONGEST_TYPE]}...) {line[start.start(4) :]}"
    return line[:_LONGEST]


def may_send(line: str) -> bool:
    """Return whether an unread line may send bytes: a collective, a send, a recv or a custom call.

    Pallas kernels are custom calls, and can copy to other devices. A line whose operation is not known may
    send, too.
    """
    start = _START.match(line)
    if start is None:
        return _ROW.match(line) is None
    return bool(_SENDS.search(start[4]) or _GROUPS.search(line))


# Operands with parentheses are left to _closing.
_INSTRUCTION = re.compile(rf"{START}(?:([^()]*+)\)((?s:.*+)))?")
_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s=(),{}]++) (?:\(.*)?\{")
_END = re.compile(r"\}(?:, \w+=.*)?")
_PARENTHESIS = re.compile(r"[()]")
_PUNCTUATION = re.compile(r'\\.|["(){}]')
_OPERAND = re.compile(r"%([^\s,()]+)")
_TRIP_COUNT = re.compile(r'\\?"known_trip_count\\?":\{\\?"n\\?":\\?"(\d{1,18})\\?"')

_LITERALS = ("parameter", "constant")
"""Operations that have a text in place of operands."""


def read_module(text: str) -> Module:
    """Return the program that a text describes: ``compiled.as_text()`` of any version of JAX since 0.4.38.

    Nothing raises. ``unread`` has the lines that are not understood. An instruction whose attributes are not
    understood to the end is there, and among the instructions with the attributes before.
    """
    return _Reader().read(text)


class _End(NamedTuple):
    """What follows the operands of an instruction. Few of them differ, so each is read once."""

    attributes: Mapping[str, str]
    op_name: str | None
    frames: tuple[Frame, ...]
    column: int
    is_whole: bool


class _Reader:
    """State of reading a program line by line."""

    def __init__(self) -> None:
        self.tables = FrameTables()
        self.types: dict[str, Type | None] = {}
        self.ends: dict[str, _End] = {}
        self.metadata: dict[str, tuple[str | None, tuple[Frame, ...], int]] = {}
        self.unread: list[str] = []

    def read(self, text: str) -> Module:
        """Return the module."""
        header: Header | None = None
        section = entry = name = ""
        inside: dict[str, Instruction] | None = None
        computations: dict[str, Computation] = {}
        lines = [line.rstrip() for line in text.split("\n")]
        place = -1
        while (place := place + 1) < len(lines):
            line = lines[place]
            if inside is not None:
                if line.startswith("}") and _END.fullmatch(line):
                    computations[name] = computation_of(name, inside.values())
                    inside = None
                elif line:
                    place = self._add_lines(lines, place, inside)
            elif not line:
                section = ""
            elif line in SECTIONS:
                section = line
            elif section and self.tables.add(section, line):
                continue
            elif (opening := _COMPUTATION.fullmatch(line)) is not None:
                name, inside = opening[2], {}
                entry = name if opening[1] else entry
            elif header is None and (header := read_header(line)) is not None:
                last = place if header.is_understood else _last_line(lines, place)
                header = read_header("\n".join(lines[place : last + 1])) or header
                if header.is_understood:
                    place = last
                else:
                    self._give_up(line)
            else:
                self._give_up(line)
        if inside is not None:
            computations[name] = computation_of(name, inside.values())
        if header is None or not entry:
            self.unread.append(f"the text has no {'ENTRY' if header else 'HloModule'}")
        return Module(
            name=header.name if header else "",
            entry=entry,
            computations=computations,
            aliases=header.aliases if header else (),
            buffer_donors=header.buffer_donors if header else (),
            device_count=header.device_count if header else 1,
            unread=tuple(self.unread),
            stack=self.tables.stack,
        )

    def _give_up(self, line: str) -> None:
        """Keep a line as unread."""
        self.unread.append(clipped(line))

    def _add_lines(self, lines: Sequence[str], place: int, instructions: dict[str, Instruction]) -> int:
        """Add the instruction that starts at a place. Return the place of its last line."""
        line = lines[place]
        if not self._add(line, instructions):
            last = _last_line(lines, place) if _INSTRUCTION.match(line) else place
            if last > place and self._add("\n".join(lines[place : last + 1]), instructions):
                return last
            self._give_up(line)
        return place

    def _add(self, line: str, instructions: dict[str, Instruction]) -> bool:
        """Add the instruction of a line. Return whether all of the line was understood."""
        match = _INSTRUCTION.match(line)
        if match is None:
            return False
        root, name, type_text, opcode, inner, rest = match.groups()
        if type_text not in self.types:
            self.types[type_text] = read_type(type_text)
        type_ = self.types[type_text]
        if type_ is None:
            return False
        if inner is None:
            start = match.end()
            end = _closing(line, start)
            if end is None:
                return False
            inner, rest = line[start:end], line[end + 1 :]
        end_of_line = self.ends.get(rest)
        if end_of_line is None:
            end_of_line = self.ends[rest] = self._end(rest)
        has_literal = opcode in _LITERALS
        if opcode == "parameter" and not (inner.isdecimal() and len(inner) < 10):
            return False
        # By position: keywords take most of the time that it takes to make one.
        instructions[name] = Instruction(
            name,
            opcode,
            type_.shapes,
            type_.groups,
            () if has_literal else _operands(inner),
            end_of_line.attributes,
            end_of_line.op_name,
            end_of_line.frames,
            inner if has_literal else "",
            root is not None,
            end_of_line.column,
        )
        return end_of_line.is_whole

    def _end(self, text: str) -> _End:
        """Return the parts of the end of a line."""
        attributes, is_whole = read_attributes(text)
        metadata = attributes.pop("metadata", None)
        op_name, frames, column = self._origin(metadata) if metadata is not None else (None, (), 0)
        if "backend_config" in attributes and (trips := _TRIP_COUNT.search(attributes["backend_config"])):
            attributes["known_trip_count"] = trips[1]
        return _End(attributes, op_name, frames, column, is_whole)

    def _origin(self, metadata: str) -> tuple[str | None, tuple[Frame, ...], int]:
        """Return the name, the source lines and the first column in a metadata."""
        known = self.metadata.get(metadata)
        if known is None:
            fields = read_fields(metadata)
            known = fields.get("op_name"), frames_of(fields, self.tables), column_of(fields, self.tables)
            self.metadata[metadata] = known
        return known


def _last_line(lines: Sequence[str], first: int) -> int:
    """Return the last line of an instruction, or of the header: where its quotes and braces are closed.

    The first line if they stay open up to the next instruction, or up to the end of the computation.
    """
    depth, is_quoted = 0, False
    for place in range(first, len(lines)):
        if place > first and _ends_before(lines, place):
            break
        for mark in _PUNCTUATION.findall(lines[place]):
            if mark == '"':
                is_quoted = not is_quoted
            elif not is_quoted and len(mark) == 1:
                depth += 1 if mark in "({" else -1
        if not depth and not is_quoted:
            return place
    return first


def _ends_before(lines: Sequence[str], place: int) -> bool:
    """Return whether a line starts an instruction, or ends a computation: a blank line follows."""
    line = lines[place]
    is_last = place + 1 == len(lines) or not lines[place + 1]
    return _INSTRUCTION.match(line) is not None or (is_last and _END.fullmatch(line) is not None)


def _closing(line: str, start: int) -> int | None:
    """Return the place of the parenthesis that closes the one before ``start``; None if it stays open."""
    depth = 1
    for found in _PARENTHESIS.finditer(line, start):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.start()
    return None


def _operands(text: str) -> tuple[str, ...]:
    """Return the names of operands. JAX 0.4 prints their types, others the names alone."""
    if "%" in text:
        return tuple(_OPERAND.findall(text))
    return tuple(part.split()[-1] for part in text.split(",") if part.split())
