"""The page of changes that help: the answer, then each change with its code, its figures and its proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from ...base.quantities import counted, duration_words, format_bytes, grouped
from ..reports import AdviceReport, Remedy
from ..reports.advice import better_and_worse, change_words, numbers_of, pair_words, price
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
    that_apply,
)
from .folds import folded_paths
from .program_words import platform_words

_BYTES = (("sent_nbytes", "sent"), ("memory_nbytes", "memory"), ("temporary_nbytes", "temporaries"))
_WHERE_PLACED = "change it where it is placed, such as in the checkpoint's restore, too"
_SHARD_OUTPUTS = "shard the outputs with out_shardings of jax.jit"
_NOT_KNOWN = "The time of a step is not known, nor what helps with other shapes or on another mesh."
_MOST_PATHS = 6


def advice_page(report: AdviceReport, *, trades: bool = False) -> Iterator[Listing]:
    """Yield the answer, the changes that help, those that have a price, and what was tried.

    Args:
        report: The changes.
        trades: Whether to list the changes that make one figure better and another worse.
    """
    yield Sentence(report.answer.replace("→", BECOMES), "answer")
    if report.reason is None:
        yield _listed(
            report.remedies, lambda remedy: _remedy(report, remedy, is_first=remedy is report.remedies[0])
        )
        if trades:
            yield _listed(report.trades, lambda trade: _trade(report, trade))
        yield Sentence(_tried(report, has_trades=trades))
    if report.reasons:
        yield Sentence("the program sends the most bytes for:")
        yield from said(report.reasons, indent=2)
    yield from said(report.caveats, "aside")
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
    answered = [figure.name for figure in better_and_worse(remedy)[0][: int(is_first)]]
    yield from [] if is_first else [Sentence("")]
    yield from _place(remedy)
    yield from said(_figures(remedy, answered), indent=2)
    yield from _reason_and_proof(report, remedy)


def _trade(report: AdviceReport, trade: Remedy) -> Iterator[Block]:
    """Yield a change that makes one figure better and another worse, its price first."""
    names = [figure.name for figures in better_and_worse(trade) for figure in figures]
    numbers = ", ".join(chain.from_iterable(_figure(trade, name) for name in names))
    yield Sentence("")
    yield Sentence(": ".join(filter(None, (price(trade), numbers))), "answer")
    yield from _place(trade)
    yield from said(_figures(trade, names), indent=2)
    yield from _reason_and_proof(report, trade)


def _place(remedy: Remedy) -> Iterator[Block]:
    """Yield where a change belongs, what is there, and what to write."""
    place = remedy.place
    if remedy.kind == "constraint":
        is_short = "\n" not in remedy.expression
        yield Verbatim(f"{place}  {remedy.expression}" if is_short else str(place), is_whole=True)
        if not is_short:
            yield Verbatim(_indented(remedy.expression), is_whole=True)
            yield Sentence("in its place:")
        yield Verbatim(_indented(remedy.code), is_whole=True)
        if remedy.imports:
            yield Sentence(f"with {remedy.imports} at the top of the file", indent=2)
        return
    yield Verbatim(f"{place}: {remedy.expression} {BECOMES} {remedy.code}", is_whole=True)
    if len(place.paths) > 1:
        folds = folded_paths(place.paths, [None] * len(place.paths))
        paths = [counted_path(path, len(members)) for path, members in folds]
        yield Sentence(some(paths, _MOST_PATHS), indent=2)
    is_output = remedy.kind == "output"
    has_outputs = any(path.partition("/")[0] == "outputs" for path in place.paths)
    yield from said(
        that_apply((not is_output, _WHERE_PLACED), (has_outputs or is_output, _SHARD_OUTPUTS)), indent=2
    )


def _indented(code: str) -> str:
    return "\n".join(f"  {line}" for line in code.expandtabs().split("\n"))


def _figure(remedy: Remedy, name: str) -> Iterator[str]:
    """Yield a figure that changes, before and after."""
    numbers = numbers_of(remedy, name)
    if numbers is None:
        return
    words = dict(_BYTES).get(name, "FLOPs" if name == "flops" else "FLOPs by XLA's count")
    old, new = map(format_bytes if name in dict(_BYTES) else grouped, numbers)
    change = change_words(*numbers)
    if old != new:
        share = "" if change == "equal" or name == "temporary_nbytes" else f" ({change})"
        yield f"{words} {pair_words(old, BECOMES, new)}{share}"


def _figures(remedy: Remedy, shown: Sequence[str]) -> Iterator[str]:
    """Yield the line of the figures that change, without some, and whether the FLOPs do."""
    names = [name for name, _ in _BYTES] + ["flops"]
    if change_words(*(numbers_of(remedy, "xla_flops") or (0, 0))) != "equal":
        names.append("xla_flops")
    words = [words for name in names if name not in shown for words in _figure(remedy, name)]
    flops = numbers_of(remedy, "flops")
    if flops is not None and flops[0] == flops[1]:
        words.append("FLOPs equal")
    if words:
        yield ", ".join(words)


def _reason_and_proof(report: AdviceReport, remedy: Remedy) -> Iterator[Block]:
    """Yield why the compiler sends what a change saves, if known, and how the change is proved."""
    if remedy.because:
        yield Sentence(f"because {remedy.because}")
    kind = platform_words(report.platform)
    target = report.topology or counted(report.device_count, f"{kind} device", f"{kind} devices")
    what = {
        "constraint": "this file with the edit",
        "argument": "placed so",
        "output": "with these out_shardings",
    }
    yield Sentence(f"proved: {what[remedy.kind]}, traced and compiled for {target}")


def _tried(report: AdviceReport, *, has_trades: bool) -> str:
    """Return the number of changes that were tried, the time, and the numbers of the others."""
    best = f"best of {report.tried} tried" if report.remedies else "tried"
    trades = counted(len(report.trades), "trade", "trades")
    facts = that_apply(
        (True, f"{best} in {duration_words(report.seconds)}"),
        (report.failed, f"{report.failed} failed"),
        (report.trades, trades if has_trades else f"{trades} (--trades)"),
    )
    return "; ".join(facts)


def _not_known(report: AdviceReport) -> str:
    """Return what the figures do not say; on CPU, also how to get those of an accelerator."""
    if report.platform != "cpu" or report.topology is not None:
        return _NOT_KNOWN
    return f"{_NOT_KNOWN} For the figures of an accelerator: --topology v5p:2x2x2."
