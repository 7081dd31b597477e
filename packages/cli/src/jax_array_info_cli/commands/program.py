"""``jai-cli program``, ``layers`` and ``why``: what XLA and Shardy make of a function in a file."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jax_array_info_core.base.quantities import format_number

from ..output import (
    Problems,
    device_nbytes,
    hbm_option,
    ignore_codes_option,
    line_options,
    min_size_option,
    refused,
    with_options,
)
from ..reporting import Answer, report_command
from ..simulated_devices import MAX_DEVICES
from ..user_code import parse_function
from ..user_code.compiling import NotCompiledError, Request, propagation_on, report_on
from . import shown_on_stderr
from .tree import read_or_refuse

if TYPE_CHECKING:
    from jax_array_info_core.facts.reports.layers import Grouping
    from jax_array_info_core.geometry.layouts.notation import ArrayNotation
    from jax_array_info_core.reports import ProgramReport

_F = TypeVar("_F", bound=Callable[..., Any])
_IS_UNKNOWN = re.compile(r"UNIMPLEMENTED|not found for platform cpu|interpret mode is supported on CPU")
"""Parts of the messages of JAX and XLA on what the CPU lacks."""
_WITH_TOPOLOGY = "The CPU has no such operation: compile for TPUs or GPUs, such as --topology v5e:2x2."
_argument_options = with_options(
    click.option(
        "--args-from",
        metavar="FILE:FUNCTION",
        type=click.Path(),
        help="A function that returns the positional arguments: arrays or ShapeDtypeStructs. If it takes an"
        " argument, it is called with the mesh.",
    ),
    click.option(
        "--arg",
        "arrays",
        metavar="DTYPE[SHAPE]@SPEC",
        multiple=True,
        help="A positional argument, such as 'float32[64,128]@data,-'; f32 means float32. Without @, it is"
        " replicated. Repeat the option for each argument.",
    ),
)


def _function_options(metavar: str, *, needs_mesh: bool) -> Callable[[_F], _F]:
    """Return a decorator that adds a function with its mesh and its arguments to a command."""
    sizes = "Mesh axes and their sizes, such as fsdp=4,tensor=2."
    return with_options(
        click.argument("function", metavar=metavar, type=click.Path()),
        click.option("--mesh", required=needs_mesh, metavar="AXIS=SIZE,...", help=sizes),
        _argument_options,
    )


function_options = _function_options("FILE:FUNCTION", needs_mesh=True)
"""Adds ``FILE:FUNCTION``, ``--mesh``, ``--args-from`` and ``--arg`` to a command."""

devices_options = with_options(
    click.option(
        "--topology",
        metavar="NAME",
        help="Compile for accelerators that need not be here, such as v5p:2x2x2, v5p-128, h100:8, or"
        " 2*v5p:2x2x2, which has two slices. They must be as many as the mesh has. Requires"
        " libtpu or JAX's CUDA plugin.",
    ),
    click.option(
        "--dcn",
        metavar="AXIS=SLICES,...",
        help="Mesh axes that span the slices of --topology, such as data=2. May be left out if only one can.",
    ),
)
"""Adds ``--topology`` and ``--dcn`` to a command."""


@report_command(
    "echo 'def f(x): return x @ x.T' > f.py",
    "jai-cli program f.py:f --mesh x=2,y=4 --arg 'float32[64,128]@x,y'",
    "jai-cli program f.py:f --mesh x=8 --arg 'bf16[64,64]@-,x' --output f.html",
    "jai-cli program f.py:f --mesh x=8 --arg 'f32[64,64]@x' --output old.json",
    "jai-cli program f.py:f --mesh x=8 --arg 'f32[64,64]@x' --timeline",
    has_verdict=True,
    has_rows=True,
)
@function_options
@devices_options
@click.option(
    "--bandwidth",
    "bandwidths",
    metavar="LINK=SPEED",
    multiple=True,
    help="Bandwidth of a link per device and direction, such as dcn=6.25GB/s, for a lower bound of the time."
    " Repeat the option for each link: dcn, other-host, other-process, ici,"
    " same-host, same-chip.",
)
@click.option(
    "--timeline",
    is_flag=True,
    help="Also show the live bytes along the schedule of the compiled program, by line, and their peak.",
)
@click.option(
    "--steady",
    is_flag=True,
    help="Also show what later calls send, if arguments return with other shardings: the second call then"
    " compiles again, and so does this command.",
)
@hbm_option
@ignore_codes_option
@min_size_option
@line_options
def program(
    function: str,
    mesh: str,
    args_from: str | None,
    arrays: tuple[str, ...],
    topology: str | None,
    dcn: str | None,
    bandwidths: tuple[str, ...],
    timeline: bool,
    steady: bool,
    hbm: str | None,
    ignore_codes: tuple[str, ...],
    min_nbytes: int,
) -> Answer:
    """Compile a function, and report its shardings, collectives, donations and memory. Nothing runs.

    FILE is a Python file or the dotted name of a module. It is imported, not run as the main program, on as
    many simulated CPU devices as the mesh has, at most 2,048. Remove device setup from FILE: the command
    creates the devices first. What it prints goes to stderr.

    FUNCTION is a plain or a jitted function; Class.method is one too. Decorate it with jax.jit for donated or
    static arguments and output shardings. A jax.stages.Traced, Lowered or Compiled has its arguments. Inside
    the function, the mesh of the arguments is set, so a PartitionSpec needs no mesh. If it has an argument
    mesh that is not among the positional ones, it gets the mesh.

    With --topology, the mesh has the devices of the topology. If the file builds a mesh of its own, that one
    is placed on the topology, and the report says what may differ.

    Bytes are per device. Same on TPU and GPU as on simulated CPU devices: requested shardings, donations,
    loop counts, FLOPs. May differ: shardings that XLA chose, collectives, temporaries. See --topology.

    If JAX refuses the function because of shardings, meshes or devices, the error is explained on stderr.

    Exits with 0 if the function compiles, with 1 if it does not or does not fit the memory of --topology or
    --hbm, and with 2 if there is no answer, for example because the file cannot be read. A part of the report
    that fails because of an error in jax-array-info is left out, and named.
    """
    from jax_array_info_core.geometry.layouts.links import parse_bandwidths

    problems = Problems()
    request = to_compile(
        problems,
        (function, mesh, args_from, arrays),
        topology,
        dcn,
        bandwidths=problems.catch("--bandwidth:", parse_bandwidths, bandwidths),
        ignore_codes=ignore_codes,
        min_nbytes=min_nbytes,
        timeline=timeline,
        steady=steady,
        hbm_nbytes=problems.catch("--hbm", device_nbytes, hbm),
    )
    report = _compiled(request)
    if report is None:
        return Answer((), has_finding=True)
    # Whether it fits --hbm or a GPU follows from its memory; the compiler for TPUs tells.
    has_limit = hbm is not None or (report.platform == "gpu" and topology is not None)
    lacks = (report.lacks("memory") or report.lacks("fit")) if has_limit else None
    return Answer(report, report.out_of_memory is not None, refusal=lacks)


def to_compile(
    problems: Problems,
    named: tuple[str, str | None, str | None, Sequence[str]],
    topology: str | None,
    dcn: str | None,
    **options: Any,
) -> Request:
    """Return a function to compile, as options name it, or end the command with all problems.

    Args:
        problems: Those found so far.
        named: Values of ``function_options``.
        topology: ``--topology``.
        dcn: ``--dcn``.
        **options: Other options of the report.
    """
    from jax_array_info_core.compat.topology_names import parse_topology
    from jax_array_info_core.errors import TopologyError
    from jax_array_info_core.layouts import parse_mesh

    if dcn is not None and topology is None:
        problems.add(["--dcn needs --topology, such as '2*v5p:2x2x2'"])
    options |= {"topology": topology, "dcn": problems.catch("--dcn", parse_mesh, dcn)}
    request = requested(problems, *named, most_devices=MAX_DEVICES, **options)
    if topology is not None:
        with refused(TopologyError):
            parse_topology(topology)
    return request


def _compiled(request: Request) -> ProgramReport | None:
    """Return the report on a function. If it does not compile, print why, and return None."""
    from jax_array_info import explain_errors

    try:
        with explain_errors():
            return report_on(request)
    except NotCompiledError as error:
        problem = str(error)
        if request.options["topology"] is None and _IS_UNKNOWN.search(problem):
            problem = f"{problem.rstrip('.')}. {_WITH_TOPOLOGY}"
        click.echo(f"Error: {shown_on_stderr(problem)}", err=True)
        return None


def requested(
    problems: Problems,
    function: str,
    mesh: str | None,
    args_from: str | None,
    arrays: Sequence[str],
    most_devices: int | None = None,
    **options: Any,
) -> Request:
    """Return the function and its arguments as options name them, or end the command with all problems.

    Args:
        problems: Those found so far.
        function: ``FILE:FUNCTION``.
        mesh: ``--mesh``.
        args_from: ``--args-from``.
        arrays: ``--arg``.
        most_devices: Maximum number of simulated devices; None if none are needed.
        **options: Options of the report.
    """
    from jax_array_info_core.geometry.layouts.notation import parse_array
    from jax_array_info_core.layouts import parse_mesh

    name = problems.catch("FILE:FUNCTION", parse_function, function)
    sizes = problems.catch("--mesh", parse_mesh, mesh)
    source = problems.catch("--args-from", parse_function, args_from)
    parsed = [problems.catch("--arg", parse_array, text) for text in arrays]
    if args_from is not None and arrays:
        problems.add(["--args-from and --arg both give the arguments: omit one of them"])
    if sizes:
        count = math.prod(sizes.values())
        if most_devices is not None and count > most_devices:
            limit = f"the limit is {most_devices} simulated devices. Lower one of its axes."
            problems.add([f"--mesh {mesh} has {format_number(count)} devices; {limit}"])
        for text, array in zip(arrays, parsed, strict=True):
            problems.add(_misfits(text, array, sizes) if array else ())
    problems.refuse()
    assert name is not None
    assert sizes is not None
    notations = tuple(array for array in parsed if array is not None)
    return Request(function=name, mesh=sizes, arrays=notations, args_from=source, options=options)


def _misfits(text: str, array: ArrayNotation, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield the problems of an array with its spec and the mesh."""
    from jax_array_info_core.arrays.plans import strict_problems

    _, shape, spec = array
    problems = strict_problems(shape, sizes, spec)
    if spec.unconstrained or spec.unreduced:
        problems.append("an argument cannot be UNCONSTRAINED or unreduced: name mesh axes, or - for none")
    return (f"--arg {text}: {problem}" for problem in problems)


