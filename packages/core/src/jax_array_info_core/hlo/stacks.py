"""Stack frames of the instructions of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .locations import Stack, operations

# JAX keeps ten frames of each operation, unless it is asked for more.
_DEEPEST = 100


class Frame(NamedTuple):
    """A line of source code in the program's tables."""

    file: str
    line: int
    function: str
    """Qualified name; empty where only the file and the line are known."""


class StackFrames:
    """The stack frames of a program by number. That of a frame's caller is less."""

    def __init__(self, index: Any) -> None:
        """Read the tables when they are asked for.

        Args:
            index: A ``StackFrameIndexProto``. Its numbers are from 1.
        """
        self._index = index
        self._frames: Mapping[int, tuple[int, int]] | None = None
        self._known: dict[int, tuple[Frame, ...]] = {0: ()}

    @property
    def frames(self) -> Mapping[int, tuple[int, int]]:
        """Location and caller of each frame by number, 0 for none."""
        if self._frames is None:
            rows = enumerate(self._index.stack_frames, 1)
            self._frames = {number: (row.file_location_id, row.parent_frame_id) for number, row in rows}
        return self._frames

    def of(self, number: int) -> tuple[Frame, ...]:
        """Return a frame and its callers, innermost first; empty for an unknown number."""
        if number not in self._known:
            self._known[number] = tuple(
                Frame(file, line, function) for file, line, _, function in self._walk(number)
            )
        return self._known[number]

    def column(self, number: int) -> int:
        """Return the column at which a frame begins, from 0; 0 also if it is unknown."""
        place, _ = self.frames.get(number, (0, 0))
        locations = self._index.file_locations
        return int(locations[place - 1].column) if 0 < place <= len(locations) else 0

    def _walk(self, number: int) -> Stack:
        """Return the file, line, column and function of a frame and of its callers, up to a missing one."""
        found: list[tuple[str, int, int, str]] = []
        while (frame := self.frames.get(number)) is not None and len(found) < _DEEPEST:
            place, number = frame
            if 0 < place <= len(self._index.file_locations):
                location = self._index.file_locations[place - 1]
                file = _named(self._index.file_names, location.file_name_id)
                function = _named(self._index.function_names, location.function_name_id)
                if file:
                    found.append((file, location.line, location.column, function))
        return tuple(found)

    def renumber(self, mlir: str, used: Iterable[tuple[str, int]]) -> None:
        """Give the frames the numbers that instructions have; forget them if these do not fit the table.

        In a partitioned program of JAX 0.8, instructions have numbers in the order of the lowered program,
        and the table has another order.

        Args:
            mlir: Text of the lowered program, with locations; empty if it is not known.
            used: Name and number of each instruction.
        """
        if not self.frames or (mlir and "sdy." not in mlir):
            return
        as_printed = {number: self._walk(number)[::-1] for number in self.frames}
        places = {stack: self.frames[number][0] for number, stack in as_printed.items()}
        names: dict[str, set[Stack]] = {}
        numbers: dict[Stack, int] = {}
        for name, stack in operations(mlir):
            names.setdefault(name, set()).add(stack)
            names.setdefault(_last(name), set()).add(stack)
            # Constants are folded before the numbers are given: their stacks are not in the table.
            for depth in range(1, len(stack) + 1 if stack in places else 1):
                numbers.setdefault(stack[:depth], len(numbers) + 1)
        used = set(used)
        if places.keys() != numbers.keys():
            self._frames = {}
        elif _contradict(used, {number: stack for stack, number in numbers.items()}, names):
            # Operations that were folded or merged can change the order of the others.
            if _contradict(used, as_printed, names):
                self._frames = {}
        else:
            self._frames = {
                number: (places[stack], numbers.get(stack[:-1], 0)) for stack, number in numbers.items()
            }


def _named(names: Any, number: int) -> str:
    return str(names[number - 1]) if 0 < number <= len(names) else ""


def _contradict(
    used: Iterable[tuple[str, int]], stacks: Mapping[int, Stack], names: Mapping[str, set[Stack]]
) -> bool:
    """Return whether an instruction gets a stack that no operation of its name has."""
    known = ((names.get(name) or names.get(_last(name)), number) for name, number in used)
    return any(found is not None and stacks.get(number) not in found for found, number in known)


def _last(name: str) -> str:
    """Return the operation in the name of an instruction, without the functions around it."""
    return name.rpartition("/")[2]
