"""The page of changes that help: the answer, then each change with its code, its figures and its proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from ...base.quantities import counted, duration_words, format_bytes, grouped
from ...base.text import that_apply
from ..reports import AdviceReport, Remedy, RemedyChange
from ..reports.advice import (
    FIGURES,
    better_and_worse,
    change_words,
    gained,
    moved_nbytes,
    numbers_of,
    pair_words,
    price,
)
from .blocks import (
    BECOMES,
    Block,
    Limited,
    Listing,
    Sentence,
    Verbatim,
    counted_path,
    more,
    said,
    some,
)
from .folds import folded_paths
from .program_words import platform_words

_WORDS = {figure.name: figure.short for figure in FIGURES}
_NAMES = [*_WORDS]
_NAMES.insert(_NAMES.index("memory_nbytes") + 1, "temporary_nbytes")
"""The figures that are listed, in their order."""
_WHERE_PLACED = "change it where it is placed, such as in the checkpoint's restore, too"
_SHARD_OUTPUTS = "shard the outputs with out_shardings of jax.jit"
_NOT_KNOWN = "The time of a step is not known, nor what helps with other shapes or on another mesh."
_MOST_PATHS, _FEW_PATHS = 9, 3


def advice_page(report: AdviceReport, *, trades: bool = False) -> Iterator[Listing]:
    """Yield the answer, the changes that help, those that have a price, and what was tried.

    Args:
        report: The changes.
        trades: Whether to list all changes that make one figure better and another worse.
    """
    yield Sentence(report.answer.replace("→", BECOMES), "answer")
    if report.reason is None:
        yield _listed(
            report.remedies, lambda remedy: _remedy(report, remedy, is_first=remedy is report.remedies[0])
        )
        shown = report.trades if trades else report.listed_trades
        yield _listed(shown, lambda trade: _trade(report, trade))
        yield Sentence(_tried(report, len(shown)))
    if report.reasons:
        yield Sentence("the program sends the most bytes for:")
        yield from said(report.reasons, indent=2)
    yield from said(report.caveats, "aside")
    loops = [loop.loop for loop in report.base.loops]
    notes = that_apply(
        (loops, f"an iteration is one of {some(loops, _MOST_PATHS)}"),
        (report.base.unknown, f"not in the figures: {some(report.base.unknown, _MOST_PATHS)}"),
    )
    yield from said(notes, "aside")
    if report.reason is None:
        yield Sentence(_not_known(report), "aside")


def _listed(
    remedies: Sequence[Remedy], blocks: Callable[[Remedy], Iterator[Block]]
) -> Limited[Remedy, Block]:
    """Return the blocks of changes, and the number of those that are left out."""
    return Limited(
        remedies,
        lambda shown: chain.from_iterable(map(blocks, shown)),
        lambda hidden: [Sentence(f"and {more(len(hidden), 'change', 'changes')}")],
    )


def _remedy(report: AdviceReport, remedy: Remedy, *, is_first: bool) -> Iterator[Block]:
    """Yield a change that helps. The first figure of the first one is in the answer."""
    answered = [figure.name for figure in gained(remedy, report.min_nbytes)] if is_first else []
    yield from [] if is_first else [Sentence("")]
    yield from _changes(remedy)
    yield from said(_figures(remedy, answered), indent=2)
    yield from _reason_and_proof(report, remedy)


def _trade(report: AdviceReport, trade: Remedy) -> Iterator[Block]:
    """Yield a change that makes one figure better and another worse, its price first."""
    figures = better_and_worse(trade.before, trade.after, report.min_nbytes)
    names = [figure.name for of_kind in figures for figure in of_kind]
    numbers = ", ".join(chain.from_iterable(_figure(trade, name) for name in names))
    yield Sentence("")
    yield Sentence(": ".join(filter(None, (price(trade, report.min_nbytes), numbers))), "answer")
    yield from _changes(trade)
    yield from said(_figures(trade, names), indent=2)
    yield from _reason_and_proof(report, trade)


def _changes(remedy: Remedy) -> Iterator[Block]:
    """Yield where each change of a remedy belongs, what is there, and what to write."""
    for place, change in enumerate(remedy.changes):
        yield from [Sentence("and:")] if place else []
        yield from _at_line(change) if change.place.path is None else _at_paths(change)


def _at_line(change: RemedyChange) -> Iterator[Block]:
    """Yield a change of the source."""
    is_short = "\n" not in change.expression
    yield Verbatim(f"{change.place}  {change.expression}" if is_short else str(change.place), is_whole=True)
    if not is_short:
        yield Verbatim(_indented(change.expression), is_whole=True)
    if not (change.code or change.is_proved):
        yield Sentence("take this constraint away", indent=2)
        return
    if not (is_short and change.is_proved):
        yield Sentence("in its place:" if change.is_proved else "its spec in this call:", indent=2)
    yield Verbatim(_indented(change.code), is_whole=True)
    if change.imports:
        yield Sentence(f"with {change.imports} at the top of the file", indent=2)


def _at_paths(change: RemedyChange) -> Iterator[Block]:
    """Yield a change of arguments or outputs."""
    place, what = change.place, f"{change.expression} {BECOMES} {change.code}"
    folds = folded_paths(place.paths, [None] * len(place.paths))
    paths = [counted_path(path, len(members)) for path, members in folds]
    is_short = 0 < len(paths) <= _FEW_PATHS
    yield Verbatim(f"{', '.join(paths) if is_short else place}: {what}", is_whole=True)
    if not is_short and len(paths) > 1:
        yield Sentence(some(paths, _MOST_PATHS), indent=2)
    outputs = [path for path in place.paths if path.partition("/")[0] == "outputs"]
    are_outputs = bool(outputs) or change.kind == "output"
    are_arguments = change.kind == "argument" and len(outputs) < len(place.paths)
    yield from said(that_apply((are_arguments, _WHERE_PLACED), (are_outputs, _SHARD_OUTPUTS)), indent=2)


def _indented(code: str) -> str:
    return "\n".join(f"  {line}" for line in code.expandtabs().split("\n"))


def _figure(remedy: Remedy, name: str) -> Iterator[str]:
    """Yield a figure that changes, before and after."""
    numbers = numbers_of(remedy, name)
    if numbers is None:
        return
    old, new = map(format_bytes if name.endswith("nbytes") else grouped, numbers)
    change = change_words(*numbers)
    if old != new:
        share = "" if change in ("equal", "from 0") or name == "temporary_nbytes" else f" ({change})"
        yield f"{_WORDS.get(name, 'temporaries')} {pair_words(old, BECOMES, new)}{share}"


def _figures(remedy: Remedy, shown: Sequence[str]) -> Iterator[str]:
    """Yield the line of the figures that change, without some, and whether the FLOPs do."""
    is_equal = change_words(*(numbers_of(remedy, "xla_flops") or (0, 0))) == "equal"
    names = [name for name in _NAMES if name not in shown and not (is_equal and name == "xla_flops")]
    words = [words for name in names for words in _figure(remedy, name)]
    flops = numbers_of(remedy, "flops")
    if flops is not None and flops[0] == flops[1]:
        words.append("FLOPs equal")
    if words:
        yield ", ".join(words)


def _reason_and_proof(report: AdviceReport, remedy: Remedy) -> Iterator[Block]:
    """Yield why a change helps, if known, whom it costs something, and how it is proved."""
    if remedy.because:
        yield Sentence(f"because {remedy.because}")
    if moved := moved_nbytes(remedy.before, remedy.after):
        more = format_bytes(moved)
        yield Sentence(f"the gather only moves: the caller has to send {more} more to each device", "warning")
    kind = platform_words(report.platform)
    target = report.topology or counted(report.device_count, f"{kind} device", f"{kind} devices")
    unproved = [str(change.place) for change in remedy.changes if not change.is_proved]
    if unproved:
        places = some([*dict.fromkeys(unproved)], _MOST_PATHS)
        yield Sentence(
            f"not proved: the spec at {places} is computed; the figures are those of a try", "warning"
        )
        return
    what = {
        "this file with the edit": any(change.place.path is None for change in remedy.changes),
        "placed so": any(change.kind == "argument" for change in remedy.changes),
        "with these out_shardings": any(change.kind == "output" for change in remedy.changes),
    }
    how = ", ".join(words for words, applies in what.items() if applies)
    yield Sentence(f"proved: {how}, traced and compiled for {target}")


def _tried(report: AdviceReport, listed: int) -> str:
    """Return the time, and the numbers of changes that are not listed.

    Args:
        report: The changes.
        listed: Number of trades that are.
    """
    more = "more trade" if listed else "trade"
    hidden = counted(len(report.trades) - listed, more, f"{more}s")
    facts = that_apply(
        (True, f"took {duration_words(report.seconds)}"),
        (report.failed, f"{report.failed} failed"),
        (listed, counted(listed, "trade", "trades")),
        (len(report.trades) > listed, f"{hidden} (--trades)"),
    )
    return "; ".join(facts)


def _not_known(report: AdviceReport) -> str:
    """Return what the figures do not say; on CPU, also how to get those of an accelerator."""
    chip = f", as on {report.chip}" if report.chip else ""
    words = f"A byte sent counts as {grouped(report.balance)} FLOPs{chip} (--balance). {_NOT_KNOWN}"
    if report.platform != "cpu" or report.topology is not None:
        return words
    return f"{words} For the figures of an accelerator: --topology v5p:2x2x2."
