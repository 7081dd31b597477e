"""Reader of XLA's record of a compiled program."""

from __future__ import annotations

from .messages import hlo_classes
from .module import Module
from .stacks import StackFrames


def read_module(data: bytes, mlir: str | None = None) -> Module:
    """Return the program in a serialized ``HloModuleProto``, of any version of JAX since 0.4.38.

    Args:
        data: What ``HloModule.as_serialized_hlo_module_proto()`` returns.
        mlir: Text of the lowered program, by which the numbers of stack frames are corrected; empty if it is
            not known. None if they are right.

    Raises:
        google.protobuf.message.DecodeError: If the data is not such a message.
    """
    message = hlo_classes()["HloModuleProto"].FromString(data)
    stacks = StackFrames(message.stack_frame_index)
    if mlir is not None and message.device_assignment.computation_count > 1:
        used = {
            (one.metadata.op_name, one.metadata.stack_frame_id)
            for computation in message.computations
            for one in computation.instructions
            if one.metadata.op_name and one.metadata.stack_frame_id
        }
        stacks.renumber(mlir, used)
    return Module(message, stacks)
