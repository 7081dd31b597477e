"""Source lines of JAX 0.8, where instructions number stack frames in another order than the program's table.

Shardy reads the program from MLIR again, and numbers the frames in the order of the operations. The table
is the one of before. Both have the same frames, fewer than the lowered program where constants are folded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from .frames import FrameTables
from .locations import Stack, operations

_TABLE = re.compile(r"^(FileNames|FunctionNames|FileLocations|StackFrames)\n((?:\d+ .*\n)*)", re.MULTILINE)
_STACK_FRAMES = re.compile(r"^StackFrames\n(?:\d+ .*\n)*", re.MULTILINE)
_OP = re.compile(r'op_name="([^"]*)" stack_frame_id=(\d{1,9})')


def renumbered(text: str, mlir: str) -> str:
    """Return the text of a program with a table of stack frames that has the numbers of its instructions.

    Without that table, if the numbers do not fit the lowered program: then no lines are known.

    Args:
        text: Text of the compiled program.
        mlir: Text of the lowered program, with locations; empty if it is not known.
    """
    table = _table(text)
    is_partitioned = "num_partitions=" in text.partition("\n")[0]
    if not table or not is_partitioned or (mlir and "sdy." not in mlir):
        return text
    locations = dict(table.values())
    names: dict[str, set[Stack]] = {}
    numbers: dict[Stack, int] = {}
    for name, stack in operations(mlir):
        names.setdefault(name, set()).add(stack)
        names.setdefault(_last(name), set()).add(stack)
        # Constants are folded before the numbers are given: their stacks are not in the table.
        for depth in range(1, len(stack) + 1 if stack in locations else 1):
            numbers.setdefault(stack[:depth], len(numbers) + 1)
    if locations.keys() != numbers.keys():
        return _STACK_FRAMES.sub("", text, count=1)
    used = set(_OP.findall(text))
    as_printed = {number: stack for number, (stack, _) in table.items()}
    as_in_mlir = {number: stack for stack, number in numbers.items()}
    if _contradict(used, as_in_mlir, names):
        # Operations that were folded or merged can change the order of the others.
        agrees = not _contradict(used, as_printed, names)
        return text if agrees else _STACK_FRAMES.sub("", text, count=1)
    rows = (
        f"{number} {{file_location_id={locations[stack]} parent_frame_id={numbers.get(stack[:-1], 0) + 1}}}\n"
        for stack, number in numbers.items()
    )
    section = "StackFrames\n" + "".join(rows)
    return _STACK_FRAMES.sub(lambda _: section, text, count=1)


def _contradict(
    used: Iterable[tuple[str, str]], stacks: Mapping[int, Stack], names: Mapping[str, set[Stack]]
) -> bool:
    """Return whether an instruction gets a stack that no operation of its name has."""
    known = ((names.get(name) or names.get(_last(name)), int(number)) for name, number in used)
    return any(found is not None and stacks.get(number) not in found for found, number in known)


def _last(name: str) -> str:
    """Return the operation in the name of an instruction, without the functions around it."""
    return name.rpartition("/")[2]


def _table(text: str) -> dict[int, tuple[Stack, int]]:
    """Return the stacks of a program's table by number, each with the number of its location."""
    tables = FrameTables()
    for section, rows in _TABLE.findall(text):
        for row in rows.splitlines():
            tables.add(section, row)
    found: dict[int, tuple[Stack, int]] = {}
    for number, row in sorted(tables.rows["StackFrames"].items()):
        place = row.get("file_location_id", 0)
        fields = tables.rows["FileLocations"].get(place, {})
        frame = (
            tables.names["FileNames"].get(fields.get("file_name_id", 0), ""),
            fields.get("line", 0),
            fields.get("column", 0),
            tables.names["FunctionNames"].get(fields.get("function_name_id", 0), ""),
        )
        # Parents come first, and their number is printed plus one.
        callers = found.get(row.get("parent_frame_id", 0) - 1, ((), 0))[0]
        found[number] = ((*callers, frame), place)
    return found
