"""``jai-cli program``: what XLA makes of a function in a file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ..fake_devices import use_fake_devices
from ..output import Output, output_options
from ..usage import Problems, Refusal
from .verdict import VerdictCommand

if TYPE_CHECKING:
    from jax_array_info_core.layouts.notation import ArrayNotation

MAX_DEVICES = 2048


@click.command(
    cls=VerdictCommand,
    question="What does XLA make of this function: what is sent over which mesh axis, and what is kept?",
    examples=(
        "echo 'def mlp(x, w): return x @ w' > mlp.py",
        "jai-cli program mlp.py:mlp --mesh x=8 --arg 'f32[64,32]@-,x' --arg 'f32[32,16]@x'",
    ),
)
@click.argument("function", metavar="FILE:FUNCTION", type=click.Path())
@click.option(
    "--mesh", required=True, metavar="AXIS=SIZE,...", help="Mesh axes and their sizes, such as fsdp=4,tensor=2."
)
@click.option(
    "--args-from",
    metavar="FILE:FUNCTION",
    type=click.Path(),
    help="A function that returns the positional arguments: arrays or ShapeDtypeStructs. It is called with the"
    " mesh if it has an argument for it.",
)
@click.option(
    "--arg",
    "arrays",
    metavar="DTYPE[SHAPE]@SPEC",
    multiple=True,
    help="An argument, such as 'float32[64,128]@data,-' or 'bf16[128]'. Without @, it is replicated. Repeat the"
    " option for each positional argument.",
)
@click.option(
    "--topology",
    metavar="NAME",
    help="Compile for these devices, such as v5e:2x4, v5p:2x2x2 or h100:8. It needs libtpu or JAX's CUDA plugin,"
    " but no accelerator.",
)
@output_options
def program(
    function: str,
    mesh: str,
    args_from: str | None,
    arrays: tuple[str, ...],
    topology: str | None,
    output: Output,
) -> bool:
    """Compile a function for abstract arguments, and report what XLA made of it. Nothing runs.

    FILE is run as a module that is not __main__, on as many fake CPU devices as --mesh has, at most 2,048. What it
    prints goes to stderr. FILE can also be the dotted name of a module. FUNCTION can be jitted; decorate it with
    jax.jit to donate arguments or to set output shardings.

    A PartitionSpec inside the function refers to the mesh of its arguments.

    Bytes are per device. On fake CPU devices, shardings, donations, loops and flops are those of an
    accelerator; temporaries, dtypes of collectives and reduce-scatters are not: see --topology.

    Exits with 0 if the function compiles, with 1 if it does not, or does not fit the memory of --topology, and with
    2 if there is no answer, for example because a file cannot be read or the output cannot be written.
    """
