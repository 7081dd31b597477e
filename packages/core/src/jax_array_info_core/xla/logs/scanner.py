"""One pass over a log of any length: lines that may be failures, and the progress and gaps of each rank."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from .lines import RANK, TRACEBACK, RecordReader, text_start, time_place
from .progress import Progress, Shape, counters_in, may_be_end, progress_in

_ZEROS = bytes.maketrans(b"0123456789", b"0" * 10)
_TRACEBACK = TRACEBACK.encode()
_MOST_SHAPES = 20_000
_MANY_KEPT, _MOST_KEPT = 2000, 8000
"""Candidates that are kept, up to which many of a rank are alike, and after which all others are alike."""
_ALIKE, _FEW_ALIKE = 50, 3
"""Candidates of a rank with the same words that are kept: the first and the last ones."""
_ROOM = 1 << 25
"""Characters around candidates that are kept."""
_LONGEST, _LONGEST_TRACEBACK = 2000, 20_000
"""Characters of a line that are read, and of JSON with a traceback."""
_BEFORE, _AFTER = 60, 24
_MOST_RANKS = 20_000
_MOST_SOURCES, _MOST_WARNINGS = 200, 5
"""Lines of XLA's source whose warnings are counted, and warnings of each that are kept."""
_SOURCE = re.compile(rb"([\w.-]+\.cc:0+)\] ?$")
"""Line of XLA's source, at the end of the header of its message."""
_BLANKS = b"\n" * 65
_BLANK = re.compile(_BLANKS + b"+")
_LONGEST_RECORD, _TAIL = 1 << 21, 1 << 20
"""Characters of an endless line that are kept: from the first word of a reader on, and at the end."""
_Key = tuple[tuple[int, ...], str | None]
"""Words and rank of alike candidates."""


class Candidate(NamedTuple):
    """A line that may be a failure."""

    number: int
    """Its number, from 1."""
    rank: str | None
    """Rank that wrote it."""
    line: bytes
    """The line."""
    before: tuple[bytes, ...]
    """Lines before it, of all ranks."""
    after: tuple[bytes, ...]
    """Lines after it, of all ranks."""
    is_open: bool = False
    """Whether the log ends in the traceback that the line begins."""


class Warned:
    """Warnings of one line of XLA's source."""

    __slots__ = ("count", "lines", "number")

    def __init__(self, number: int) -> None:
        self.count = 0
        """Number of them."""
        self.lines: list[bytes] = []
        """The first ones."""
        self.number = number
        """Number of the first line."""


