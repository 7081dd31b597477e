"""``jai-cli advise``: changes of shardings that make a program better, each applied and measured."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from jax_array_info_core.base.quantities import as_seconds, parse_bytes

from ..output import Problems, ignore_codes_option, refused
from ..reporting import Answer, report_command
from ..simulated_devices import require_jax
from ..user_code.compiling import NotCompiledError
from . import shown_on_stderr
from .program import devices_options, function_options, to_compile

if TYPE_CHECKING:
    from jax_array_info_core.facts.reports.advice import Remedy

_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%")


def _percent(text: str) -> float:
    """Return a percentage as a part of one.

    Raises:
        ValueError: If the text is not one.
    """
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"must be a percentage such as 10%, got {text!r}")
    return float(match[1]) / 100


def _saved(remedy: Remedy, min_nbytes: int) -> float:
    """Return the largest part of the bytes sent, the memory or the FLOPs that a change saves."""
    from jax_array_info_core.facts.reports.advice import better_and_worse, numbers_of

    better, _ = better_and_worse(remedy.before, remedy.after, min_nbytes)
    pairs = [numbers_of(remedy, figure.name) or (1, 1) for figure in better]
    return max(((old - new) / old for old, new in pairs), default=0.0)


def _say_first(remedy: Remedy) -> None:
    """Print the first answer on a terminal, while others are proved."""
    from jax_array_info_core.facts.reports.advice import gain

    if not sys.stderr.isatty():
        return
    click.echo(shown_on_stderr(f"proved: {gain(remedy)} at {remedy.place}; looking for others …"), err=True)


@report_command(
    "echo 'def f(x, w): return (x @ w).sum(1)' > f.py",
    "jai-cli advise f.py:f --mesh x=2,y=2 --arg 'f32[512,512]@-,y' --arg 'f32[512,512]@-,x'",
    has_verdict=True,
    has_rows=True,
)
@function_options
@devices_options
@click.option(
    "--budget",
    metavar="TIME",
    default="60s",
    show_default=True,
    help="Time for trying and proving changes, such as 90s or 10min. More time tries more of them.",
)
@click.option(
    "--balance",
    metavar="FLOPS",
    type=click.IntRange(min=1),
    help="FLOPs that cost as much as a byte sent, such as 2189. Default: those of the chip of --topology,"
    " else of v5e.",
)
@click.option(
    "--min-size",
    metavar="SIZE",
    default="1MiB",
    show_default=True,
    help="Bytes per device below which a figure is neither better nor worse, such as 1KiB for a small state"
    " that a loop steps often.",
)
@click.option(
    "--trades", is_flag=True, help="List all changes that make one figure better and another worse."
)
@click.option(
    "--fail-on-better",
    metavar="PERCENT",
    help="Exit with 1 if a change saves so much of the bytes sent, the memory or the FLOPs, such as 10%, and"
    " makes nothing worse.",
)
@ignore_codes_option
def advise(
    function: str,
    mesh: str,
    args_from: str | None,
    arrays: tuple[str, ...],
    topology: str | None,
    dcn: str | None,
    budget: str,
    balance: int | None,
    min_size: str,
    trades: bool,
    fail_on_better: str | None,
    ignore_codes: tuple[str, ...],
) -> Answer:
    """Try changes of shardings, and report those that make the program better. Nothing runs.

    A change is another sharding of arguments or outputs, another spec of a sharding constraint, or a new
    constraint on an expression of FILE or of a module that it imports, outside of installed packages; or
    several that belong together. Candidates are ranked by Shardy's propagation, which requires JAX 0.10.1 or
    later. The first are applied to copies of the lowered program and compiled, in a process of its own. A
    change that helps is then written into the source, as it is printed, in a process that imports FILE
    again, traced and compiled again: the figures are of that program. FILE itself is not changed.

    Better is a change that costs 5 % less, by bytes sent and FLOPs together, or needs 5 % and 1 MiB less
    memory, and that makes no figure worse by over 5 %. How many FLOPs a byte sent costs is that of the chip:
    --balance. Changes with a price follow if they have a third of a figure, or cost less for the same memory.

    FILE and FUNCTION are those of jai-cli program. FILE is imported once for the tries, again if their
    process ends or fails, and once for each change that is proved. --topology adds one. If FILE or a module
    changes meanwhile, the command ends. Requires JAX 0.6 or later.

    Figures are those of simulated CPU devices. With --topology, changes are tried on these, and proved on the
    devices of the topology. The time of a step is not known.

    Exits with 0, whether a change helps or not, with 1 if the function does not compile or a change of
    --fail-on-better helps, and with 2 if there is no answer.
    """
    from jax_array_info_core.programs.advice.judging import Scale
    from jax_array_info_core.programs.advice.search import advised

    from ..advice.engine import ChangedError, SourceEngine

    require_jax()
    problems = Problems()
    seconds = problems.catch("--budget", as_seconds, budget)
    min_nbytes = problems.catch("--min-size", parse_bytes, min_size)
    least = problems.catch("--fail-on-better", _percent, fail_on_better)
    named = (function, mesh, args_from, arrays)
    request = to_compile(problems, named, topology, dcn, ignore_codes=ignore_codes)
    assert seconds is not None
    assert min_nbytes is not None
    scale = Scale.of(topology, balance, min_nbytes)
    engine = SourceEngine(
        request,
        math.prod(request.mesh.values()),
        lambda words: click.echo(shown_on_stderr(words), err=True),
    )
    try:
        with refused(ChangedError):
            report = advised(engine, seconds, scale=scale, on_first=_say_first)
    except NotCompiledError as error:
        click.echo(f"Error: {shown_on_stderr(str(error))}", err=True)
        return Answer((), has_finding=True)
    finally:
        engine.close()
    report = replace(report, caveats=(*report.caveats, *engine.caveats()))
    has_finding = least is not None and any(_saved(remedy, min_nbytes) >= least for remedy in report.remedies)
    lacks = bool(report.left_out) and (report.reason is not None or (least is not None and not has_finding))
    refusal = (report.reason or report.left_out[0].words) if lacks else None
    return Answer(report, has_finding, {"trades": trades}, refusal)