@report_command(
    "echo 'def f(x, w): return x @ w' > f.py",
    "jai-cli layers f.py:f --mesh x=8 --arg 'f32[64,64]@x' --arg 'f32[64,64]@-,x'",
    "jai-cli program f.py:f --mesh x=8 --arg 'f32[64,64]@x' --arg 'f32[64,64]@-,x' --output f.json",
    "jai-cli layers f.json --sort sent",
    has_verdict=True,
    has_rows=True,
)
@_function_options("FILE:FUNCTION|REPORT", needs_mesh=False)
@devices_options
@click.option(
    "--by",
    type=click.Choice(("parameter", "scope")),
    default="parameter",
    show_default=True,
    help="What a row is: a parameter, or the names of jax.named_scope that linen, Haiku and Equinox set, and"
    " nnx does not.",
)
@click.option(
    "--sort",
    type=click.Choice(("tree", "parameters", "held", "sent", "flops", "saved")),
    default="tree",
    show_default=True,
    help="Order of the rows: that of the arguments, or a column, the largest first.",
)
@line_options
def layers(
    function: str,
    mesh: str | None,
    args_from: str | None,
    arrays: tuple[str, ...],
    topology: str | None,
    dcn: str | None,
    by: Grouping,
    sort: str,
) -> Answer:
    """Report what each parameter of a function costs: bytes held, sent and saved, and FLOPs. Nothing runs.

    FILE, FUNCTION and the options are those of jai-cli program. REPORT is a report that it wrote:
    jai-cli program step.py:step ... --output step.json. It has its arguments.

    Layers that differ only in indices share a row, whose figures are the sums of all. Bytes and FLOPs are
    those of a device in one call. Each column adds up to the figure of jai-cli program; what belongs to no
    parameter, such as collectives of activations, is a row of its own.

    Exits with 0, with 1 if the function does not compile, and with 2 if there is no answer, for example
    because the file cannot be read.
    """
    from jax_array_info_core import layers_report
    from jax_array_info_core.reports import ProgramReport

    problems = Problems()
    if function.endswith(".json") or (os.path.isfile(function) and not function.endswith(".py")):
        if mesh or args_from or arrays or topology or dcn:
            problems.add(["a saved report has its arguments: omit --mesh, --args-from, --arg and --topology"])
        problems.refuse()
        report = read_or_refuse(function, "not a ProgramReport", ProgramReport)
    else:
        if mesh is None:
            problems.add(["--mesh is missing, such as --mesh fsdp=4,tensor=2"])
        report = _compiled(to_compile(problems, (function, mesh, args_from, arrays), topology, dcn))
    if report is None:
        return Answer((), has_finding=True)
    refusal = report.reason or report.lacks("costs")
    return Answer(layers_report(report, by=by), options={"sort": sort}, refusal=refusal)


