"""The function that prints why each value of a program is sharded as it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jax_array_info.tables.folds import check_max_rows
from jax_array_info_core import propagation_report
from jax_array_info_core.delivery import deliver
from jax_array_info_core.propagation.at_line import at_line
from jax_array_info_core.reports import PropagationReport

from ..style import ForConsole
from ..tables.propagation import propagation_table
from .show import refuse_with, show_rendered, silent_at_exit

if TYPE_CHECKING:
    from ..export.document import Part


@silent_at_exit
def print_propagation(
    f: Any,
    /,
    *args: Any,
    line: str | None = None,
    ignore_codes: str | Iterable[str] = (),
    max_rows: int | None = 20,
    **kwargs: Any,
) -> None:
    """Print why each value of a program is sharded as it is: conflicts, lost mesh axes, and origins.

    For a product whose operands both have mesh axis ``data``, on 4,096 devices that need not exist:

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> from jax_array_info import print_propagation, sharded_structs
    >>> shapes = {"x": (4096, 1024), "wi": (1024, 8192)}
    >>> structs = {name: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for name, shape in shapes.items()}
    >>> specs = {"x": P("data"), "wi": P("data", "model")}
    >>> arrays = sharded_structs(structs, mesh={"data": 256, "model": 16}, specs=specs)
    >>> def project(x, wi):
    ...     return x @ wi
    >>> print_propagation(project, **arrays)
    1 finding: JAI301 conflicting-shardings
    project, lowered for TPU, 4096 devices: data=256, model=16
    ── JAI301 conflicting-shardings: 4.0 KiB per device ────────────────────────────
    1 operation has operands that exclude each other, so that data moves: one
    operand is gathered, or the result is summed over devices.
    Gathered weights of FSDP are meant. Otherwise, shard one operand over another
    mesh axis, or constrain it before the operation.
      4.0 KiB  data: dot_general ik,kj->ij  train.py:9 project
        x 'i' over data (argument), P('data',)
        wi 'k' over data (argument), P('data', 'model')
        result P('data', 'model')
    XLA rearranges the program before it propagates: near a conflict or a loss, it
      may choose another sharding. print_program shows those of the compiled
      program.
                                values
    ┏━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┓
    ┃ per device ┃ value                ┃ line, op and origin    ┃
    ┡━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━┩
    │   16.0 KiB │ bfloat16[4096,8192]  │ train.py:9 dot_general │
    │            │   P('data', 'model') │   data: argument x     │
    │            │                      │   model: argument wi   │
    └────────────┴──────────────────────┴────────────────────────┘
                  not shown at this width: function

    The function is traced and lowered, not compiled. The mesh can be an AbstractMesh of any size, without
    devices.

    - A conflict shows the operation as an einsum, and the letter that each operand shards: here, ``x`` has
      ``data`` for ``i``, and ``wi`` for ``k``.
    - The last column of the values has the line, the operation, and the origin of each mesh axis: an
      argument, an output, or the line of a constraint or a ``shard_map``. Long paths begin with ``⋯``.
    - Alike values of a line are one row.

    A notebook also shows the user's source with these in the margin, as ``to_html`` does.

    Args:
        f: A function, jitted or not, a Traced or a Lowered; or a ``PropagationReport``, without other
            arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        line: A line, such as ``"model.py:42"``, or the path of an argument or output. Then what is about it
            is printed alone, with the way of each mesh axis from its origin.
        ignore_codes: Codes of findings to leave out, such as ``"JAI301"``.
        max_rows: Maximum number of entries of each kind. One more has the number of the others. None shows
            all.
        **kwargs: Keyword arguments of the function.

    Raises:
        TypeError: If arguments are given with a ``PropagationReport``.
        UnsupportedValueError: (a ValueError) Before JAX 0.10, or if Shardy is off; or if the program has no
            such line and no such path.
        ValueError: If ``max_rows`` is negative.
    """
    check_max_rows(max_rows)
    if isinstance(f, PropagationReport):
        if args or kwargs or ignore_codes:
            refuse_with(PropagationReport, ["the other arguments"])
        report = f
    else:
        report = propagation_report(f, *args, ignore_codes=ignore_codes, **kwargs)
    if line is not None:
        report = at_line(report, line)
    deliver(report, lambda report: _show(report, with_ways=line is not None, max_rows=max_rows))


def _show(report: PropagationReport, *, with_ways: bool, max_rows: int | None) -> None:
    """Print the report on a propagation."""
    table = ForConsole(
        lambda _, options: propagation_table(
            report, with_ways=with_ways, max_rows=max_rows, width=options.max_width
        )
    )

    def parts() -> list[Part]:
        from ..export.propagation_lines import propagation_part

        return [propagation_part(report, max_rows, with_ways=with_ways)]

    show_rendered(table, parts=parts)
