"""The functions that print: each makes a report, renders it and shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from jax_array_info_core import (
    ArrayReport,
    ShardingLayout,
    UnsupportedValueError,
    array_report,
    compat,
    config,
    label_array,
    live_array_report,
    memory_report,
    mesh_plan,
    mesh_report,
)

from .palette import ColorMap
from .panel import array_panel
from .picture import LEAST_WIDTH, array_picture, mesh_picture
from .tables import live_array_table, memory_table


def sharding_info(value: Any, name: str | None = None) -> None:
    """Print a panel with a value's shape, dtype, bytes and sharding.

    Takes any value: arrays (also deleted ones, PRNG keys, Refs), traced values, ShapeDtypeStructs,
    numpy arrays, scalars, None, containers of arrays. A traced value is printed while JAX traces,
    with what is known then. A name becomes the array's label in ``print_array_stats``, unless
    ``config.assign_labels_to_arrays`` is False.

    Args:
        value: What to look at.
        name: Title of the panel; printed as written.
    """
    if name is not None and compat.is_array(value):
        label_array(value, str(name))
    report = array_report(value, name)
    _show(lambda encoding: array_panel(report, encoding=encoding))


def simple_array_info(value: Any, name: str | None = None) -> None:
    """Print the panel of ``sharding_info`` at once, wherever it is called.

    The two differ only for traced values: this one never asks the compiler.
    """
    sharding_info(value, name)


def sharding_vis(
    array: Any,
    *,
    use_color: bool = False,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: ColorMap | None = None,
) -> None:
    """Print a picture of which device holds which part of an array.

    Above two dimensions a rule says which two are shown: the sharded ones, then the first of the
    others.

    Args:
        array: A jax array, a traced value, a ShapeDtypeStruct with a sharding, a ShardingLayout or
            the report of one of these.
        use_color: Fill the cells with colours, where the terminal has any, instead of drawing boxes.
        scale: Factor for the height and width of the cells.
        min_width: Least width of a cell in characters.
        max_width: Width of the picture in characters.
        color_map: From 0…1 to red, green, blue in 0…1: a matplotlib colormap, or any function.

    Raises:
        UnsupportedValueError: (a ValueError) the value has no sharding to draw.
    """
    layout = _layout_to_draw(array)
    console = _console(max_width)
    if layout is None:
        console.print(Text("sharding unknown: only the compiler will know it"))
        return
    picture = array_picture(
        layout,
        use_color=use_color and console.color_system is not None and not console.no_color,
        scale=scale,
        min_width=min_width,
        max_width=max_width,
        color_map=color_map,
        encoding=console.encoding,
    )
    console.print(picture, crop=False, highlight=False)


def _layout_to_draw(array: Any) -> ShardingLayout | None:
    """Return the layout of what can be drawn, None for a traced value whose sharding is not known."""
    if isinstance(array, ShardingLayout):
        return array
    report = array if isinstance(array, ArrayReport) else array_report(array)
    if report.layout is not None or report.kind == "tracer":
        return report.layout
    if report.kind == "abstract":
        raise UnsupportedValueError(
            "this ShapeDtypeStruct has no sharding to draw: give it one with sharding="
        )
    if report.sharding is not None:
        raise UnsupportedValueError(f"the shards of this {report.sharding.type} are no regular grid")
    raise UnsupportedValueError(f"is not a jax array, got {type(array)}")


def print_mesh(mesh: Any) -> None:
    """Print a mesh: its axes named, its devices and processes in their places.

    Args:
        mesh: A ``jax.sharding.Mesh``, an AbstractMesh, or a mapping such as ``{"data": 8, "fsdp": 32}``.

    Raises:
        UnsupportedValueError: (a ValueError) it is none of these.
    """
    if not isinstance(mesh, Mapping) and not hasattr(mesh, "axis_names"):
        raise UnsupportedValueError(f"is no mesh, and no mapping of axis names to sizes, got {type(mesh)}")
    report = mesh_plan(mesh) if isinstance(mesh, Mapping) else mesh_report(mesh)
    console = _console()
    console.print(
        mesh_picture(report, max_width=max(console.width, LEAST_WIDTH), encoding=console.encoding),
        crop=False,
        highlight=False,
    )


def print_array_stats(hide_small_arrays: bool = False, *, max_rows: int | None = 100) -> None:
    """Print a table of all live arrays, the largest first.

    ``size`` is what one device holds of an array, ``sharded`` its whole size and how many devices
    hold each part; arrays alike in all columns are one row. Below them the scalars by dtype, and what
    the fullest device holds.

    Args:
        hide_small_arrays: Fold unlabelled arrays under 3 KiB a device into one row.
        max_rows: How many rows of arrays to show; what is left is one row more. None for all.
    """
    report = live_array_report()
    _show(
        lambda encoding: live_array_table(
            report, hide_small_arrays=hide_small_arrays, max_rows=max_rows, encoding=encoding
        )
    )


def pretty_memory_stats(device: Any, override: Mapping[str, Any] | None = None) -> None:
    """Print the memory statistics of a device as a table, or one line that says why there are none.

    Args:
        device: A device, as in ``jax.local_devices()``.
        override: Stands in for ``device.memory_stats()``, and is left as it is.
    """
    report = memory_report(device, override)
    _show(lambda encoding: memory_table(report, encoding=encoding))


def _show(renderer: Callable[[str], RenderableType]) -> None:
    """Print what a renderer makes for the encoding of the console."""
    console = _console()
    console.print(renderer(console.encoding), highlight=False)


def _console(width: int | None = None) -> Console:
    """Return where to print; what is printed there is dropped in a process that shall not print."""
    prints_here = config.process == "all" or config.process == compat.process_index()
    return Console(width=width, quiet=not prints_here)