FAIL_ON = ("JAI301", "JAI302", "JAI303", "JAI304")
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

    Findings are conflicts between operands (JAI301), lost mesh axes (JAI302), replicated values (JAI303) and
    mesh axes that stop sharding the batch (JAI304). XLA decides later which data is sent: see jai-cli program
    for bytes. As HTML, the report has the source, with the shardings of each line and links from each
    conflict to its origin.

    If JAX refuses the function because of shardings, meshes or devices, the error is explained on stderr.

    Exits with 0, with 1 if there is a finding of --fail-on, and with 2 if there is no answer, for example
    because the file cannot be read, the function cannot be traced or Shardy fails.
    """
    from jax_array_info_core.errors import UnsupportedValueError
    from jax_array_info_core.programs.propagation.propagation_report import at_line

    problems = Problems()
    if never := sorted({*fail_on} & {*ignore_codes}):
        problems.add([f"--fail-on and --ignore-code both have {', '.join(never)}: omit one of them"])
    request = requested(
        problems, function, mesh, args_from, arrays, ignore_codes=ignore_codes, min_nbytes=min_nbytes
    )
    from jax_array_info import explain_errors

    with refused(NotCompiledError), refused(UnsupportedValueError, prefix="--at: "), explain_errors():
        report = propagation_on(request)
        if at is not None and report.reason is None:
            report = at_line(report, at)
    has_finding = any(finding.code in fail_on for finding in report.findings)
    refusal = None if report.reason is None else report.answer
    return Answer(report, has_finding, {"with_ways": at is not None}, refusal)
