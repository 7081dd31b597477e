"""The list of the mistakes, and what a report says about them."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jax_array_info_core import program_report

MARK = "# mistake"
ADVICE = {"JAI207"}
"""Codes of findings that are true of right programs, too: an argument could be donated."""


class Planted(NamedTuple):
    """A mistake."""

    code: str
    """Code of the finding that names it."""

    make: Callable[[bool], tuple[Any, ...]]
    """Function that returns a mesh, a function and its arguments, with the mistake or without."""

    @property
    def lines(self) -> set[int]:
        """Lines with the mark."""
        source, first = inspect.getsourcelines(self.make)
        return {number for number, line in enumerate(source, first) if MARK in line}


PLANTED: dict[str, Planted] = {}
"""The mistakes by name."""


def planted(name, code="JAI213", mistakes=PLANTED):
    """Return a decorator that keeps a mistake by its name."""

    def keep(make):
        mistakes[name] = Planted(code, make)
        return make

    return keep


def report_of(mistake, *, is_right):
    """Return the report on a program with its mistake or without."""
    mesh, f, *arguments = mistake.make(is_right)
    with jax.set_mesh(mesh):
        return program_report(f if hasattr(f, "lower") else jax.jit(f), *arguments)


def lines_of(findings, code, file):
    """Return the lines of a file that findings with a code name."""
    name = re.escape(Path(file).name)
    texts = [str(finding) for finding in findings if finding.code == code]
    return {int(number) for text in texts for number in re.findall(rf"\b{name}:([0-9]+)", text)}


def checked(mistake):
    """Check that a finding names a line of a mistake, and that the right program has only advice."""
    findings = report_of(mistake, is_right=False).findings
    assert lines_of(findings, mistake.code, inspect.getsourcefile(mistake.make)) & mistake.lines, findings
    findings = report_of(mistake, is_right=True).findings
    assert [finding for finding in findings if finding.code not in ADVICE] == []
