"""Functions that print one value: panels, pictures of shards and pictures of meshes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from jax_array_info_core import ShardingLayout, array_report
from jax_array_info_core.arrays.boxes import content_of
from jax_array_info_core.arrays.delivery import deliver
from jax_array_info_core.base.notebooks import Displayed
from jax_array_info_core.base.text import plain_text
from jax_array_info_core.compat import values
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.reports import ArrayReport
from jax_array_info_core.trees.leaves import is_tree

from ..style import ForConsole, folding, shows_colors, written
from .show import print_report, show_rendered, show_table, verb

if TYPE_CHECKING:
    from jax_array_info_core.compat.stages import ProgramForm
    from jax_array_info_core.reports import Report, TreeReport

    from ..export.document import Part
    from ..pictures.palette import ColorMap

_T = TypeVar("_T")


@verb
def sharding_info(value: Any, name: str | None = None) -> None:
    """Print a panel with a value's shape, dtype, bytes and sharding.

    The value can be an array (including a deleted array, a PRNG key or a Ref), a traced value, a
    ShapeDtypeStruct, a NumPy array, a scalar, None or a container. Wrappers such as Flax's ``nnx.Param``
    are replaced by their content. For a tree of arrays (a dict, list, tuple, dataclass or other pytree with
    an array in it), one table is printed, with a row for each leaf, as with ``print_tree``. A mesh is drawn
    as a picture, as with ``print_mesh``, and a report is printed as with ``print_report``. Of a Compiled, the
    page of ``print_program`` is printed, without reasons; of a jitted function, a Traced and a Lowered, one
    line: ``print_program`` shows the program that is compiled for its arguments.

    ``size`` is the global size, which counts each element once; inside ``shard_map`` and ``pmap``, it is the
    size of one shard. ``per device`` is the size of the largest shard. It is printed if the array is planned
    or if its shards have replicas. On 8 CPU devices:

    >>> import jax, jax.numpy as jnp, numpy as np
    >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    >>> from jax_array_info import sharding_info
    >>> mesh = Mesh(np.reshape(jax.devices(), (4, 2)), ("data", "model"))
    >>> batch = jax.device_put(jnp.zeros((8, 128)), NamedSharding(mesh, P("data")))
    >>> sharding_info(batch, "batch")
    ╭───────────────────────── batch ─────────────────────────╮
    │ shape: (8, 128)                                         │
    │ dtype: float32                                          │
    │ size: 4.0 KiB                                           │
    │ per device: 1.0 KiB, replicated over model (2 replicas) │
    │ NamedSharding: P('data',)                               │
    │ axis 0 is sharded: CPU 0 contains 0:2 (1/4)             │
    │                    Total size: 8                        │
    ╰─────────────────────────────────────────────────────────╯

    Inside ``jax.jit``, the source of the sharding determines when the panel is printed:

    - With Explicit mesh axes or inside ``shard_map``, the program itself fixes the sharding, and the panel is
      printed while JAX traces.
    - Otherwise XLA chooses the sharding, and the panel is printed when the function is compiled. Each
      recompilation, for example for other shapes or shardings, prints another panel. If the program calls the
      inspected function more than once and XLA chooses different shardings for the calls, a panel is printed
      for each sharding.
    - Equal panels of one call in the code, as in layers that are not scanned, are printed once, with their
      number in the title: ``hidden ×4, each``. ``collect_reports`` gets every report. With JAX 0.4, where
      compilations that fail are not recorded, each panel is printed.
    - Nothing is printed when JAX reuses a cached trace of a compiled function, or when a function is lowered
      but not compiled.
    - Under ``jax.eval_shape``, ``jax.make_jaxpr`` and ``jax.export``, nothing is compiled. The panel is
      printed while JAX traces, with the line ``sharding unknown: not compiled``.
    - The table of a tree is printed as soon as the shardings of all leaves are known. Leaves that are not
      in the compiled program are listed with the reason.
    - JAX 0.5 and earlier versions drop the call from the body of a ``scan`` under ``grad``. Use
      ``tap_sharding`` there.

    The call does not change the code that XLA generates, and calls to the compiled function are no slower,
    apart from these exceptions:

    - If XLA chooses the sharding and there are several devices, the function always misses the persistent
      compilation cache. The call is part of the lowered program, and so of the cache key.
    - The call counts as a use of the value. If nothing else in the program uses a donated argument, JAX
      normally drops the argument, and your array stays alive. With the call, JAX can donate it, and your
      array is deleted; a later donated argument can then stay alive instead. ``tap_sharding`` does not affect
      donation.
    - If a JAX release lacks the internals used here, the call falls back to
      ``jax.debug.inspect_array_sharding``. Calls to the compiled function are then slower, and some programs
      do not compile.

    To read the shardings of arguments and results only, use ``input_shardings`` and ``output_shardings`` of
    ``f.lower(x).compile()`` instead.

    Args:
        value: The value to inspect.
        name: Title of the panel or the table, printed as written. It also becomes the array's label in
            ``print_array_stats``, unless ``config.assign_labels_to_arrays`` is False. The leaves of a tree
            get no labels.
    """
    if isinstance(value, Displayed):
        print_report(cast("Report", value))
        return
    value = content_of(value)
    if values.is_mesh(value) and not value.empty:
        print_mesh(value)
        return
    if is_tree(value):
        from jax_array_info_core.trees.tree_report import report_tree_when_known  # only trees need it

        report_tree_when_known(value, name, _show_tree)
        return
    form = None if values.is_array_type(value) else _program_form(value)
    if form == "compiled":
        from .programs import print_program  # only programs need it

        print_program(value)
        return
    _label(value, name)
    _report_when_known(value, name, _show_panel if form is None else partial(_show_uncompiled, form))


@verb
def simple_array_info(value: Any, name: str | None = None) -> None:
    """Print the same panel as ``sharding_info``.

    The two functions are equivalent. This one is kept for compatibility with the original package.

    >>> from jax_array_info import simple_array_info
    >>> simple_array_info({"step": 7, "rate": 0.1}, "state")
    ╭───── state ─────╮
    │ type: dict      │
    │ len: 2          │
    │ ['rate']: float │
    │ ['step']: int   │
    ╰─────────────────╯

    Args:
        value: The value to inspect.
        name: Title of the panel and label of the array, as in ``sharding_info``.
    """
    sharding_info(value, name)


def tap_sharding(value: _T, name: str | None = None) -> _T:
    """Print the panel or the table of ``sharding_info`` and return the value unchanged.

    Use it in the middle of an expression inside ``jax.jit``. On 8 CPU devices:

    >>> import jax, jax.numpy as jnp, numpy as np
    >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    >>> from jax_array_info import tap_sharding
    >>> mesh = Mesh(np.reshape(jax.devices(), 8), ("data",))
    >>> batch = jax.device_put(jnp.zeros((8, 128)), NamedSharding(mesh, P("data")))
    >>> @jax.jit
    ... def loss(x):
    ...     return tap_sharding(x * 2, "doubled").sum()
    >>> result = loss(batch)
    ╭────────────────── doubled ──────────────────╮
    │ shape: (8, 128)                             │
    │ dtype: float32                              │
    │ size: 4.0 KiB                               │
    │ per device: 512.0 B                         │
    │ called in jit                               │
    │ NamedSharding: P('data',)                   │
    │ known from: the compiler                    │
    │ axis 0 is sharded: CPU 0 contains 0:1 (1/8) │
    │                    Total size: 8            │
    ╰─────────────────────────────────────────────╯

    Gradients pass through. If the result is not used, JAX drops the call from the program, and nothing is
    printed. Unlike ``sharding_info``, the call is not a JAX effect, so it also works inside transformations
    that reject effects. It costs the same as ``sharding_info``, but does not affect donation.

    For a tree of arrays, a tree of the same structure is returned. JAX drops each leaf of it that is not
    used: the table then lists this leaf as unknown. Modules, optimizers and variables of Flax NNX stay the
    same objects, so that their updates are not lost; their arrays are inspected as with ``sharding_info``.

    Args:
        value: The value to inspect. A wrapper around one array, such as Flax's ``nnx.Param``, is returned
            unchanged, and the panel describes its content, as with ``sharding_info``.
        name: Title of the panel and label of the array, as in ``sharding_info``.

    Returns:
        The value. In a traced function, use this result instead of the argument.
    """
    content = content_of(value)
    if is_tree(content):
        from jax_array_info_core.trees.tree_report import tap_tree_when_known  # only trees need it

        tree: _T = tap_tree_when_known(value, name, _show_tree)
        return tree
    _label(content, name)
    if content is not value:
        # The caller gets the same box back, so the call cannot be part of its content.
        _report_when_known(content, name, _show_panel)
        return value
    if not values.is_tracer(value):
        deliver(array_report(value, name), _show_panel)
        return value
    from jax_array_info_core.arrays.traced.traced_report import tap_when_known

    tapped: _T = tap_when_known(value, name, _show_panel)
    return tapped


def _program_form(value: Any) -> ProgramForm | None:
    from jax_array_info_core.compat.stages import program_form

    return program_form(value)


def _report_when_known(value: Any, name: str | None, show: Callable[..., None]) -> None:
    if not values.is_tracer(value):
        deliver(array_report(value, name), show)
        return
    from jax_array_info_core.arrays.traced.traced_report import (
        report_when_known,  # only traced values need it
    )

    report_when_known(value, name, show)


def _label(value: Any, name: str | None) -> None:
    if name is not None and values.is_array(value):
        from jax_array_info_core import label_array  # only named arrays need it

        label_array(value, plain_text(name))


def _show_panel(report: ArrayReport, count: int = 1) -> None:
    show_table(report, count=count)


def _show_uncompiled(form: ProgramForm, report: ArrayReport, _: int = 1) -> None:
    what = "jitted function" if form == "jitted" else form.title()
    name = "" if report.name is None else f"{report.name}: "
    show_rendered(written(f"{name}{what}: print_program(f, *args) shows what XLA makes of it"))


def _show_tree(report: TreeReport) -> None:
    show_table(report)


@verb
def sharding_vis(
    array: Any,
    *,
    use_color: bool | None = None,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: ColorMap | None = None,
) -> None:
    """Print a picture of an array's shards and the devices that hold them.

    Axis 0 of the array runs downwards and axis 1 to the right. A cell lists all devices that hold a replica
    of its shard. If the array has more than two axes, a line above the picture names the two axes drawn;
    sharded axes come first. With more than two sharded axes, there is one grid for each position along the
    leading sharded axes. On 8 CPU devices:

    >>> import jax, jax.numpy as jnp, numpy as np
    >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    >>> from jax_array_info import sharding_vis
    >>> mesh = Mesh(np.reshape(jax.devices(), (4, 2)), ("data", "model"))
    >>> weights = jax.device_put(jnp.zeros((12, 12)), NamedSharding(mesh, P("data")))
    >>> sharding_vis(weights)
               0:12
    ┌───────────────────────┐
    │        CPU 0,1        │ 0:3
    ├───────────────────────┤
    │        CPU 2,3        │ 3:6
    ├───────────────────────┤
    │        CPU 4,5        │ 6:9
    ├───────────────────────┤
    │        CPU 6,7        │ 9:12
    └───────────────────────┘

    If the sharding of a traced value is unknown, one line with the reason is printed instead.

    Args:
        array: A JAX array, a traced value, a ShapeDtypeStruct with a sharding, a ShardingLayout, or the
            report of one of these.
        use_color: False prints the picture without colors. None and True are equivalent: they fill the cells
            with colors if the output is a terminal that supports them. A color shows the position of a
            device in the mesh: the hue along its largest axis, the lightness along the second largest.
        scale: Factor for the height and width of the cells.
        min_width: Minimum width of a cell, in characters.
        max_width: Maximum width of the picture, in characters. A narrower terminal limits it further.
        color_map: Function from a number between 0 and 1 to ``(red, green, blue)``, each between 0 and 1,
            such as a Matplotlib colormap.

    Raises:
        UnsupportedValueError: (a ValueError) If the value has no sharding to draw.
        TypeError: If ``scale`` or ``max_width`` is not a number, or ``color_map`` is not callable.
        ValueError: If ``scale`` or ``max_width`` leaves no room for a picture, or ``color_map`` does not
            return colors.
    """
    from jax_array_info_core.facts.pages.words import undrawn_words

    from ..pictures.palette import check_color_map
    from ..pictures.text import array_picture, check_size
    from ..style import LEAST_WIDTH

    check_size(scale, max_width)
    if not isinstance(array, (ShardingLayout, ArrayReport)):
        array = content_of(array)

    def show(report: ArrayReport | ShardingLayout, _: int = 1) -> None:
        if isinstance(report, ArrayReport) and report.layout is None:
            show_rendered(written(undrawn_words(report)), most=max_width)
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
                        has_ranges=True,
                    )
                )
            ),
            most=max_width,
            parts=lambda: _drawings(report, scale, color_map),
        )

    if values.is_tracer(array):
        _report_when_known(array, None, show)
    else:
        # Not while JAX traces: the color map is a user's function and might add operations to the program.
        check_color_map(color_map)
        deliver(_drawable(array), show)


def _drawings(report: Report, scale: float, color_map: ColorMap | None) -> Sequence[Part]:
    """Return the drawings of a layout for a notebook. The drawing code is imported only there."""
    from ..pictures.svg import layout_figures

    return [figure for figure in layout_figures([report], scale=scale, color_map=color_map) if figure]


def _drawable(array: Any) -> ArrayReport | ShardingLayout:
    """Return the layout or the report to draw.

    The report of a traced value may lack a layout. A line with the reason then replaces the picture.

    Raises:
        UnsupportedValueError: If the value has no sharding to draw.
    """
    if isinstance(array, ShardingLayout):
        return array
    report = array if isinstance(array, ArrayReport) else array_report(array)
    if report.layout is not None or report.kind == "tracer":
        return report
    if report.kind == "abstract":
        raise UnsupportedValueError("this ShapeDtypeStruct has no sharding to draw: set one with sharding=")
    if report.sharding is not None:
        raise UnsupportedValueError(f"the shards of this {report.sharding.type} do not form a regular grid")
    hint = ": use print_tree for a tree of arrays" if report.kind == "container" else ""
    raise UnsupportedValueError(f"is not a jax array, got {type(array)}{hint}")


@verb
def print_mesh(mesh: Any) -> None:
    """Print a mesh as a grid of device ids, with the names of its axes.

    With several processes, each cell also shows the index of the device's process.

    >>> from jax_array_info import print_mesh
    >>> print_mesh({"data": 4, "model": 2})
    mesh data=4, model=2
    ─────────────────────────── data down, model across ────────────────────────────
    ┌────────┬────────┐
    │device 0│device 1│
    ├────────┼────────┤
    │device 2│device 3│
    ├────────┼────────┤
    │device 4│device 5│
    ├────────┼────────┤
    │device 6│device 7│
    └────────┴────────┘

    Args:
        mesh: A ``jax.sharding.Mesh``, an AbstractMesh, or a mapping from axis names to sizes, such as
            ``{"data": 8, "fsdp": 32}``, which needs no devices; or a ``MeshReport``.

    Raises:
        UnsupportedValueError: (a ValueError) If ``mesh`` is not one of these.
        SpecError: (a ValueError) If the size of an axis in the mapping is less than 1.
    """
    from jax_array_info_core import mesh_report
    from jax_array_info_core.reports import MeshReport

    print_report(mesh if isinstance(mesh, MeshReport) else mesh_report(mesh))
