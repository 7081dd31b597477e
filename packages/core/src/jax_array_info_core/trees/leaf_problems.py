"""Errors about the specs of a tree, with one line for leaves that have the same problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import SpecError
from ..quantities import counted

_SHOWN = 3
"""Number of paths in a line of the message."""


def spec_error(problems: Iterable[tuple[str, str]]) -> SpecError:
    """Return the error with the problems of all leaves.

    Args:
        problems: Path and problem of each invalid spec.

    >>> error = spec_error([(path, "'x' is not a mesh axis") for path in ("a", "b", "c", "d")])
    >>> print(error)
    'x' is not a mesh axis (4 leaves: a, b, c, …)
    >>> error.problems[3]
    "d: 'x' is not a mesh axis"
    """
    problems = list(problems)
    paths: dict[str, list[str]] = {}
    for path, problem in problems:
        paths.setdefault(problem, []).append(path)
    return SpecError([_line(path, problem) for path, problem in problems], list(_groups(paths)))


def _groups(paths: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for each problem, given the paths of its leaves."""
    for problem, found in paths.items():
        if len(found) == 1:
            yield _line(found[0], problem)
            continue
        more = ", …" if len(found) > _SHOWN else ""
        leaves = counted(len(found), "leaf", "leaves")
        yield f"{problem} ({leaves}: {', '.join(found[:_SHOWN])}{more})"


def _line(path: str, problem: str) -> str:
    return f"{path or 'the leaf'}: {problem}"
