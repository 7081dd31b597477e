"""Events of a log: the kind that explains each candidate, its numbers, and whether the run survived it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from ...arrays.origins.origins import UserLines
from ...base.quantities import LARGEST, grouped
from ...base.text import printable
from ...facts.reports.logs import LogCategory, LogEvent, LogRole
from ...programs.log_kinds.job_kinds import JOB_KINDS
from ...programs.log_kinds.kinds import Kind, compiled, words_of
from ...programs.log_kinds.memory_kinds import MEMORY_KINDS, memory_numbers, memory_words
from ...programs.log_kinds.program_kinds import PROGRAM_KINDS
from ...programs.log_kinds.verdict_kinds import VERDICT_KINDS, verdict_words
from ...xla.hlo.oom_logs import Refusal, nbytes_of
from ...xla.logs.lines import LEVELS, TRACEBACK, Line, read_line, seconds_at, time_place
from ...xla.logs.progress import Progress, is_progress
from ...xla.logs.scanner import Candidate, context_of

KINDS: tuple[Kind, ...] = (*VERDICT_KINDS, *PROGRAM_KINDS[:3], *MEMORY_KINDS, *PROGRAM_KINDS[3:], *JOB_KINDS)
"""All kinds, in the order in which a line is compared with them: storage errors have the words of memory."""
VERDICT: Final = VERDICT_KINDS[0].name
"""Name of the kind of lines that say how a process ended."""
NOT_INTERPRETED: Final = "not interpreted"
"""Name of the kind of fatal lines that no other kind explains."""
LATE = "never reached the barrier"
"""Reason to name a rank: the others waited for it."""
FIRST_AT_SHUTDOWN = "first at the Shutdown barrier"
"""Reason to name a rank: the others went on while it ended."""

_STATUSES = (
    *("RESOURCE_EXHAUSTED", "INTERNAL", "DEADLINE_EXCEEDED", "ABORTED", "UNAVAILABLE", "FAILED_PRECONDITION"),
    *("DATA_LOSS", "INVALID_ARGUMENT", "UNKNOWN", "UNIMPLEMENTED", "CANCELLED"),
)
_ENDINGS = ("Error", "Exception", "Exhausted", "Interrupt", "Exit", "Timeout", "Iteration")
"""Endings of the names of exceptions."""
_ENDS_OF_OTHERS = re.compile(r"(?:\w+\.)*(?:KeyboardInterrupt|BrokenPipeError|Connection\w+Error|EOFError)\b")
"""Exceptions that may be those of a process whose peer or terminal is gone."""
_TRAINING = "StopTraining"
_STATUS = rf"(?:{'|'.join(_STATUSES)}): ?(?=\S|$)"
_SOFT = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,9}"
    rf"(?:[A-Z]\w{{0,60}}(?:{'|'.join(_ENDINGS)})|{_TRAINING}|Exception)(?:: |:?$)|{_STATUS}"
)
"""Beginning of an exception or of a status."""
_SOFT_INSIDE = re.compile(rf"[A-Z]\w{{0,60}}(?:Error|Exception): |\b{_STATUS}")
_CRASHES = (
    "Fatal Python error: ",
    r"\*\*\* SIG[A-Z]+ ",
    r"\*\*\* Check failure ",
    "terminate called",
    "Check failed: ",
)
_JOB_ENDS = (
    *("oom_kill", "OOMKilled", "NCCL WARN", "NVRM: ", "CANCELLED AT"),
    r"[Ee]xit(?:ed with)?(?: exit)? ?[Cc]ode(?!\W{0,4}0(?!\d))",
)
_SIGNALS = (
    *("Killed", "Aborted", "Segmentation fault", "Bus error", "Terminated", "Illegal instruction"),
    *("Floating point exception", "Trace/breakpoint trap"),
)
_HARD = re.compile(
    rf"{'|'.join(_CRASHES)}|.{{0,200}}(?:{'|'.join(_JOB_ENDS)})|(?:srun|slurmstepd): error: "
    r"|jai-cli run: |\w{2,9}run noticed "
    r"|(?:.{0,100}: line \d{1,9}: +\d{1,9} )?"
    rf"(?:{'|'.join(_SIGNALS)})(?: +\(core dumped\))?(?: {{4,}}|$)"
)
_OTHERS = (*_ENDINGS, _TRAINING, *map("{}:".format, _STATUSES), *_CRASHES, *_JOB_ENDS, *_SIGNALS, "error: ")
HANDLED: Final = "During handling of the above exception"
LINKS = (HANDLED, "the direct cause of the following exception")
"""Words of the lines between two exceptions of a chain."""
WORDS = (*LEVELS, *words_of((*_OTHERS, *LINKS, *(wording for kind in KINDS for wording in kind.wordings))))
"""Words: each line that may be an event has at least one."""
_FRAME = re.compile(r'\s*File "([^"\n]{1,500})", line (\d{1,9})(?:, in ([^\n]{1,200}))?')
_TASKS = re.compile(r"(?:/job:\w{1,40}/replica:\d{1,9}/task:)?(\d{1,9})\s*$")
_HEARTBEAT = re.compile(r"[Tt]ask (?:/job:\w{1,40}/replica:\d{1,9}/task:)?(\d{1,9}) heartbeat timeout")
_THREAD = re.compile(r"Exception in thread ([^\n]{1,80}):$")
_BARRIER = re.compile(r"Id: (\S{1,200}?)\. ")
_ONE_ARRIVED = re.compile(r"tasks that reached the barrier: 1/")
_FIRST_TASK = re.compile(r"first task at the barrier: (?:/job:\w{1,40}/replica:\d{1,9}/task:)?(\d{1,9})")
_CATEGORIES: dict[LogRole, LogCategory] = {
    "root": "fatal error",
    "consequence": "consequence",
    "warning": "log warning",
    "stall": "stall",
}
_LEAST, _LONG, LONGEST = 30, 120, 400
"""Least characters of a first sentence, most of a text that keeps the others, and most of any text."""
_MOST_OF_RECORD = 8000
"""Characters of a line and those after it in which words are looked for."""
_WARNED = re.compile(r"\S{1,300}:\d{1,7}: \w{0,60}Warning: ")
"""Beginning of a warning of Python, which ends with a line of its source."""
_TOLD = (
    r"msg|message|log|text\w*|errors?|err|reason|exception|status|state|cause|details?|std(?:err|out)|output"
)
_NAME = rf"(?!(?i:{_TOLD})\b)[\w.-]{{1,60}}"
_QUOTED = r"""(?:"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+')"""
_INSIDE = rf"""{{0,99}}+(?:{_QUOTED}[^]}}"']{{0,99}}+){{1,99}}+"""
_VALUE = rf"""(?:{_QUOTED}|\[[^]"']{_INSIDE}\]|\{{[^}}"']{_INSIDE}\}})"""
_CONFIGURED = re.compile(
    rf"""(?<![\w.-])(?:--{_NAME}=(?:{_VALUE}|\S+)|{_NAME}=(?:{_VALUE}|[A-Z]\S*)"""
    rf"""|(?P<quote>["']){_NAME}(?P=quote): ?{_VALUE})"""
)
"""A name with its value in a configuration, but not with the text of a message."""
_NEAR = 4
_SIGTERM = "termination signal"
_UNKNOWN = "No kind of failure explains this line: read it, and those before it."
_NEXT_FAILURE = re.compile(r"RESOURCE_EXHAUSTED|ran out of memory trying|cuMemAllocAsync failed")
"""Beginning of a failure whose numbers are not those of the one before it."""
NO_EVENT = re.compile(
    r"is unstuck waiting|live arrays at |is not a failure|Unable to register cu\w{2,9} factory"
    r"|computation placer already registered|^Exception ignored in|^\w*Error: [\d.e+-]{1,20}$"
)
"""Lines that are no failure: of tools, of the start of a GPU, of the end of Python, and names of metrics."""


class Found(NamedTuple):
    """A candidate that a kind explains."""

    event: LogEvent
    """The event."""
    kind: Kind | None
    """Its kind; None if it was not interpreted."""
    named: tuple[tuple[str, str], ...]
    """Ranks that it names as the cause, each with the reason."""
    survived: bool
    """Whether it is an error after which its rank made progress."""
    is_weak: bool
    """Whether it is the root only if there is no other."""
    seconds: int | None
    """Time of the line; None if it has none."""
    record: str = ""
    """The line with those that belong to it."""
    link: str = ""
    """Words between the exception before it in a chain and it; empty without one."""
    refusal: Refusal | None = None
    """What the line and those after it say about memory, with their table."""
    is_hard: bool = False
    """Whether no process survives it."""
    is_ending: bool = False
    """Whether it may be what ended a process, if no progress follows."""
    previous: str = ""
    """Text of the line before it that its rank wrote."""

    @property
    def is_of_all(self) -> bool:
        """Whether it tells nothing of the rank that wrote it."""
        return self.kind is not None and self.kind.is_of_all

    @property
    def is_exception(self) -> bool:
        """Whether it is an exception that ended a traceback, or has the name of one."""
        return bool(self.event.place) or re.match(r"[\w.]*(?:Error|Exception)\b", self.event.text) is not None


class OneRank(NamedTuple):
    """What the log of one rank has."""

    rank: str | None
    """The rank; None for a log without ranks."""
    found: Sequence[Found]
    """Its events, in their order."""
    progress: Progress
    """Its progress."""
    start: int = 0
    """Line at which the last attempt begins."""
    attempt: int = 1
    """Number of the last attempt; 0 for a rank without a log, which only a launcher names."""
    earlier: Sequence[Found] = ()
    """What ended the attempt before it."""


class _Reading(NamedTuple):
    """What the lines of a candidate are about."""

    line: Line
    record: str
    """Its text, with the lines that continue it."""

    kind: Kind | None
    match: re.Match[str] | None
    """Where the record has the words of its kind."""

    starts: bool
    """Whether its line is the first of a failure, or the end of a traceback."""

    is_hard: bool
    """Whether a process does not go on after it."""


def _reading(candidate: Candidate) -> _Reading | None:
    """Return what the lines of a candidate are about; None if about no event."""
    line = read_line(candidate.line)
    if NO_EVENT.search(line.text) or _is_source(candidate, line.text):
        return None
    record = "\n".join(part.text for part in (line, *takewhile(_continues, _after(candidate))))
    record = record[:_MOST_OF_RECORD]
    if not record.strip():  # a log that ends after a prefix
        record = candidate.line.decode("utf-8", "replace").strip()
    said = _CONFIGURED.sub(lambda value: "\N{MIDDLE DOT}" * len(value[0]), record)
    line = line._replace(text=said.partition("\n")[0])
    kind, match = kind_of(said)
    starts = _SOFT.match(line.text) is not None or _ends_traceback(candidate, line)
    is_hard = line.level == "F"
    if kind is None or match is None:
        is_hard = is_hard or candidate.is_open or _HARD.match(line.text) is not None
        is_source = line.text[:1].isspace() or line.text.startswith(("Traceback (most", "During handling"))
        is_said = starts or (line.level == "E" and not is_source)
        if not is_hard and (line.level in ("I", "W") or not is_said):
            return None
    elif kind.is_hard and match.start() <= len(line.text):
        is_hard = True
    elif not (starts or line.level or _is_stated(line.text, match, kind)):
        return None
    return _Reading(line, record, kind, match, starts, is_hard)


def found_in(candidate: Candidate, progress: Progress, rank: str | None, lines: UserLines) -> Found | None:
    """Return the event of a candidate; None if it is about nothing.

    Args:
        candidate: The line, with those around it.
        progress: Progress of its rank.
        rank: Its rank.
        lines: The search for the user's line.
    """
    reading = _reading(candidate)
    if reading is None:
        return None
    line, record, kind, match, starts, is_hard = reading
    role: LogRole = "root" if kind is None else kind.role
    numbers: dict[str, int | str] = {}
    if kind is not None and match is not None:
        numbers = _numbers(kind, match, _text_of(candidate, line) if kind.details else record)
    thread = _thread_of(candidate) if kind is None or starts else ""
    survived = candidate.number < (progress.done if is_hard or thread else max(progress.risen, progress.done))
    is_quiet = line.level in ("I", "W") and not is_hard and role != "stall"
    # A program may go on after an allocator's warning, and logs what it tries again.
    if is_quiet and role == "root" and ("rounded_nbytes" not in numbers or candidate.number < progress.last):
        return None
    is_saved = kind is not None and kind.name == _SIGTERM and progress.saved > candidate.number
    is_ending = role != "warning" and not (is_quiet or is_saved)
    event = LogEvent(
        kind=NOT_INTERPRETED if kind is None else kind.name,
        role=role,
        category=NOT_INTERPRETED if kind is None else kind.category or _CATEGORIES[role],
        text=printable(
            _in_thread(_sentence(record, match if role == "consequence" and line.level else None), thread)
        ),
        line=candidate.number,
        rank=rank,
        ranks=() if rank is None else (rank,),
        is_fatal=is_ending and not survived,
        place="" if kind is not None and kind.is_of_all else _place(candidate, lines),
        numbers=numbers,
        words="" if kind is None else str(numbers.pop("said", "")) or kind_words(kind, numbers),
        cause="" if kind is None else kind.cause,
        remedy=_UNKNOWN if kind is None else kind.remedy,
    )
    return Found(
        event,
        kind,
        named=tuple(_named(kind, record)),
        survived=is_saved
        or (survived and role in ("root", "consequence") and (is_hard or line.level not in ("I", "W"))),
        is_weak=bool(kind.is_weak if kind else _ENDS_OF_OTHERS.match(line.text)),
        seconds=seconds_of(candidate),
        record=record,
        is_hard=is_hard,
        is_ending=is_ending and role != "stall",
        previous=_text_before(candidate),
    )


def kind_words(kind: Kind, numbers: Mapping[str, int | str]) -> str:
    """Return what the numbers of a line say."""
    if kind.name == VERDICT:
        return verdict_words(numbers)
    if kind.name == "collective mismatch":
        sizes = " against ".join(grouped(int(numbers[name])) for name in ("sent", "expected"))
        return f"ranks ran other collectives, of {sizes} bytes"
    return memory_words(kind, numbers)


def _thread_of(candidate: Candidate) -> str:
    """Return the thread that an exception ended, from the line before its traceback; empty without one."""
    for raw in context_of(candidate, is_after=False, most=60):
        text = read_line(raw).text
        if match := _THREAD.match(text):
            return match[1]
        if not text.startswith((" ", TRACEBACK)):
            break
    return ""


def _text_before(candidate: Candidate) -> str:
    """Return the text of the line before a candidate that its rank wrote; empty for one of progress."""
    texts = (read_line(raw[:LONGEST]).text for raw in context_of(candidate, is_after=False, most=_NEAR))
    text = next((text for text in texts if text.strip()), "")
    return "" if is_progress(text) else text


def _in_thread(text: str, thread: str) -> str:
    """Return an exception with the thread that it ended."""
    name, colon, message = text.partition(": ")
    return f"{name} in thread {thread}{colon}{message}" if thread else text


def seconds_of(candidate: Candidate) -> int | None:
    """Return the time of a line; None if it has none."""
    place = time_place(candidate.line.decode("latin-1"))
    return seconds_at(candidate.line, place) if place >= 0 else None


def _text_of(candidate: Candidate, line: Line) -> str:
    """Return a line and those after it, also of other records: an allocator writes its statistics there."""
    texts = (line.text for line in _after(candidate))
    return "\n".join((line.text, *takewhile(lambda text: not _NEXT_FAILURE.search(text), texts)))


def _after(candidate: Candidate) -> Iterator[Line]:
    """Yield the lines after one, as far as they are read."""
    return (read_line(line) for line in context_of(candidate, is_after=True, most=24))


def _continues(line: Line) -> bool:
    """Return whether a line belongs to the record of the line before it."""
    is_new = line.level or _SOFT.match(line.text) or _HARD.match(line.text) or is_progress(line.text)
    return not is_new and not line.text.startswith("Traceback (most") and "Warning: " not in line.text


@functools.lru_cache(maxsize=256)
def kind_of(record: str) -> tuple[Kind | None, re.Match[str] | None]:
    """Return the kind of a record, and the match of its wording."""
    for kind in KINDS:
        for wording in kind.wordings:
            if match := compiled(wording).search(record):
                return kind, match
    return None, None


def _is_stated(text: str, match: re.Match[str], kind: Kind) -> bool:
    """Return whether a line without a level states an error of a kind.

    It begins with its words, has a whole phrase of it, or names an exception or a status before the words: a
    program may print a word or two.
    """
    if kind.role in ("warning", "stall") or kind.is_weak:
        return match.start() <= len(text)
    is_phrase = len(match[0].split()) > 2 and match.start() <= len(text)  # no healthy run prints it
    is_error = is_phrase or match.start() == 0 or _SOFT_INSIDE.search(text[: match.end()]) is not None
    return is_error and not is_progress(text)


def _is_source(candidate: Candidate, text: str) -> bool:
    """Return whether a line is source that a traceback or a warning shows below its place."""
    if not text.startswith("  "):
        return False
    for place, raw in enumerate(context_of(candidate, is_after=False, most=8)):
        before = read_line(raw).text
        if _FRAME.match(before) or (place < 3 and _WARNED.match(before)):  # it may have three lines
            return True
        if before.startswith(("  ", "\t")) and not before.startswith("    "):
            return False
    return False


def _ends_traceback(candidate: Candidate, line: Line) -> bool:
    """Return whether a line is the exception after a traceback."""
    before = next(context_of(candidate, is_after=False, most=1), None)
    if before is None or not re.match(r"[A-Za-z_][\w.]{0,200}(?:: |$)", line.text):
        return False
    return any(_FRAME.match(read_line(raw).text) for raw in context_of(candidate, is_after=False, most=4))


def _numbers(kind: Kind, match: re.Match[str], text: str) -> dict[str, int | str]:
    """Return the numbers in a line and in those that follow."""
    numbers: dict[str, int | str] = {}
    for detail in [match, *filter(None, (compiled(wording).search(text) for wording in kind.details))]:
        for name, value in detail.groupdict().items():
            if value is None or name in numbers:
                continue
            if name.endswith("nbytes"):
                numbers[name] = nbytes_of(value)
            else:
                numbers[name] = (
                    min(int(value), LARGEST) if value.lstrip("-").isdecimal() else printable(value.strip())
                )
    return memory_numbers(numbers)


def _sentence(record: str, match: re.Match[str] | None) -> str:
    """Return the first sentence of a record: of a line that says several things, that of a match."""
    lines = [line.strip() for line in record[match.start() if match else 0 :].split("\n") if line.strip()]
    text = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
    end = text.find(". ", _LEAST)
    if len(text) > _LONG and end > 0:
        text = text[:end]
    return text.rstrip(": .") if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _frames(candidate: Candidate) -> Iterator[tuple[str, int, str]]:
    """Yield file, line and function of the frames of an exception, innermost first."""
    for raw in context_of(candidate, is_after=False, most=60):
        text = read_line(raw).text
        if match := _FRAME.match(text):
            yield match[1], int(match[2]), match[3] or ""
        elif text.startswith("Traceback (most") or (text.strip() and not text.startswith((" ", "\t"))):
            return


def _place(candidate: Candidate, lines: UserLines) -> str:
    """Return the user's line in the traceback that an exception ends; empty without one."""
    origin = lines.origin(_frames(candidate))
    return "" if origin is None else printable(origin.place)


def _named(kind: Kind | None, text: str) -> Iterator[tuple[str, str]]:
    """Yield the ranks that a line names as the cause."""
    if kind is None or kind.role != "consequence":
        return
    for match in _HEARTBEAT.finditer(text):
        yield match[1], "missed heartbeats"
    lines = text.split("\n")
    barrier = ""
    for place, line in enumerate(lines):
        if named := _BARRIER.search(line):
            barrier = named[1]
        if "unhealthy (stopped sending heartbeats)" in line:
            yield from ((task, "listed as unhealthy") for task in _tasks(lines[place + 1 :]))
        if first := _FIRST_TASK.search(line):
            if barrier.startswith("Shutdown"):
                # If several are there, the first one may have lost its peer.
                if _ONE_ARRIVED.search(text):
                    yield first[1], FIRST_AT_SHUTDOWN
            else:
                late = f"{LATE} {printable(barrier)}".rstrip()
                yield from ((task, late) for task in _tasks(lines[place + 1 :]))
            return


def _tasks(lines: Iterable[str]) -> Iterator[str]:
    """Yield the tasks of a list, one in each line."""
    for line in lines:
        match = _TASKS.match(line)
        if match is None:
            return
        yield match[1]


def numbers_agree(first: Mapping[str, int | str], other: Mapping[str, int | str]) -> bool:
    """Return whether no size differs between two lines about memory, apart from rounding.

    A need is only known if the total is: without it, it is a sum of the parts that the line has.
    """
    names = {name for name in first.keys() & other.keys() if name.endswith("nbytes")}
    if "total_nbytes" in (first.keys() ^ other.keys()) and len(names) > 1:
        names.discard("needed_nbytes")
    return all(_is_near(first[name], other[name]) for name in names)


def _is_near(first: int | str, other: int | str) -> bool:
    return abs(int(first) - int(other)) <= 0.01 * max(int(first), int(other), 1)
