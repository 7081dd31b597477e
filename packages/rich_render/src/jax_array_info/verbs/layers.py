"""Function that prints the costs of a compiled program, by parameter or by named scope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax_array_info_core import layers_report
from jax_array_info_core.facts.pages.folds import MaxRows
from jax_array_info_core.facts.pages.layers import Sort
from jax_array_info_core.facts.reports.layers import Grouping
from jax_array_info_core.reports import LayersReport

from .explain import explain_errors
from .show import print_table, refuse_with, verb


@verb
def print_layers(
    f: Any,
    /,
    *args: Any,
    by: Grouping = "parameter",
    sort: Sort = "tree",
    topology: str | None = None,
    dcn: Mapping[str, int] | None = None,
    explain: bool = True,
    max_rows: MaxRows = "fit",
    **kwargs: Any,
) -> None:
    """Print what each parameter of a function costs: bytes held, sent and saved, and FLOPs.

    The function is compiled, as in ``layers_report``; it does not run. Bytes and FLOPs are those of one
    device in one call.

    - The first line has the parameters that take most of the bytes sent, of the FLOPs and of the bytes held.
    - Parameters that differ only in indices share a row: ``layers/0-31/up ×32``. Figures are their sums.
    - ``held`` are the parameters with their moments. Wide pages have the parts of each figure, too.
    - ``not of a parameter`` has what belongs to none, such as collectives of activations and the other
      arguments, or to two. With it, each column adds up to the figure of ``print_program``; ``held`` adds up
      to the bytes of the arguments, without the padding of XLA.

    Args:
        f: A function, jitted or not, a Lowered or a Compiled; or a ``LayersReport``, a ``ProgramReport`` or
            the path of a saved one, without other arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        by: ``"parameter"``, or ``"scope"`` for the names of ``jax.named_scope`` that linen, Haiku and Equinox
            set, and nnx does not.
        sort: Order of the rows: ``"tree"``, that of the arguments; or a column, the largest first:
            ``"parameters"``, ``"held"``, ``"sent"``, ``"flops"`` or ``"saved"``.
        topology: Topology to compile for, such as ``"v5p:2x2x2"``, as in ``print_program``.
        dcn: Number of slices along each mesh axis that spans slices, such as ``{"data": 2}``.
        explain: Whether Shardy propagates the shardings once more. Without it, the bytes that are saved for
            the backward pass are not known.
        max_rows: Maximum number of rows. One more row sums the others. None shows all.
        **kwargs: Keyword arguments of the function.

    Raises:
        TopologyError: If the topology is unknown or its compiler is not installed.
        TypeError: If arguments are given with a ``LayersReport``.
        ValueError: If ``max_rows`` is negative, or ``by`` or ``sort`` is something else.
    """
    options: dict[str, Any] = {"topology": topology, "dcn": dcn, "explain": explain}
    if isinstance(f, LayersReport):
        is_given = args or kwargs or topology or dcn or not explain or by != "parameter"
        refuse_with(LayersReport, ["the other arguments"] if is_given else [])
        report = f
    else:
        with explain_errors():
            report = layers_report(f, *args, by=by, **options, **kwargs)
    print_table(report, sort=sort, max_rows=max_rows)
