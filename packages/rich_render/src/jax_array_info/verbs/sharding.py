"""The functions that print the sharding of a value or a mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from jax_array_info_core import (
    ArrayReport,
    MeshReport,
    Report,
    ShardingLayout,
    UnsupportedValueError,
    array_report,
    label_array,
    mesh_plan,
    mesh_report,
)
from jax_array_info_core.arrays.boxes import content_of
from jax_array_info_core.compat import values
from jax_array_info_core.delivery import deliver
from jax_array_info_core.text import plain_text
from jax_array_info_core.traced.report import report_when_known, tap_when_known

from ..console import shows_colors
from ..pictures.palette import ColorMap, check_color_map
from ..pictures.text import LEAST_WIDTH, array_picture, check_size, mesh_picture
from ..style import ForConsole, folding
from ..tables.array import array_panel
from ..tables.words import undrawn_line
from .show import show_rendered, silent_at_exit

if TYPE_CHECKING:
    from ..export.document import Part


_T = TypeVar("_T")


@silent_at_exit
def sharding_info(value: Any, name: str | None = None) -> None:
    """Print a panel with a value's shape, dtype, bytes and sharding.

    Takes any value: arrays (also deleted ones, PRNG keys, Refs), traced values, ShapeDtypeStructs,
    numpy arrays, scalars, None, containers of arrays. A box such as flax's ``nnx.Param`` is shown as what it
    holds, a mesh as by ``print_mesh``. A name becomes the array's label in
    ``print_array_stats``, unless ``config.assign_labels_to_arrays`` is False.

    A traced value has one panel. Where its type tells the sharding (Explicit mesh axes) or the program
    places it by hand (shard_map), that is printed at once, while JAX traces; elsewhere when XLA, which
    chooses the sharding, compiles the function. What JAX takes from its trace cache runs no Python and
    asks nothing new, what is only lowered is not compiled: both print nothing. Under
    ``jax.eval_shape``, ``make_jaxpr`` and ``export`` the panel is printed while JAX traces, and says
    ``sharding unknown: not compiled``. A function compiled anew for other shardings prints anew; one
    called twice from a program prints twice where XLA gives the two calls different shardings. Up to jax
    0.5, JAX drops the call from the body of a ``scan`` under ``grad``; there ``tap_sharding`` tells.

    What it costs inside jit, where the compiler is asked: on several devices the function is not found in
    the persistent compilation cache, as the question is part of its text. Once compiled, nothing is left
    of it: no call is slower. In a jax too new to be known, ``jax.debug.inspect_array_sharding`` asks
    instead, which sends each call the slow way of dispatch (some 50 µs) and may break what it looks at.
    Nothing at all cost ``f.lower(x).compile()`` and its ``input_shardings`` and ``output_shardings``.

    Args:
        value: What to look at.
        name: Title of the panel; printed as written.
    """
    value = content_of(value)
    if values.is_mesh(value) and not value.empty:
        deliver(mesh_report(value), _show_mesh)
        return
    _label(value, name)
    report_when_known(value, name, _show_panel)


@silent_at_exit
def simple_array_info(value: Any, name: str | None = None) -> None:
    """Print the panel of ``sharding_info``, which in its first days did not work everywhere."""
    sharding_info(value, name)


def tap_sharding(value: _T, name: str | None = None) -> _T:
    """Print the panel of ``sharding_info`` and return the value, which goes on being used.

    ``x = tap_sharding(x, "x")`` inside jit: once compiled, a call of the function costs what it costs
    without. Gradients pass through it. Where the result is not used, JAX drops it from the program, and
    nothing is printed. It has no effect in JAX's sense, so that a transformation which refuses effects
    admits it. On several devices the persistent compilation cache is missed, as with ``sharding_info``. A box
    such as flax's ``nnx.Param`` is returned as it is; what it holds is looked at as ``sharding_info`` does.

    Args:
        value: What to look at.
        name: Title of the panel; printed as written.
    """
    content = content_of(value)
    _label(content, name)
    if content is not value:
        # A box stays the object that it is; its content is looked at.
        report_when_known(content, name, _show_panel)
        return value
    result: _T = tap_when_known(value, name, _show_panel)
    return result


def _label(value: Any, name: str | None) -> None:
    if name is not None and values.is_array(value):
        label_array(value, plain_text(name))


def _show_panel(report: ArrayReport) -> None:
    show_rendered(array_panel(report), parts=lambda: _parts(report))


def _parts(report: Report) -> Sequence[Part]:
    """Return what a notebook shows of a report; what draws is imported for that alone."""
    from ..export.document import parts_of

    return parts_of([report])


@silent_at_exit
def sharding_vis(
    array: Any,
    *,
    use_color: bool | None = None,
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
        use_color: Fill the cells with colours where the terminal has colours, as None does; False does not.
            Pipes, files and what a notebook keeps as text are plain. A colour says where a device stands in
            the mesh: the hue along its largest axis, the lightness along the next.
        scale: Factor for the height and width of the cells.
        min_width: Least width of a cell in characters.
        max_width: Width of the picture in characters, where the terminal is that wide.
        color_map: From 0…1 to red, green, blue in 0…1: a matplotlib colormap, or any function.

    Raises:
        UnsupportedValueError: (a ValueError) the value has no sharding to draw.
        TypeError: ``scale`` or ``max_width`` is no number.
        ValueError: ``scale`` or ``max_width`` leave no room for a picture; ``color_map`` returns no colours.
    """
    check_size(scale, max_width)
    if not isinstance(array, (ShardingLayout, ArrayReport)):
        array = content_of(array)

    def show(report: ArrayReport | ShardingLayout) -> None:
        if isinstance(report, ArrayReport) and report.layout is None:
            show_rendered(undrawn_line(report), most=max_width)
            return
        show_rendered(
            ForConsole(
                lambda console, options: folding(
                    array_picture(
                        report,
                        use_color=use_color is not False and shows_colors(console),
                        scale=scale,
                        min_width=min_width,
                        max_width=min(max_width, max(options.max_width, LEAST_WIDTH)),
                        color_map=color_map,
                        encoding=options.encoding,
                    )
                )
            ),
            most=max_width,
            parts=lambda: _drawings(report, scale, color_map),
        )

    if values.is_tracer(array):
        report_when_known(array, None, show)
    else:
        # While JAX traces, a function of the user's might add to the program.
        check_color_map(color_map)
        deliver(_drawable(array), show)


