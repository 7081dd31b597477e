"""A report on the propagation of a program, made by hand, and parts of such reports."""

from jax_array_info.layouts import MeshAxes, Spec
from jax_array_info.reports import (
    AxisOrigin,
    Conflict,
    ConflictOperand,
    Loss,
    Origin,
    PropagatedLeaf,
    PropagatedValue,
    PropagationReport,
    ReplicatedValue,
)

MESH = MeshAxes(("data", "fsdp", "tensor"), (2, 2, 2))


def entry(part):
    """Return one entry of a spec: a name, several names or None."""
    return () if part is None else (part,) if isinstance(part, str) else tuple(part)


def spec(*parts):
    """Return a spec, written as a PartitionSpec."""
    return Spec(tuple(map(entry, parts)))


def line(number, function="loss", file="/home/me/train.py"):
    """Return a line of the user's code."""
    return Origin(file=file, line=number, function=function)


FROM_X = AxisOrigin(mesh_axis="data", kind="argument", path="x")
LOSS = Loss(
    mesh_axis="data",
    reason="constraint",
    nbytes=2**19,
    op="tanh",
    operand="x",
    before=spec("data"),
    after=spec(None, "tensor"),
    shape=(512, 1024),
    dtype="float32",
    origin=line(11),
    phase="forward",
)
WHY = PropagationReport(
    name="step",
    mesh=MESH,
    device_count=8,
    platform="tpu",
    arguments=(
        PropagatedLeaf(
            path="x", shape=(512, 256), dtype="float32", spec=spec("data"), nbytes=2**18, axes=(FROM_X,)
        ),
    ),
    values=(
        PropagatedValue(
            shape=(512, 1024),
            dtype="float32",
            spec=spec("data", "tensor"),
            nbytes=2**19,
            op="dot_general",
            origin=line(9),
            columns=(8, 14),
            axes=(FROM_X, AxisOrigin(mesh_axis="tensor", kind="constraint", origin=line(8))),
        ),
    ),
    conflicts=(
        Conflict(
            mesh_axis="data",
            rule="ik,kj->ij",
            op="dot_general",
            operands=(
                ConflictOperand(name="x", spec=spec("data"), letter="i", axis_origin=FROM_X),
                ConflictOperand(
                    name="wi",
                    spec=spec("data", "tensor"),
                    letter="k",
                    axis_origin=AxisOrigin(mesh_axis="data", kind="argument", path="wi"),
                ),
            ),
            result=spec("data", "tensor"),
            nbytes=2**18,
            origin=line(9),
            count=2,
        ),
    ),
    lost=(LOSS,),
    replicated=(
        ReplicatedValue(
            shape=(512, 1024),
            dtype="float32",
            spec=spec(None, "tensor"),
            nbytes=2**20,
            op="tanh",
            origin=line(11),
            mesh_axes=("data",),
            avoidable_nbytes=2**19,
            loss=LOSS,
        ),
    ),
    unread=("?",),
)
"""Why the values of a program are sharded as they are, with each finding."""
