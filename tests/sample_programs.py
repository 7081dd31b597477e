"""Reports on programs, made by hand."""

from jax_array_info.reports import (
    AxisOrigin,
    BackwardLine,
    Because,
    Collective,
    ConflictOperand,
    Constraint,
    Donation,
    DonationChange,
    FigureChange,
    LargeBuffer,
    LiveAtBackward,
    Origin,
    OutOfMemory,
    ProgramDiff,
    ProgramMemory,
    ProgramReport,
    ProgramSeries,
    ProgramTimelineReport,
    ProgramValue,
    Rematerialization,
    SavedForBackward,
    SentChange,
    ShardingChange,
    ShardingDescription,
    Temporary,
    UncountedFlops,
)
from jax_array_info_core.programs.collectives import totals_of
from tests.sample_propagations import MESH, WHY, line, spec

NAMES = ("wi", "wo")


def named(*parts, mesh=MESH):
    """Return a NamedSharding on a mesh."""
    return ShardingDescription(type="NamedSharding", spec=spec(*parts), mesh=mesh)


def program(*collectives, **fields):
    """Return the report on a program on 8 CPU devices with these collectives."""
    given = {
        "name": "step",
        "origin": line(14, "step"),
        "mesh": MESH,
        "device_count": 8,
        "platform": "cpu",
        "memory": ProgramMemory(argument_nbytes=0, output_nbytes=0, alias_nbytes=0, temporary_nbytes=0),
        "dot_flops": 0,
        **fields,
    }
    return ProgramReport(collectives=collectives, sent=totals_of(collectives), **given)


def leaf(path, *parts, shape=(256, 1024), asked=True, nbytes=262144, mesh=MESH, **fields):
    """Return an argument or an output that has the sharding that was asked."""
    sharding = named(*parts, mesh=mesh)
    return ProgramValue(
        path=path,
        shape=shape,
        dtype="float32",
        nbytes=nbytes,
        asked=sharding if asked else None,
        got=sharding,
        **fields,
    )


def gather(path, at, nbytes=131072, **fields):
    return Collective(
        kind="all-gather",
        axes=("fsdp",),
        group_size=2,
        dtype="float32",
        shape=(256, 512),
        sent_nbytes=nbytes,
        origin=line(at),
        path=path,
        **fields,
    )


def because(kind, rule, *operands, axes=("fsdp",), op="dot_general"):
    """Return what needs a collective; each operand is a letter, and the argument that it has the axis from."""
    return Because(
        kind=kind,
        mesh_axes=axes,
        rule=rule,
        op=op,
        operands=tuple(
            ConflictOperand(
                name=path,
                spec=spec(*axes),
                letter=letter,
                axis_origin=AxisOrigin(mesh_axis=axes[0], kind="argument", path=path),
            )
            for letter, path in operands
        ),
    )


def reduction(axes, at, nbytes, phase, **fields):
    return Collective(
        kind="all-reduce",
        axes=axes,
        group_size=2 ** len(axes),
        dtype="float32",
        shape=(16, 64, 256),
        sent_nbytes=nbytes,
        origin=line(at),
        phase=phase,
        **fields,
    )


STEP = program(
    gather("params/wi", 9, 262144, count=2),
    gather("params/wo", 10, 262144),
    reduction(("fsdp",), 9, 524288, "backward", count=2),
    reduction(("tensor",), 10, 524288, "forward"),
    reduction(("data",), 9, 524288, "backward"),
    arguments=(
        leaf("params/wi", "fsdp", "tensor"),
        leaf("params/wo", "tensor", "fsdp", shape=(1024, 256)),
        leaf("x", ("data", "fsdp"), shape=(32, 64, 256), nbytes=524288),
    ),
    outputs=(
        leaf("outputs/wi", None, "tensor", asked=False, nbytes=524288, like="params/wi", lost_axes=("fsdp",)),
        leaf("outputs/wo", "tensor", "fsdp", shape=(1024, 256), asked=False),
    ),
    memory=ProgramMemory(
        argument_nbytes=1048576,
        output_nbytes=786432,
        alias_nbytes=0,
        temporary_nbytes=4849664,
        code_nbytes=21504,
        temporaries=(
            Temporary(shape=(8, 64, 512), dtype="float32", nbytes=1048576, count=3, origin=line(9)),
            Temporary(shape=(256, 512), dtype="float32", nbytes=524288, origin=line(10)),
        ),
        live_nbytes=3670016,
    ),
    dot_flops=1610612736,
    caveats=(
        "On CPU, temporaries differ from those of an accelerator, and no reduce-scatter is formed.",
        "On CPU, bfloat16 collectives are float32.",
    ),
)
"""A step on data=2, fsdp=2, tensor=2 whose first gradient loses ``fsdp``."""