class Scanner:
    """Reads a log piece by piece, in bounded memory and time linear in its length.

    Args:
        words: Words of the lines that may be failures.
        readers: What reads records of several lines.
    """

    def __init__(self, words: Sequence[bytes], readers: Sequence[RecordReader] = ()) -> None:
        self._readers = readers
        self._starts = [word for reader in readers for word in reader.words]
        self._words_of = [frozenset(map(self._starts.index, reader.words)) for reader in readers]
        self._words = [word.translate(_ZEROS) for word in (*self._starts, *words)]
        self._counted = frozenset(range(len(self._starts)))
        self._long: dict[int, bytes] = {}
        """Whole long lines, by their numbers."""
        self.line_count = 0
        """Number of lines so far."""
        self.dropped_count = 0
        """Number of candidates that were not kept."""
        self.ranks: dict[str | None, Progress] = {}
        """Progress by rank."""
        self._shapes: dict[bytes, Shape] = {}
        self._kept: dict[_Key, tuple[list[Candidate], deque[Candidate]]] = {}
        """The first and the last ones of alike candidates."""
        self._kept_count = 0
        self._room = _ROOM
        self.tail = b""
        """The last line with text."""
        self._failed = 0
        """Number of the last line that may be a failure."""
        self._inside: dict[str | None, Candidate | None] = {}
        """Beginnings of the tracebacks that ranks are in; None in the message after one."""
        self._sources: dict[bytes, slice] = {}
        """Where shapes of warnings have the line of XLA's source."""
        self.warnings: dict[tuple[bytes, bytes], Warned] = {}
        """What each line of XLA's source warned of, by the line and the rank in the prefix."""
        self._unfinished = b""
        self._lines: list[bytes] = []
        """Lines that have been read, or wait for those after them."""
        self._place = 0
        """Number of them that have been read."""

    def feed(self, data: bytes) -> None:
        """Read the next piece."""
        head, line_break, tail = data.rpartition(b"\n")
        if not line_break:
            self._unfinished = self._shortened(self._unfinished + tail)
            return
        head, self._unfinished = self._unfinished + head, tail
        start = 0
        for blank in _BLANK.finditer(head) if _BLANKS in head else ():  # to look is much faster than to match
            # No record goes on after many blank lines.
            self._take(head[start : blank.start()].split(b"\n"))
            self._read(len(self._lines))
            count = blank.end() - blank.start() - 1
            for reader in self._readers:
                if reader.open:
                    reader.read([b""] * count, (), self.line_count + 1)
            self.line_count += count
            start = blank.end()
        self._take(head[start:].split(b"\n"))

    def end(self) -> list[Candidate]:
        """Return the candidates, in the order of the log."""
        if self._unfinished:
            self._take([self._unfinished])
            self._unfinished = b""
        self._read(len(self._lines))
        kept = [candidate for first, last in self._kept.values() for candidate in (*first, *last)]
        return sorted((*kept, *filter(None, self._inside.values())), key=lambda candidate: candidate.number)

    def _shortened(self, line: bytes) -> bytes:
        """Return what is kept of an unfinished line: of an endless one, what may be read and its end."""
        if len(line) <= 2 * (_LONGEST_RECORD + _TAIL):
            return line
        start = min((line.index(word) for word in self._starts if word in line), default=0)
        end = start + _LONGEST_RECORD
        return line[: min(start, _LONGEST)] + line[start:end] + line[max(end, len(line) - _TAIL) :]

    def _take(self, lines: list[bytes]) -> None:
        if len(max(lines, key=len)) > _LONGEST:
            first = self.line_count + 1 + len(self._lines) - self._place
            self._long |= {number: line for number, line in enumerate(lines, first) if len(line) > _LONGEST}
            lines = [line if len(line) <= _LONGEST else _cut(line) for line in lines]
        self._lines += lines
        self._read(len(self._lines) - _AFTER)

    def _read(self, end: int) -> None:
        """Read the lines up to one; the last ones are kept for those that follow."""
        if end <= self._place:
            return
        lines = self._lines[self._place : end]
        shapes = b"\n".join(lines).translate(_ZEROS).split(b"\n")
        known = self._look_at(lines, shapes)
        kinds = {shape: known[shape] for shape in set(shapes)}
        self._read_records(lines, shapes, kinds)
        if self._sources.keys() & kinds:
            self._count_warnings(lines, shapes, kinds)
        has_tracebacks = self._inside or any(facts.is_traceback for facts in kinds.values())
        without_facts = (_INDENTED,) if has_tracebacks else (_INDENTED, _PLAIN)
        boring = {shape for shape, facts in kinds.items() if facts in without_facts}
        places: Sequence[int] = [place for place, shape in enumerate(shapes) if shape not in boring]
        if not has_tracebacks and not any(facts.rank or facts.words for facts in kinds.values()):
            plain = [(kinds[shapes[place]], place) for place in places]
            self._progress_of(None).see_many(plain, lines, self.line_count + 1, self._failed)
            places = ()
        hits: dict[_Key, list[tuple[int, str | None]]] = {}
        for place in places:
            line, facts, number = lines[place], known[shapes[place]], self.line_count + 1 + place
            rank = None if facts.rank is None else line[slice(*facts.rank)].decode().lstrip("0") or "0"
            state = self.ranks.get(rank) or self._progress_of(rank)
            if facts.rank is not None:
                state.line_count += 1
                state.tail = line
            # The source in a traceback, or a further line of the message, names no step.
            is_source = facts.is_indented and rank in self._inside
            if facts.time >= 0 or ((facts.is_progress or facts.is_done) and not is_source):
                state.see(facts, line, number, self._failed)
            is_end = False
            if facts.is_traceback:
                self._inside[rank] = Candidate(number, rank, line, (), (), is_open=True)
            elif not facts.is_indented and rank in self._inside:
                is_end = self._inside.pop(rank) is not None
                if is_end:
                    self._inside[rank] = None
            if facts.words or is_end:
                self._failed = number
                hits.setdefault((facts.words[:3], rank), []).append((place, rank))
        others: dict[_Key, list[tuple[int, str | None]]] = {}
        for key, alike in hits.items():
            if self._kept_count < _MOST_KEPT:
                self._keep(key, alike)
            else:  # the last ones are kept: the end of the log is among them
                others.setdefault((tuple(self._counted.intersection(key[0])), None), []).extend(alike)
        for key, alike in others.items():
            self._keep(key, sorted(alike))
        self.tail = next((line for line in reversed(lines) if line.strip()), self.tail)
        self.line_count += len(lines)
        kept = max(0, end - _BEFORE)
        del self._lines[:kept]
        self._place = end - kept

    def _read_records(
        self, lines: Sequence[bytes], shapes: Sequence[bytes], kinds: Mapping[bytes, Shape]
    ) -> None:
        """Give lines to the readers: those with their words, long ones, and those after them."""
        first = self.line_count + 1
        long = {number: self._long.pop(number) for number in [*self._long] if number < first + len(lines)}
        if long:
            lines = [long.get(number, line) for number, line in enumerate(lines, first)]
        for reader, words in zip(self._readers, self._words_of, strict=True):
            starts = {shape for shape, facts in kinds.items() if not words.isdisjoint(facts.words)}
            places = [place for place, shape in enumerate(shapes) if shape in starts] if starts else []
            if long:
                places = sorted({*places, *(number - first for number in long)})
            reader.read(lines, places, first)

    def _count_warnings(
        self, lines: Sequence[bytes], shapes: Sequence[bytes], kinds: Mapping[bytes, Shape]
    ) -> None:
        """Count the warnings of each line of XLA's source; the first ones that differ are kept."""
        for number, (line, shape) in enumerate(zip(lines, shapes, strict=True), self.line_count + 1):
            if source := self._sources.get(shape):
                place = kinds[shape].rank
                key = line[source], line[slice(*place)] if place else b""
                if key in self.warnings or len(self.warnings) < _MOST_SOURCES:
                    warned = self.warnings.setdefault(key, Warned(number))
                    warned.count += 1
                    if len(warned.lines) < _MOST_WARNINGS:
                        warned.lines.append(line)

    def _progress_of(self, rank: str | None) -> Progress:
        """Return the progress of a rank; one that is not kept if there are too many ranks."""
        if len(self.ranks) >= _MOST_RANKS:
            return self.ranks.get(rank, Progress())
        return self.ranks.setdefault(rank, Progress())

    def _keep(self, key: _Key, alike: Sequence[tuple[int, str | None]]) -> None:
        """Keep the first and the last ones of alike candidates, given as place and rank."""
        first, last = self._kept.setdefault(key, ([], deque()))
        count = len(first) + len(last)
        most = _FEW_ALIKE if _MANY_KEPT <= self._kept_count < _MOST_KEPT else _ALIKE
        starts = max(0, most - len(first))
        first += [self._with_context(*hit) for hit in alike[:starts]]
        last.extend(self._with_context(*hit) for hit in alike[starts:][-most:])
        while len(last) > most:
            last.popleft()
        more = len(first) + len(last) - count
        self._kept_count += more
        if self._counted.isdisjoint(key[0]):
            self.dropped_count += len(alike) - more

    def _with_context(self, place: int, rank: str | None) -> Candidate:
        """Return a candidate with the lines around it."""
        number = self.line_count + 1 + place
        place += self._place
        before, after = (_BEFORE, _AFTER) if self._room > 0 else (1, 2)
        candidate = Candidate(
            number,
            rank,
            self._lines[place],
            tuple(self._lines[max(0, place - before) : place]),
            tuple(self._lines[place + 1 : place + 1 + after]),
        )
        self._room -= sum(map(len, candidate.before)) + sum(map(len, candidate.after))
        return candidate

    def _look_at(self, lines: Sequence[bytes], shapes: Sequence[bytes]) -> dict[bytes, Shape]:
        """Return the facts of shapes."""
        if len(self._shapes) > _MOST_SHAPES:
            self._shapes.clear()
            self._sources.clear()
        unknown = set(shapes) - self._shapes.keys()
        if not unknown:
            return self._shapes
        new = {shape: line for shape, line in zip(shapes, lines, strict=True) if shape in unknown}
        words = self._words_in(list(new))
        for shape, line in new.items():
            self._shapes[shape] = _shape(line, shape, tuple(words.get(shape, ())))
            if b".cc:0" in shape and self._counted.isdisjoint(self._shapes[shape].words):
                start, level, _ = text_start(shape.decode("latin-1"))
                if level == "W" and (source := _SOURCE.search(shape, 0, start)):
                    self._sources[shape] = slice(*source.span(1))
        return self._shapes

    def _words_in(self, shapes: Sequence[bytes]) -> dict[bytes, list[int]]:
        """Return the words in shapes. To search for a word in all shapes at once is much faster."""
        words: dict[bytes, list[int]] = {}
        text = b"\n".join(shapes)
        for index, word in enumerate(self._words):
            start = text.find(word)
            while start >= 0:
                first = text.rfind(b"\n", 0, start) + 1
                last = text.find(b"\n", start)
                last = len(text) if last < 0 else last
                words.setdefault(text[first:last], []).append(index)
                start = text.find(word, last)
        return words


