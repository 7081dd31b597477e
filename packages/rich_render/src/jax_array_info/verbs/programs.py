"""Functions that print compiled programs, their differences and their propagation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jax_array_info_core import (
    CompileWatch,
    compile_caches_report,
    log_report,
    program_diff_report,
    program_report,
    propagation_report,
)
from jax_array_info_core.base.errors import require_report
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.facts.pages.folds import MaxRows
from jax_array_info_core.facts.reports.findings import MIN_NBYTES
from jax_array_info_core.reports import (
    CompilationsReport,
    CompileCachesReport,
    LogReport,
    ProgramDiff,
    ProgramReport,
    PropagationReport,
)

from .explain import explain_errors
from .show import print_table, refuse_with, report_of, report_on_two, verb


@verb
def print_program(
    f: Any,
    /,
    *args: Any,
    topology: str | None = None,
    dcn: Mapping[str, int] | None = None,
    explain: bool = True,
    bandwidths: Mapping[str, int | str] | None = None,
    ignore_codes: str | Iterable[str] = (),
    min_nbytes: int | str = MIN_NBYTES,
    timeline: bool = False,
    steady: bool = False,
    hbm_nbytes: int | str | None = None,
    max_rows: MaxRows = "fit",
    **kwargs: Any,
) -> None:
    """Print what XLA made of a function: findings, the bytes that it sends, and its memory.

    On 8 CPU devices:

    >>> import jax, jax.numpy as jnp, numpy as np
    >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    >>> from jax_array_info import print_program
    >>> mesh = Mesh(np.reshape(jax.devices(), (4, 2)), ("data", "model"))
    >>> def abstract(shape, *spec):
    ...     return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))
    >>> def mlp(x, wi, wo):
    ...     return jax.nn.relu(x @ wi) @ wo
    >>> x = abstract((256, 512), "data")
    >>> wi, wo = abstract((512, 1024), None, "model"), abstract((1024, 512), "model")
    >>> print_program(jax.jit(mlp, out_shardings=x.sharding), x, wi, wo)
    no findings; most: 128.0 KiB sent at train.py:8 (100%)
    mlp (train.py:7), 8 CPU devices: data=4, model=2
    memory per device: about 2.4 MiB = arguments 2.1 MiB + outputs 128.0 KiB +
      temporaries 128.0 KiB (the CPU backend reports no peak)
    sent per device and call: 128.0 KiB in 1 collective
    work: divided evenly over 8 devices
    lines by cost: bytes sent, and live at once (256.0 KiB in total, estimated)
      128.0 KiB  train.py:8 mlp, 256.0 KiB live
                   all-reduce over model because 'k' is summed in ik,kj->ij
    matmul and convolution FLOPs: 67,108,864 per device and call
    as requested: 3 arguments and 1 output
    accepted: 128.0 KiB per device not donated, below the limit of 1.0 MiB
    On TPU or GPU, traffic and temporaries may differ: "What a CPU compile tells".
    TPU may send float32 operands of matrix products as bfloat16, half the bytes.
    3 rows are left out: max_rows=None shows all

    The function is compiled, as in ``program_report``; it does not run. Bytes are those of one device.

    - The first line is the answer: the bytes over each link, if some leave a host or a slice; whether the
      program fits, if a topology is given; the findings, the costliest first; and the line that costs more.
    - ``sent per device and call`` is their sum. A loop of unknown length has a figure ``per iteration``.
      ``+ ?`` marks sums without collectives on one side of a conditional and those whose bytes depend on
      data; ``at most`` is then their bound.
    - ``work`` is the part of the heavy work, such as matrix products, that a device does.
    - ``lines by cost`` are the lines of your source that send the most bytes, with the reason of most of
      them; that compute what is live at the highest point of the schedule; and that repeat work.
    - ``max_rows=None`` also shows the sums by kind of collective and mesh axes, all collectives, and the
      largest temporary values; a notebook, the lines of the user's source that move or keep bytes.
    - ``saved for the backward pass by JAX`` are the bytes that the lines of the forward pass save for it
      before XLA compiles the program: the same on each platform. ``live when the backward pass begins`` are
      those of the compiled program.
    - ``because`` is the operation that needs the collective, as an einsum, on JAX 0.10.1 and later.

    Args:
        f: A function, jitted or not, a Lowered or a Compiled; or a ``ProgramReport``, without other
            arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        topology: Topology to compile for, such as ``"v5p:2x2x2"``, ``"v5p-128"`` or ``"2*v5p:2x2x2"``, which
            has two slices. None for the devices of the arguments, which can be those of a
            ``topology_mesh``.
        dcn: Number of slices along each mesh axis that spans slices, such as ``{"data": 2}``.
        explain: Whether to print the operation that each collective is needed for, on JAX 0.10.1 and later,
            unless Shardy is off.
        bandwidths: Bytes per second and device, in each direction, of the links between devices, such as
            ``{"dcn": "6.25GB/s", "ici": "90GB/s"}``, for a lower bound of the time of what is sent.
        ignore_codes: Codes of findings to leave out, such as ``"JAI207"``.
        min_nbytes: Bytes per device, or a size such as ``"1MiB"``, below which bytes that are held or
            repeated without need are no finding. 0 accepts none.
        timeline: Whether to show the live bytes along the schedule too, as ``print_program_timeline`` does.
        steady: Whether to compile for the next calls, too, and to print what they send, if arguments return
            with other shardings.
        hbm_nbytes: Memory of a device in bytes, a size such as ``"16GiB"``, or a chip such as ``"v5p"``, to
            compare the program with. None for that of the topology, if there is one.
        max_rows: Maximum number of rows of each table. One more row sums the others. None shows all.
        **kwargs: Keyword arguments of the function.

    Raises:
        TopologyError: If the topology is unknown or its compiler is not installed.
        TypeError: If arguments are given with a ``ProgramReport``.
        ValueError: If ``max_rows`` is negative.
    """
    options: dict[str, Any] = {
        "topology": topology,
        "dcn": dcn,
        "explain": explain,
        "bandwidths": bandwidths,
        "ignore_codes": ignore_codes,
        "min_nbytes": min_nbytes,
        "timeline": timeline,
        "steady": steady,
        "hbm_nbytes": hbm_nbytes,
    }
    if isinstance(f, ProgramReport):
        defaults = inspect.signature(program_report).parameters
        are_given = ((option or None) != (defaults[name].default or None) for name, option in options.items())
        if args or kwargs or any(are_given):
            refuse_with(ProgramReport, ["the other arguments"])
        report = f
    else:
        with explain_errors():
            report = program_report(f, *args, **options, **kwargs)
    print_table(report, max_rows=max_rows)


@verb
def print_program_diff(
    before: ProgramReport | ProgramDiff, after: ProgramReport | None = None, *, max_rows: MaxRows = "fit"
) -> None:
    """Print what differs between two programs: bytes sent, memory, flops, shardings, donations, temporaries.

    On 8 CPU devices, with and without the sharding of an output:

    >>> import jax, jax.numpy as jnp, numpy as np
    >>> from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    >>> from jax_array_info import print_program_diff, program_report
    >>> mesh = Mesh(np.reshape(jax.devices(), (4, 2)), ("data", "model"))
    >>> rows, replicated = (NamedSharding(mesh, spec) for spec in (P("data"), P()))
    >>> x = jax.ShapeDtypeStruct((256, 512), jnp.float32, sharding=rows)
    >>> def double(x):
    ...     return 2 * x
    >>> before, after = (jax.jit(double, out_shardings=out) for out in (rows, replicated))
    >>> print_program_diff(program_report(before, x), program_report(after, x))
    sends 384.0 KiB more per device and call; needs 512.0 KiB more memory per
      device; 1 sharding differs
    double
    sent per device and call: 0.0 B before, 384.0 KiB after (384.0 KiB more)
                    sent per device and call
    ┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━┳━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━┓
    ┃ collective          ┃ over ┃ before ┃     after ┃ difference ┃
    ┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━╇━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━┩
    │ all-gather          │ data │  0.0 B │ 384.0 KiB │ +384.0 KiB │
    │   train.py:8 double │      │  0.0 B │ 384.0 KiB │ +384.0 KiB │
    └─────────────────────┴──────┴────────┴───────────┴────────────┘
                memory and flops per device
    ┏━━━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━┓
    ┃ figure      ┃    before ┃     after ┃ difference ┃
    ┡━━━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━┩
    │ outputs     │ 128.0 KiB │ 512.0 KiB │ +384.0 KiB │
    │ temporaries │     0.0 B │ 128.0 KiB │ +128.0 KiB │
    └─────────────┴───────────┴───────────┴────────────┘
         arguments and outputs
    ┏━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━┓
    ┃ path    ┃ before     ┃ after ┃
    ┡━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━┩
    │ outputs │ P('data',) │ P()   │
    └─────────┴────────────┴───────┘
                             temporaries at the peak
    ┏━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━┓
    ┃ array           ┃ line              ┃ before ┃     after ┃ difference ┃
    ┡━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━┩
    │ float32[64,512] │ train.py:8 double │  0.0 B │ 128.0 KiB │ +128.0 KiB │
    └─────────────────┴───────────────────┴────────┴───────────┴────────────┘

    Bytes are those of one device. Collectives are compared by kind and mesh axes, and line by line: a line
    that an edit moves is the same line. Arguments, outputs and donations are compared by path, and those that
    differ only in the indices of their paths share a row.

    Args:
        before: The report on a program, from ``program_report`` or ``from_json``; or a ``ProgramDiff``,
            alone.
        after: The report to compare it with.
        max_rows: Maximum number of rows of each table. One more row has the number of the others. None shows
            all.

    Raises:
        ValueError: If ``max_rows`` is negative.
    """
    print_table(report_on_two(before, after, ProgramDiff, program_diff_report), max_rows=max_rows)


@verb
def print_compilations(watch: CompileWatch | CompilationsReport, *, max_rows: MaxRows = "fit") -> None:
    """Print the compilations in a ``watch_compiles`` block, each with its reason.

    ``called at`` is the line of the call in your code, ``duration`` that of XLA's compilation. Compilations
    of one function at one line with one reason share a row, and ``times`` is their number. The reason is what
    differs from the nearest earlier call of the function that was compiled in the block.

    >>> import jax, jax.numpy as jnp
    >>> from jax_array_info import print_compilations, watch_compiles
    >>> @jax.jit
    ... def step(x):
    ...     return 2 * x
    >>> batches = [jnp.zeros(size) for size in (8, 8, 5)]
    >>> with watch_compiles(step) as watch:
    ...     outputs = [step(batch) for batch in batches]
    >>> print_compilations(watch)  # doctest: +ELLIPSIS +NORMALIZE_WHITESPACE
    1 recompilation of step; 2 compilations of 1 function took ... ms
                                  compilations
    ┏━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
    ┃ function ┃ called at  ┃ times ┃ duration ┃ reason                    ┃
    ┡━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
    │ step     │ train.py:8 │     1 │   ... ms │ first in the block        │
    │ step     │ train.py:8 │     1 │   ... ms │ x: shape (8,) became (5,) │
    ├──────────┼────────────┼───────┼──────────┼───────────────────────────┤
    │ total    │            │     2 │   ... ms │                           │
    └──────────┴────────────┴───────┴──────────┴───────────────────────────┘

    Args:
        watch: The watch, inside its block or after it, or its report.
        max_rows: Maximum number of rows of compilations. One more row has the rest. None shows all.

    Raises:
        UnsupportedValueError: (a ValueError) If ``watch`` is not a watch.
        ValueError: If ``max_rows`` is negative.
    """
    if not isinstance(watch, CompileWatch | CompilationsReport):
        raise UnsupportedValueError(f"expected a watch from watch_compiles(), got {type(watch)}")
    report = watch if isinstance(watch, CompilationsReport) else watch.report()
    print_table(report, max_rows=max_rows)


@verb
def print_log(
    source: Any,
    *,
    mesh: Any = None,
    ignore_codes: str | Iterable[str] = (),
    max_rows: MaxRows = "fit",
) -> None:
    """Print what ended a job, from its logs: the error, the rank that failed first, and the remedy.

    The first line has the root, also over the logs of several ranks. Its finding has the cause and the
    numbers of the line, such as the needed and the available bytes. Errors of other ranks that follow from it
    are one list, and ``ranks`` has the last step and the end of each rank. A fatal line that no known kind
    explains is printed as it is. Programs that do not fit a device have their largest buffers.

    Warnings are findings, too: values that XLA shards by full replication, donated buffers that no output can
    reuse, slow compilations, captured constants and a loss that is NaN.

    >>> from jax_array_info import print_log
    >>> line = (
    ...     "[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding"
    ...     " {devices=[2,1,4]<=[4,2]T(1,0)} to {devices=[1,8,1]<=[8]} efficiently for HLO operation"
    ...     " %copy.1 = f32[8,16,4]{2,1,0} copy(%sin.2)."
    ... )
    >>> print_log([line, line], mesh={"x": 4, "y": 2})

    Args:
        source: Path of the log or of a folder with a log per rank, an open file, an iterable of lines, or a
            ``LogReport``. Logs of any size are read in bounded memory.
        mesh: Mesh of the run, for specs: a Mesh, an AbstractMesh, or the size of each mesh axis by name. None
            prints shardings as XLA does.
        ignore_codes: Codes of findings to leave out, such as ``"JAI206"``.
        max_rows: Maximum number of entries of each kind. One more has the number of the others. None shows
            all,

    Raises:
        FileFormatError: (a ValueError) If the file is not text.
        OSError: If the file cannot be read.
        SpecError: (a ValueError) If the mesh has an invalid size.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh.
        ValueError: If ``max_rows`` is negative.
    """
    report = report_of(source, LogReport, log_report, mesh=mesh, ignore_codes=ignore_codes)
    print_table(report, max_rows=max_rows)


@verb
def print_compile_caches(
    report: CompileCachesReport | None = None,
    *,
    clear: str | Callable[..., Any] | Iterable[str | Callable[..., Any]] = (),
    max_rows: MaxRows = "fit",
) -> None:
    """Print the compile caches of the live jitted functions, those with the most entries first.

    ``line`` is the line of a function's definition. ``entries`` is the number of entries in its call cache,
    one per combination of argument shapes, dtypes, weak types, shardings and static arguments.
    ``executables`` is the number of its distinct executables in memory, or ``?`` in JAX 0.5 and earlier and
    for ``jax.pmap``. Equivalent partition specs that are written differently have separate entries but share
    one executable. JAX's own functions share one row. The last row counts the executables that belong to no
    live jitted function: those of functions that no longer exist, those of transformed functions such as
    ``grad(jitted)``, and those compiled ahead of time.

    >>> import jax, jax.numpy as jnp
    >>> from jax_array_info import print_compile_caches
    >>> @jax.jit
    ... def step(x):
    ...     return x + 1
    >>> small, large = step(jnp.zeros(3)), step(jnp.zeros(4))
    >>> print_compile_caches()
    1 jitted function, 2 cache entries; most: step, 2
                                   compile caches
    ┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━┓
    ┃ function                            ┃ line       ┃ entries ┃ executables ┃
    ┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━┩
    │ step                                │ train.py:3 │       2 │           2 │
    ├─────────────────────────────────────┼────────────┼─────────┼─────────────┤
    │ 349 functions of JAX itself         │            │       3 │           3 │
    │ executables without a live function │            │         │           0 │
    └─────────────────────────────────────┴────────────┴─────────┴─────────────┘

    It compiles nothing, runs nothing and keeps no function alive.

    Args:
        report: A report to print. None reports on this process.
        clear: Functions whose caches are cleared first: a jitted function, a name, or several of these.
        max_rows: Maximum number of functions. One more row sums the remaining functions. None shows all.

    Raises:
        FunctionNameError: (a LookupError) If no live function has that name. No cache is cleared.
        UnsupportedValueError: (a ValueError) If an entry of ``clear`` is neither a name nor a jitted
            function. No cache is cleared.
        ValueError: If ``report`` is not a CompileCachesReport, or ``max_rows`` is negative.
    """
    if report is not None:
        require_report(report, CompileCachesReport)
        refuse_with(CompileCachesReport, ["clear="] if clear else [])
    print_table(compile_caches_report(clear) if report is None else report, max_rows=max_rows)


@verb
def print_propagation(
    f: Any,
    /,
    *args: Any,
    line: str | None = None,
    ignore_codes: str | Iterable[str] = (),
    min_nbytes: int | str = MIN_NBYTES,
    max_rows: MaxRows = "fit",
    **kwargs: Any,
) -> None:
    """Print why each value of a program is sharded as it is: conflicts, lost mesh axes, and origins.

    For a sum whose operands shard different dimensions over ``data``, on 4,096 devices that need not exist:

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> from jax_array_info import print_propagation, sharded_structs
    >>> shapes = {"x": (4096, 8192), "y": (4096, 8192)}
    >>> structs = {name: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for name, shape in shapes.items()}
    >>> specs = {"x": P("data"), "y": P(None, "data")}
    >>> arrays = sharded_structs(structs, mesh={"data": 256, "model": 16}, specs=specs)
    >>> def add(x, y):
    ...     return x + y
    >>> print_propagation(add, **arrays)
    1 finding: JAI301 conflicting-shardings
    add, lowered for TPU, 4096 devices: data=256, model=16
    ── JAI301 conflicting-shardings: smallest operands, 256.0 KiB per device ───────
    1 operation has operands that exclude each other, so that data moves: one
    operand is gathered, or the result is summed over devices.
    Shard one operand over another mesh axis, or constrain it before the operation.
      256.0 KiB  data: add ij,ij->ij  train.py:9 add
        x 'i' over data (argument), P('data',)
        y 'j' over data (argument), P(None, 'data')
        result P('data',)
    XLA rearranges the program before it propagates: near a conflict, a loss or a
      call, it may choose another sharding. print_program shows those of the
      compiled program.
                                   values
    ┏━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┓
    ┃ per device ┃ value               ┃ line, op and origin ┃ function ┃
    ┡━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━┩
    │  256.0 KiB │ bfloat16[4096,8192] │ train.py:9 add      │ add      │
    │            │   P('data',)        │   data: argument x  │          │
    └────────────┴─────────────────────┴─────────────────────┴──────────┘

    The function is traced and lowered, not compiled. The mesh can be an AbstractMesh of any size, without
    devices.

    - A conflict shows the operation as an einsum, and the letter that each operand shards: here, ``x`` has
      ``data`` for ``i``, and ``y`` for ``j``. Weights that are gathered for a sharded batch are not listed.
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
        min_nbytes: Bytes per device, or a size such as ``"1MiB"``, below which replicated values are no
            finding. 0 accepts none.
        max_rows: Maximum number of entries of each kind. One more has the number of the others. None shows
            all.
        **kwargs: Keyword arguments of the function.

    Raises:
        TypeError: If arguments are given with a ``PropagationReport``.
        UnsupportedValueError: (a ValueError) Before JAX 0.10.1, or if Shardy is off; or if the program has no
            such line and no such path.
        ValueError: If ``max_rows`` is negative.
    """
    if isinstance(f, PropagationReport):
        if args or kwargs or ignore_codes or min_nbytes != MIN_NBYTES:
            refuse_with(PropagationReport, ["the other arguments"])
        report = f
    else:
        with explain_errors():
            report = propagation_report(f, *args, ignore_codes=ignore_codes, min_nbytes=min_nbytes, **kwargs)
    if line is not None:
        from jax_array_info_core.programs.propagation.propagation_report import at_line

        report = at_line(report, line)
    print_table(report, with_ways=line is not None, max_rows=max_rows)