SCAN = program(
    gather("params/wi", 9, 8388608, times=4, phase="backward", count=2, is_async=True),
    gather("params/layers/0/attention/query/kernel", 121, 8388608, times=None, at_most=4),
    gather(None, 122, 4194304, times=None, count=2),
    reduction(("data", "fsdp"), 9, 524288, "backward", count=2),
    Collective(
        kind="collective-permute",
        axes=None,
        group_size=4,
        dtype="bfloat16",
        shape=(8,),
        sent_nbytes=16,
    ),
    Collective(
        kind="all-to-all", axes=("tensor:(2)4",), group_size=4, dtype="bfloat16", shape=(8,), sent_nbytes=12
    ),
    name="train_step",
    topology="v5e:2x4",
    platform="tpu",
    arguments=(
        *(leaf(f"state/layers/{number}/{name}", "fsdp", "tensor") for number in range(12) for name in NAMES),
        leaf("state/step", shape=(), nbytes=4),
        ProgramValue(
            path="batch/mask", shape=(32, 64), dtype="bool", nbytes=0, asked=named("data"), is_pruned=True
        ),
    ),
    outputs=(
        *(
            leaf(
                f"outputs/0/layers/{number}/{name}",
                None,
                "tensor",
                asked=False,
                like=f"state/layers/{number}/{name}",
                lost_axes=("fsdp",),
                reason=f"state/layers/{number}/{name} is P('fsdp', 'tensor')",
            )
            for number in range(12)
            for name in NAMES
        ),
        leaf("outputs/1", asked=False, shape=(), nbytes=4),
    ),
    constraints=(
        Constraint(
            shape=(17, 16),
            dtype="float32",
            asked=named("data"),
            got=named("data"),
            reason="inside the program, XLA pads axis 0 to 24: axis 0 of shape (17, 16) is not divisible by mesh axis 'data' of size 8: 17 % 8 = 1. "
            "Pad it to 24, or leave it unsharded.",
            origin=line(33, "block"),
            count=12,
        ),
        Constraint(
            shape=(32, 16), dtype="float32", asked=named("data"), got=named("data"), origin=line(34, "block")
        ),
    ),
    donations=(
        *(
            Donation(
                path=f"state/layers/{number}/wi",
                nbytes=2097152,
                reason="dtype: no output has dtype float32 and shape (256, 1024)",
            )
            for number in range(12)
        ),
        Donation(path="state/step", nbytes=4, reason="unused"),
        *(
            Donation(path=f"state/layers/{number}/wo", nbytes=2097152, output=f"outputs/0/layers/{number}/wo")
            for number in range(12)
        ),
    ),
    rematerializations=(
        Rematerialization(
            before=spec("data", None, "tensor"),
            after=spec(None, ("data", "tensor")),
            axes=("data", "tensor"),
            shape=(8, 16, 4),
            whole_shape=(16, 16, 16),
            dtype="float32",
            op="jit(train_step)/sharding_constraint",
            nbytes=16384,
            sent_nbytes=14336,
            origin=line(40, "block"),
            count=2,
        ),
        Rematerialization(
            before=None,
            after=None,
            before_text="{devices=[1,64,4]<=[256] last_tile_dim_replicate}",
            after_text="{replicated}",
            shape=(64, 8192, 3000),
            dtype="bfloat16",
            op="%copy.3",
            nbytes=None,
        ),
    ),
    memory=ProgramMemory(
        argument_nbytes=8 * 2**30,
        output_nbytes=8 * 2**30,
        alias_nbytes=4 * 2**30,
        temporary_nbytes=5 * 2**30,
        code_nbytes=2**20,
        peak_nbytes=13 * 2**30,
        required_nbytes=13 * 2**30,
        available_nbytes=round(15.75 * 2**30),
        temporaries=tuple(
            Temporary(
                shape=(4, 8, 256, 2048 // (number + 1)),
                dtype="bfloat16",
                nbytes=2**30 // (number + 1),
                count=1 + number % 2,
                origin=line(20 + number, "block") if number % 3 else None,
                is_kept=number % 2 == 0,
            )
            for number in range(7)
        ),
        live_nbytes=4 * 2**30,
        saved=SavedForBackward(
            nbytes=sum(2**30 // (number + 1) for number in range(6)),
            global_nbytes=sum(2**33 // (number + 1) for number in range(6)),
            lines=tuple(
                BackwardLine(
                    nbytes=2**30 // (number + 1),
                    global_nbytes=2**33 // (number + 1),
                    count=1 + number % 2,
                    origin=line(20 + number, "block") if number % 3 else None,
                    checkpoint_name="hidden" if number == 1 else None,
                    is_in_loop=number % 2 == 0,
                )
                for number in range(6)
            ),
            offloaded=(BackwardLine(nbytes=2**29, global_nbytes=2**32, origin=line(19, "block")),),
        ),
        live_at_backward=LiveAtBackward(nbytes=5 * 2**29, vmem_nbytes=2**24),
    ),
    dot_flops=None,
    known_dot_flops=1_699_999_999,
    uncounted_flops=(
        UncountedFlops(reason="kernel", operation="tpu_custom_call", origin=line(9, "loss"), count=2),
        UncountedFlops(reason="executions", operation="dot", origin=line(14, "train_step")),
    ),
    unread=("  %x.1 = f32[8]{0} mystery(f32[8]{0} %y), replica_groups=???", "ENTRY nonsense"),
)
"""A program with each kind of finding."""

TOO_LARGE = program(
    name="train_step",
    platform="tpu",
    topology="v5e:2x4",
    memory=None,
    dot_flops=None,
    out_of_memory=OutOfMemory(
        message="Ran out of memory in memory space hbm. Used 36.00G of 15.75G hbm.",
        required_nbytes=36 * 2**30,
        available_nbytes=15 * 2**30 + 3 * 2**28,
        buffers=(
            LargeBuffer(
                nbytes=16 * 2**30,
                shape=(65536, 65536),
                dtype="float32",
                op="jit(train_step)/dot_general",
                origin=line(9),
            ),
            LargeBuffer(nbytes=2**30, shape=(16384, 16384), dtype="float32"),
        ),
    ),
)
"""A program that does not fit the memory of a device."""

DIFFERENCE = ProgramDiff(
    before_name="step",
    after_name="step_with_fsdp",
    sent=(
        SentChange(kind="all-reduce", axes=("fsdp",), before=2**20, after=0),
        SentChange(kind="reduce-scatter", axes=("fsdp",), before=0, after=2**19),
        SentChange(kind="all-gather", axes=None, before=2**18, after=None),
    ),
    sent_nbytes_before=2883584,
    sent_nbytes_after=None,
    figures=(
        FigureChange(name="temporary_nbytes", before=4849664, after=3670016),
        FigureChange(name="peak_nbytes", before=None, after=2**30),
        FigureChange(name="dot_flops", before=1610612736, after=3221225472),
    ),
    shardings=(
        *(
            ShardingChange(
                path=f"outputs/layers/{number}/wi",
                before=named(None, "tensor"),
                after=named("fsdp", "tensor"),
                before_type="float32[256,1024]",
                after_type="float32[256,1024]",
            )
            for number in range(4)
        ),
        ShardingChange(
            path="x",
            before=named(("data", "fsdp")),
            after=named("data"),
            before_type="float32[32,64,256]",
            after_type="bfloat16[32,64,256]",
        ),
        ShardingChange(path="mask", before=None, after=named(), before_type=None, after_type="bool[32,64]"),
    ),
    donations=(
        DonationChange(
            path="params/wi",
            before=Donation(path="params/wi", nbytes=262144, reason="unused"),
            after=Donation(path="params/wi", nbytes=262144, output="outputs/wi"),
        ),
        DonationChange(path="opt", before=None, after=Donation(path="opt", nbytes=4, reason="dtype")),
    ),
    unknown=("after: 1 line could not be read",),
)
"""Two programs that differ in every respect."""
EQUAL = ProgramDiff(before_name="step", after_name="step", sent_nbytes_before=12, sent_nbytes_after=12)
"""Two programs that do not differ."""

REPORTS = (STEP, SCAN, TOO_LARGE, DIFFERENCE, EQUAL, WHY)

_MIB = 2**20
_STEP_LINE = Origin(file="/home/me/train.py", line=5, function="step")
_LOSS_LINE = Origin(file="/home/me/train.py", line=9, function="loss")
_ATTEND = Origin(file="/home/me/layers.py", line=12, function="attend")
_ATTENTION = [0, 0, 2 * _MIB, 5 * _MIB, 5 * _MIB, _MIB, 0, 0]
TIMELINE = ProgramTimelineReport(
    name="step",
    origin=_STEP_LINE,
    platform="cpu",
    operation_count=1600,
    points=tuple(range(100, 1700, 200)),
    operations=("p", "dot", "exp", "dot.1", "fusion", "dot.2", "add", "tuple"),
    series=(
        ProgramSeries(kind="arguments", nbytes=(3 * _MIB,) * 8),
        ProgramSeries(kind="outputs", nbytes=(_MIB,) * 8),
        ProgramSeries(kind="line", origin=_ATTEND, nbytes=tuple(_ATTENTION)),
        ProgramSeries(kind="line", origin=_LOSS_LINE, nbytes=(_MIB,) * 8),
    ),
    live_nbytes=tuple(nbytes + _MIB for nbytes in _ATTENTION),
    total_nbytes=tuple(nbytes + 5 * _MIB for nbytes in _ATTENTION),
    peak=3,
    peak_origin=_ATTEND,
    needed_nbytes=10 * _MIB,
    needed_source="sum",
)
"""Memory of a program along its schedule. As SVG it is a drawing, so it is not among ``REPORTS``."""