def _drawings(report: Report, scale: float, color_map: ColorMap | None) -> Sequence[Part]:
    """Return what a notebook shows of a layout; what draws is imported for that alone."""
    from ..pictures.svg import layout_figures

    return [figure for figure in layout_figures([report], scale=scale, color_map=color_map) if figure]


def _drawable(array: Any) -> ArrayReport | ShardingLayout:
    """Return the layout or the report to draw; raise for what cannot be drawn.

    The report of a traced value may lack a layout: the picture is a line that says why.
    """
    if isinstance(array, ShardingLayout):
        return array
    report = array if isinstance(array, ArrayReport) else array_report(array)
    if report.layout is not None or report.kind == "tracer":
        return report
    if report.kind == "abstract":
        raise UnsupportedValueError(
            "this ShapeDtypeStruct has no sharding to draw: give it one with sharding="
        )
    if report.sharding is not None:
        raise UnsupportedValueError(f"the shards of this {report.sharding.type} are no regular grid")
    raise UnsupportedValueError(f"is not a jax array, got {type(array)}")


@silent_at_exit
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
    deliver(report, _show_mesh)


def _show_mesh(report: MeshReport) -> None:
    show_rendered(
        ForConsole(
            lambda console, options: folding(
                mesh_picture(
                    report,
                    use_color=shows_colors(console),
                    max_width=max(options.max_width, LEAST_WIDTH),
                    encoding=options.encoding,
                )
            )
        ),
        parts=lambda: _parts(report),
    )
