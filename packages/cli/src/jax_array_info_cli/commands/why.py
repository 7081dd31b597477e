"""``jai-cli why``: why the values of a function in a file are sharded as they are."""

from __future__ import annotations

import click

from ..output import ignore_codes_option, line_options, min_size_option
from ..reporting import Answer, report_command
from ..usage import Problems, refused
from ..user_code.compiling import NotCompiledError, propagation_on
from .program import function_options, requested

FAIL_ON = ("JAI301", "JAI302", "JAI303")
"""Codes of the findings about a propagation."""


@report_command(
    "echo 'def f(x, w): return x @ w' > f.py",
    "jai-cli why f.py:f --mesh x=256,y=16 --arg 'f32[4096,512]@x' --arg 'f32[512,512]@x,y'",
    "jai-cli why f.py:f --mesh x=8 --arg 'f32[64,64]@x' --arg 'f32[64,64]' --at f.py:1",
    "jai-cli why f.py:f --mesh x=8 --arg 'f32[64,8]@x' --arg 'f32[8,8]' --fail-on JAI301",
    "jai-cli why step.py:step --mesh fsdp=64 --args-from step.py:abstract --output why.json",
    has_verdict=True,
    has_rows=True,
)
@function_options
@click.option(
    "--at",
    metavar="FILE:LINE|PATH",
    help="Show only this line, such as model.py:42, or this argument or output, such as params/wi, with the"
    " way of each mesh axis from its origin.",
)
@click.option(
    "--fail-on",
    type=click.Choice(FAIL_ON),
    multiple=True,
    help="Exit with 1 if there is a finding with this code. Can be repeated.",
)
@ignore_codes_option
@min_size_option
@line_options
def why(
    function: str,
    mesh: str,
    args_from: str | None,
    arrays: tuple[str, ...],
    at: str | None,
    fail_on: tuple[str, ...],
    ignore_codes: tuple[str, ...],
    min_nbytes: int,
) -> Answer:
    """Report where each sharding inside a function comes from, and where mesh axes are lost or conflict.

    The function is traced and lowered, and Shardy propagates its shardings. Nothing is compiled or run. The
    mesh has no devices, so it can have any size; the program is lowered for TPUs. Requires JAX 0.10.1
    or later.

    FILE and FUNCTION are those of jai-cli program. The function of --args-from gets an AbstractMesh. A file
    that builds a mesh of its own has as many simulated CPU devices as --mesh, if these are at most 64.

    Findings are conflicts between operands (JAI301), lost mesh axes (JAI302) and replicated values (JAI303).
    XLA decides later which data is sent: see jai-cli program for bytes. As HTML, the report has the source,
    with the shardings of each line and links from each conflict to its origin.

    Exits with 0, with 1 if there is a finding of --fail-on, and with 2 if there is no answer, for example
    because the file cannot be read, the function cannot be traced or Shardy fails.
    """
    from jax_array_info_core.errors import UnsupportedValueError
    from jax_array_info_core.propagation.propagation_report import at_line

    problems = Problems()
    if never := sorted({*fail_on} & {*ignore_codes}):
        problems.add([f"--fail-on and --ignore-code both have {', '.join(never)}: omit one of them"])
    request = requested(
        problems, function, mesh, args_from, arrays, ignore_codes=ignore_codes, min_nbytes=min_nbytes
    )
    with refused(NotCompiledError), refused(UnsupportedValueError, prefix="--at: "):
        report = propagation_on(request)
        if at is not None and report.reason is None:
            report = at_line(report, at)
    found = any(finding.code in fail_on for finding in report.findings)
    refusal = None if report.reason is None else report.answer
    return Answer(report, found, {"with_ways": at is not None}, refusal)
