"""``jai-cli check``: findings about the sharding of a tree in a file."""

from __future__ import annotations

import functools
from dataclasses import replace

import click

from ..output import ignore_codes_option, min_size_option
from ..reporting import Answer, report_command
from ..usage import Problems
from .tree import WRITE_MODEL, Planned, path_rules, planned_tree


@report_command(
    WRITE_MODEL,
    "jai-cli check model.npz --mesh data=2 --spec '*=-' --replicated-over data",
    "jai-cli tree model.npz --mesh fsdp=8 --spec '*=fsdp' --output plan.json",
    "jai-cli check plan.json --hbm 95GiB --optimizer adam",
    "jai-cli check plan.json --expect 'embed=fsdp' --format json",
    has_verdict=True,
    has_rows=True,
)
@planned_tree
@click.option("--hbm", metavar="SIZE", help="Memory of a device, such as 95GiB, 16GB or 1e9.")
@click.option(
    "--host-memory",
    metavar="SIZE",
    help="Memory of one host for leaves in host memory, such as 512GiB.",
)
@click.option(
    "--hosts",
    metavar="COUNT",
    type=click.IntRange(min=1),
    help="Number of hosts, each with the same number of consecutive devices, for --host-memory.",
)
@click.option(
    "--optimizer",
    type=click.Choice(("adam", "adamw", "lion", "momentum")),
    help="Add the state of this optimizer, unless the tree has it: moments that are sharded like their"
    " parameters.",
)
@click.option(
    "--moment-dtype",
    metavar="DTYPE",
    help="Dtype of the moments, such as float32. By default, that of their parameters, as in optax.",
)
@click.option(
    "--replicated-over",
    metavar="AXIS,...",
    multiple=True,
    help="Mesh axes over which replication is intended, such as data. Can be repeated.",
)
@click.option(
    "--max-replicated",
    metavar="FRACTION",
    type=float,
    default=0.02,
    show_default=True,
    help="Part of the bytes of the fullest device that further sharding may save without a finding.",
)
@click.option(
    "--devices",
    metavar="COUNT",
    type=click.IntRange(min=1),
    help="Least number of devices of each leaf. 1 accepts leaves on one device. By default, that of --mesh or"
    " of the largest mesh of the tree.",
)
@click.option(
    "--ignore", metavar="PATTERN", multiple=True, help="Leave out leaves whose paths match. Can be repeated."
)
@ignore_codes_option
@min_size_option
@click.option(
    "--min-share",
    metavar="FRACTION",
    type=click.FloatRange(0, 1),
    default=0.01,
    show_default=True,
    help="Part of the bytes per device. The smallest leaves of a finding that take less share a line.",
)
@click.option("--allow-empty", is_flag=True, help="Accept a tree without arrays.")
@click.option(
    "--expect",
    metavar="PATTERN=SPEC",
    multiple=True,
    help="The PartitionSpec that leaves whose paths match must have. Can be repeated: the first match"
    " applies.",
)
def check(
    planned: Planned,
    hbm: str | None,
    host_memory: str | None,
    hosts: int | None,
    optimizer: str | None,
    moment_dtype: str | None,
    replicated_over: tuple[str, ...],
    max_replicated: float,
    devices: int | None,
    ignore: tuple[str, ...],
    ignore_codes: tuple[str, ...],
    min_nbytes: int,
    min_share: float,
    allow_empty: bool,
    expect: tuple[str, ...],
) -> Answer:
    """Check a tree for leaves that are replicated or padded without need, and whether it fits.

    FILE and the options --mesh, --spec, --axes, --dtype and --item are those of jai-cli tree.

    Findings are a tree without arrays, avoidable replication, leaves on fewer devices than the mesh, padding,
    invalid specs, mesh axes that shard no leaf, leaves that differ from --expect, leaves that are sharded
    differently from others whose paths differ only in numbers, optimizer moments that are sharded
    differently from their parameters, and a tree that does not fit --hbm or --host-memory. Gradients and
    activations are not counted.

    Exits with 0 if nothing was found, with 1 if there are findings, and with 2 if there is no answer, for
    example because a file cannot be read or the output cannot be written.
    """
    from jax_array_info_core import check_report, dtype_bits
    from jax_array_info_core.layouts.notation import parse_names

    problems = Problems()
    arguments = planned.arguments(problems)
    names = [problems.catch("--replicated-over", parse_names, text) or () for text in replicated_over]
    hbm_nbytes = problems.catch("--hbm", _positive_bytes, hbm)
    host_nbytes = problems.catch("--host-memory", _positive_bytes, host_memory)
    if hosts is not None and host_memory is None:
        problems.add(["--hosts needs --host-memory, the memory of one"])
    if not 0 <= max_replicated <= 1:
        problems.add([f"--max-replicated must be a fraction from 0 to 1, got {max_replicated:g}"])
    expected = path_rules("--expect", expect, problems)
    if moment_dtype is not None:
        problems.catch("--moment-dtype", dtype_bits, moment_dtype)
        if optimizer is None:
            problems.add(["--moment-dtype needs --optimizer, such as adam"])
    problems.refuse()
    checked = functools.partial(
        check_report,
        planned.read(arguments, problems),
        **arguments,
        expect=expected,
        max_replicated=max_replicated,
        devices=devices,
        replicated_over=tuple(name for found in names for name in found),
        ignore=ignore,
        ignore_codes=ignore_codes,
        min_nbytes=min_nbytes,
        allow_empty=allow_empty,
        hbm_nbytes=hbm_nbytes,
        host_nbytes=host_nbytes,
        hosts=hosts,
        optimizer=optimizer,
        moment_dtype=moment_dtype,
    )
    report = problems.catch("", checked)
    problems.refuse()
    assert report is not None
    return Answer(replace(report, syntax="shell"), not report.passed, {"min_share": min_share})


def _positive_bytes(text: str) -> int:
    """Parse a size of at least one byte."""
    from jax_array_info_core.quantities import parse_bytes

    nbytes = parse_bytes(text)
    if nbytes < 1:
        raise ValueError(f"must be at least 1 byte, got {text}")
    return nbytes
