"""Words for compiled programs: shardings, axes, executions and sums of bytes; words that are links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...base.quantities import counted, decimal_words, format_bytes
from ...base.text import UNKNOWN, that_apply
from ...geometry.layouts import MeshAxes
from ..reports import (
    Collective,
    LayersReport,
    ProgramReport,
    ProgramTimelineReport,
    SentBytes,
    ShardingDescription,
    SourceLine,
    Temporary,
    WorkShare,
)
from ..reports.collectives import axes_words
from .blocks import AT_MOST, TIMES, some
from .folds import folded_paths, folded_text
from .words import mesh_words

_MOST_SCOPES = 3
_EVEN = 1.05
"""Share of work up to which it is divided evenly."""


def platform_words(platform: str) -> str:
    """Return the name of a platform as it is printed: ``TPU``."""
    return platform.upper() if platform in ("cpu", "gpu", "tpu") else platform


def name_words(report: LayersReport | ProgramReport | ProgramTimelineReport) -> str:
    """Return the name of a program with its line: ``step (train.py:14)``."""
    return report.name if report.origin is None else f"{report.name} ({report.origin.place})"


def title_words(report: LayersReport | ProgramReport) -> str:
    """Return the name of a program, its line, its devices and its mesh."""
    kind = f"{platform_words(report.platform)} device".lstrip()
    devices = counted(report.device_count, kind, f"{kind}s")
    mesh = "" if report.mesh is None else f": {mesh_words(report.mesh)}"
    return ", ".join(filter(None, (name_words(report), report.topology, devices))) + mesh


def kept_words(temporary: Temporary) -> str:
    """Return what keeps a value, and its ``checkpoint_name``: ``kept by a loop as hidden``."""
    reason = "by a loop" if temporary.is_kept else "for backward" if temporary.is_for_backward else ""
    name = "" if temporary.checkpoint_name is None else f"as {temporary.checkpoint_name}"
    return " ".join(filter(None, ("kept", reason, name))) if reason or name else ""


def scope_words(scopes: Sequence[str]) -> str:
    """Return named scopes, those that differ only in indices as one: ``layers/0-3/attn, head``."""
    return some([text for text, _ in folded_paths(scopes, [None] * len(scopes))], _MOST_SCOPES)


def sharding_words(sharding: ShardingDescription | None) -> str:
    """Return the spec of a sharding, without mesh axes of size 1, else its text or its class."""
    return UNKNOWN if sharding is None else str(sharding)


def collective_axes_words(collective: Collective, mesh: MeshAxes | None) -> str:
    """Return the mesh axes of a collective; without them, the size of its groups."""
    if collective.axes is None:
        return f"groups of {collective.group_size}"
    return axes_words(collective.axes, mesh)


def total_words(collective: Collective) -> str:
    """Return the bytes that equal collectives send in one call, or in one iteration of a loop."""
    nbytes = collective.nbytes_within
    if nbytes is None:
        return "?"
    is_exact = not collective.depends_on_data and not any(loop.side is not None for loop in collective.within)
    is_bound = collective.times is None and not (collective.is_in_loop and is_exact)
    words = f"{'at most ' if is_bound else ''}{format_bytes(nbytes)}"
    return f"{words} per iteration" if collective.is_in_loop else words


def each_words(collective: Collective) -> str:
    """Return the factors of the total: ``2 collectives × 8.0 MiB × 4 runs``. Empty if there is only one."""
    nbytes, times = collective.each_words, collective.times_within or collective.times
    if times is None and collective.depends_on_data:
        times = collective.at_most
    at_most = "?" if collective.at_most is None else f"{AT_MOST} {collective.at_most}"
    factors = that_apply(
        (collective.count != 1, f"{collective.count} collectives"),
        (True, f"{AT_MOST} {nbytes}" if collective.depends_on_data else nbytes),
        (times != 1, f"{at_most if times is None else times} runs"),
    )
    return f" {TIMES} ".join(factors) if len(factors) > 1 else ""


def work_words(work: WorkShare, device_count: int) -> str:
    """Return how the heavy work is divided: ``each device does 4.0 times its share``."""
    if work.share is None:
        return work.share_words
    what = " of all operations" if work.is_of_all else ""
    if work.share <= _EVEN:
        return f"divided evenly over {device_count} devices"
    return f"each device does {decimal_words(work.share)} times its share{what}"


def within_words(collective: Collective) -> str:
    """Return the innermost loop of unknown length, and the sides of conditionals that exclude others."""
    loops = [loop.words for loop in collective.within if loop.side is None]
    sides = [loop.words for loop in collective.within if loop.side is not None]
    return ", ".join([*sides, *(f"per iteration of {loop}" for loop in loops[-1:])])


def phase_words(part: Collective | SentBytes) -> str:
    """Return the pass of a collective or of a total, and whether it is asynchronous."""
    is_async = isinstance(part, Collective) and part.is_async
    return ", ".join(that_apply((part.phase, part.phase or ""), (is_async, "async")))


Target = str | tuple[str, int]
"""What a link leads to: the path of an argument or output, the words of a place, or a file and a line."""


class Link(NamedTuple):
    """Words that lead to something on the same page."""

    words: str
    target: Target


Pieces = tuple[str | Link, ...]
"""A text in pieces."""


def line_target(line: SourceLine) -> Target:
    """Return the target for a line."""
    return line.file, line.line


def words_of(piece: str | Link) -> str:
    """Return the words of a piece."""
    return piece if isinstance(piece, str) else piece.words


def text_of_pieces(pieces: Pieces) -> str:
    """Return the text without links."""
    return "".join(map(words_of, pieces))


def folded_pieces(texts: Sequence[Pieces]) -> Pieces:
    """Return texts that differ only in the indices of paths as one; its links are those of the first."""
    folded = [(column[0], folded_text([*map(words_of, column)])) for column in zip(*texts, strict=True)]
    return tuple(words if isinstance(first, str) else first._replace(words=words) for first, words in folded)
