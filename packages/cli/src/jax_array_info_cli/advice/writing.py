"""Changes of constraints as they are written in the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from jax_array_info_core.base.grouping import by_key
from jax_array_info_core.facts.reports.advice import RemedyChange
from jax_array_info_core.geometry.layouts.spec import Spec, spec_code
from jax_array_info_core.programs.advice.edits import Pin

from .changes import Text
from .files import Codes, Files, Span
from .specs import Chain, Found, NotWrittenError, written_specs


class Written(NamedTuple):
    """A change of the source."""

    change: RemedyChange
    text: Text | None
    """The text that changes; None for a spec that is not written there."""
    pin: Pin
    """The change, or the first of those that are written there."""


_Parts = dict[tuple[str, Span, str], tuple[Pin, Found, str]]
"""Texts that change, each once, with their imports."""

_MOST_SPECS = 3


def written(pins: Sequence[Pin], codes: Codes, constraint: Callable[[Pin], tuple[str, str]]) -> list[Written]:
    """Return changes as they are written, those first that can be.

    Args:
        pins: Constraints that are added, changed or taken away.
        codes: The files of the user.
        constraint: Function that returns the code of a constraint that is added, and its import.

    Raises:
        ValueError: If two of them change one text.
    """
    files, parts = Files(codes), _Parts()
    by_span: dict[tuple[str, Span], dict[str, list[tuple[Pin, Found, Chain]]]] = {}
    others: list[tuple[Pin, Chain]] = []
    for pin in pins:
        if pin.site is not None:
            file = files.get(pin.site.file)
            assert file is not None
            span, (code, imports) = file.span_of(pin.site), constraint(pin)
            parts[file.path, span, code] = pin, Found(file, span, code, span), imports
            continue
        chain = Chain(pin, files)
        try:
            found = chain.removed() if pin.axes is None else chain.respecified(pin.axes)
            of_text = by_span.setdefault((found.file.path, found.span), {})
            of_text.setdefault(found.new, []).append((pin, found, chain))
        except NotWrittenError:
            others.append((pin, chain))
    for (path, span), of_text in by_span.items():
        for new, rows_of_new in of_text.items():
            if len(of_text) == 1:
                parts[path, span, new] = (*rows_of_new[0][:2], "")
            else:  # one spec of several values that need others
                others += [(pin, chain) for pin, _, chain in rows_of_new]
    rows = _rows(parts)
    for (place, call), computed in by_key((chain.named(), pin) for pin, chain in others).items():
        specs = dict.fromkeys(spec_code(Spec(pin.axes)) for pin in computed if pin.axes is not None)
        code = ", ".join([*[*specs][:_MOST_SPECS], *["…"] * (len(specs) > _MOST_SPECS)])
        change = RemedyChange(kind="respec", place=place, expression=call, code=code, is_proved=False)
        rows.append(Written(change, None, computed[0]))
    return rows


def written_in_tables(pins: Sequence[Pin], codes: Codes) -> tuple[list[Written], list[Pin]]:
    """Return changes of arguments where their specs are written, and those that are written elsewhere.

    It is an item of a dict whose keys are the end of the path, or else the only variable of a module with
    such a spec. What has it, too, changes with the arguments.

    Args:
        pins: Arguments that change.
        codes: The files of the user.

    Raises:
        ValueError: If two of them change one text.
    """
    files, parts, left = Files(codes), _Parts(), list[Pin]()
    specs = [one for path in codes if (file := files.get(path)) is not None for one in written_specs(file)]
    for pin in pins:
        alike = [spec for spec in specs if spec.is_of(pin.before)]
        others = []
        for path in pin.paths:
            ranked = by_key((spec.matches(path), spec) for spec in alike)
            best = max((rank for rank in ranked if rank is not None), default=None)
            if best is None or len(ranked[best]) > 1:
                others.append(path)
                continue
            found = ranked[best][0].changed(pin.axes or ())
            parts[found.file.path, found.span, found.new] = pin._replace(kind="respec"), found, ""
        left += [pin._replace(paths=tuple(others))] if others else []
    return _rows(parts), left


def _rows(parts: _Parts) -> list[Written]:
    """Return changes that do not overlap. Those of one line are one."""
    every = [found for _, found, _ in parts.values()]
    shown: dict[tuple[str, Span], list[tuple[Pin, Found, str]]] = {}
    for pin, found, imports in parts.values():
        rest = [other for other in every if other is not found and other.file is found.file]
        if any(_overlap(found.span, other.span) for other in rest):
            raise ValueError("two changes of one expression")
        others = [other.shown for other in rest if other.shown != found.shown]
        span = found.span if any(_overlap(found.shown, other) for other in others) else found.shown
        shown.setdefault((found.file.path, span), []).append((pin, found, imports))
    return [_written(rows, span) for (_, span), rows in shown.items()]


def _overlap(span: Span, other: Span) -> bool:
    return span[0] < other[1] and other[0] < span[1]


def _written(rows: Sequence[tuple[Pin, Found, str]], shown: Span) -> Written:
    """Return changes of one expression or statement as one."""
    pin, (file, *_), _ = rows[0]
    code, place = "", shown[0]
    for _, found, _ in sorted(rows, key=lambda row: row[1].span):
        code += f"{file.text((place, found.span[0]))}{found.new}"
        place = found.span[1]
    code += file.text((place, shown[1]))
    imports = "\n".join(filter(None, dict.fromkeys(row[2] for row in rows)))
    change = RemedyChange(
        kind=pin.kind, place=file.place(shown), expression=file.text(shown), code=code, imports=imports
    )
    return Written(change, Text(file.site(shown), code, imports), pin)