_PLAIN = Shape(None, -1, False, (), (), False, False, False)
"""Lines that say nothing, except that a traceback ended."""
_INDENTED = _PLAIN._replace(is_indented=True)
"""Lines that say nothing at all."""


def _shape(line: bytes, shape: bytes, words: tuple[int, ...]) -> Shape:
    """Return the facts of a shape, from one of its lines."""
    text = shape.decode("latin-1")
    rank = RANK.match(text)
    progress = progress_in(text)
    start = text_start(text)[0]
    is_whole = _has_traceback(shape)
    return Shape(
        rank=next(rank.span(name) for name, digits in rank.groupdict().items() if digits) if rank else None,
        time=time_place(text),
        is_progress=progress is not None,
        counters=counters_in(text) if progress else (),
        words=words or (-1,) * is_whole,
        is_traceback=_TRACEBACK in shape and not is_whole,
        is_indented=not text[start:].strip() or text[start : start + 1] in " \t",
        is_done=may_be_end(text),
    )


def _cut(line: bytes) -> bytes:
    """Return what is read of a long line: of what a progress bar shows last, the beginning and the end."""
    if _has_traceback(line):
        return line[:_LONGEST_TRACEBACK]
    last = line.rstrip().rpartition(b"\r")[2]
    last = last or line
    return last if len(last) <= _LONGEST else last[:_LONGEST] + b" ... " + last[-_LONGEST:]


def _has_traceback(line: bytes) -> bool:
    """Return whether a line of JSON has a whole traceback in it."""
    return line.startswith(b"{") and _TRACEBACK in line


def context_of(candidate: Candidate, *, is_after: bool, most: int) -> Iterator[bytes]:
    """Yield the lines before or after a candidate that its rank wrote, nearest first."""
    lines = candidate.after if is_after else reversed(candidate.before)
    by_rank = (line for line in lines if candidate.rank is None or _rank_of(line) in (None, candidate.rank))
    return islice(by_rank, most)


def _rank_of(line: bytes) -> str | None:
    """Return the rank in the prefix of a line; None without one."""
    prefix = RANK.match(line[:200].decode("latin-1"))
    return next(filter(None, prefix.groups())).lstrip("0") or "0" if prefix else None
