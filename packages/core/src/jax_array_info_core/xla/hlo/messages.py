"""XLA's messages, as far as they are read, and the types of values in them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...geometry.layouts.dtypes import bits_of_name, named_in_full, packed_nbytes


def message_classes(name: str, messages: Mapping[str, str]) -> dict[str, Any]:
    """Return the class of each message by its name.

    >>> point = message_classes("example", {"Point": "x 1 int32, names 2 *string"})["Point"]
    >>> point(x=3, names=["a"]).ByteSize()
    5

    Args:
        name: Name of the package.
        messages: Fields of each message: name, number and type. A ``*`` is that of a repeated field.
    """
    # They take 30 ms to import.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    package = f"jax_array_info.{name}"
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for text in fields.split(","):
            field_name, number, kind = text.split()
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=int(number), label=label)
            kind = kind.removeprefix("*")
            if kind in messages:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = {
        message_name: pool.FindMessageTypeByName(f"{package}.{message_name}") for message_name in messages
    }
    if not hasattr(message_factory, "GetMessageClass"):  # protobuf before 4.22
        factory = message_factory.MessageFactory()
        return {message_name: factory.GetPrototype(kind) for message_name, kind in descriptors.items()}  # type: ignore[attr-defined]
    return {message_name: message_factory.GetMessageClass(kind) for message_name, kind in descriptors.items()}


def unknown_fields(message: Any) -> frozenset[int]:
    """Return the numbers of the fields in a message that its class does not have."""
    try:
        from google.protobuf.unknown_fields import UnknownFieldSet
    except ImportError:  # protobuf before 4.21
        return frozenset(unknown.field_number for unknown in message.UnknownFields())
    return frozenset(unknown.field_number for unknown in UnknownFieldSet(message))  # type: ignore[attr-defined]


MESSAGES = {
    "LayoutProto": "memory_space 8 int64",
    "ShapeProto": "element_type 2 int32, dimensions 3 *int64, tuple_shapes 4 *ShapeProto,"
    " layout 5 LayoutProto",
    "Payload": "value 1 bytes, id 2 int64",
    "OpMetadata": "op_name 2 string, source_file 3 string, source_line 4 int32, stack_frame_id 15 int32",
    "LiteralProto": "shape 1 ShapeProto, u8s 3 bytes, s32s 4 *int32, s64s 5 *int64, u32s 6 *uint32,"
    " u64s 7 *uint64, s8s 15 bytes, u16s 16 bytes, s16s 17 bytes",
    "ReplicaGroup": "replica_ids 1 *int64",
    "IotaReplicaGroupListProto": "num_replica_groups 1 int64, num_devices_per_group 2 int64,"
    " iota_reshape_dims 3 *int64, iota_transpose_perm 4 *int32",
    # Up to JAX 0.8, the iota list is in the list of devices.
    "CollectiveDeviceListProto": "replica_groups 1 *ReplicaGroup, iota 2 IotaReplicaGroupListProto",
    "MeshAxis": "name 1 string, size 2 int64",
    "IotaTransform": "reshape_dims 1 *int64, transpose_perm 2 *int64",
    "MeshProto": "axes 1 *MeshAxis, device_ids 2 *int64, iota_transform 3 IotaTransform",
    "SubAxis": "pre_size 1 int64, size 2 int64",
    "AxisRefProto": "mesh_axis_index 1 int64, sub_axis_info 2 SubAxis",
    "MeshAxesReplicaGroupListProto": "mesh 1 MeshProto, axes 2 *AxisRefProto",
    "SourceTarget": "source 1 int64, target 2 int64",
    "DotDimensionNumbers": "lhs_contracting_dimensions 1 *int64, rhs_contracting_dimensions 2 *int64,"
    " lhs_batch_dimensions 3 *int64, rhs_batch_dimensions 4 *int64",
    "ConvolutionDimensionNumbers": "kernel_input_feature_dimension 3 int64,"
    " kernel_output_feature_dimension 4 int64, kernel_spatial_dimensions 6 *int64,"
    " input_batch_dimension 7 int64, input_feature_dimension 8 int64, output_batch_dimension 9 int64,"
    " output_feature_dimension 10 int64, input_spatial_dimensions 11 *int64,"
    " output_spatial_dimensions 12 *int64",
    "WindowDimension": "size 1 int64, stride 2 int64, padding_low 3 int64, padding_high 4 int64,"
    " window_dilation 5 int64, base_dilation 6 int64",
    "Window": "dimensions 1 *WindowDimension",
    "MapEntry": "key 1 string, value 2 string",
    "FrontendAttributes": "map 1 *MapEntry",
    "OutputOperandAliasing": "output_shape_index 1 *int64, operand_index 2 int64,"
    " operand_shape_index 3 *int64",
    "HloInstructionProto": "name 1 string, opcode 2 string, shape 3 ShapeProto, metadata 7 OpMetadata,"
    " literal 8 LiteralProto, parameter_number 9 int64, tuple_index 13 int64, dimensions 14 *int64,"
    " window 15 Window, convolution_dimension_numbers 16 ConvolutionDimensionNumbers,"
    " dynamic_slice_sizes 20 *int64, channel_id 26 int64, custom_call_target 28 string,"
    " dot_dimension_numbers 30 DotDimensionNumbers, fft_type 31 int32, fft_length 32 *int64,"
    " gather_slice_sizes 34 *int64, id 35 int64, operand_ids 36 *int64, called_computation_ids 38 *int64,"
    " backend_config 43 bytes, is_host_transfer 47 bool, replica_groups 49 *ReplicaGroup,"
    " feature_group_count 50 int64, source_target_pairs 52 *SourceTarget, batch_group_count 58 int64,"
    " comparison_direction 63 string, frontend_attributes 68 FrontendAttributes,"
    " use_global_device_ids 71 bool, output_operand_aliasing 74 *OutputOperandAliasing,"
    " dot_sparsity 86 *Payload, collective_device_list 87 CollectiveDeviceListProto,"
    " iota_collective_device_list 92 IotaReplicaGroupListProto,"
    " mesh_axes_replica_group_list 93 MeshAxesReplicaGroupListProto, sparsity_config 98 Payload,"
    " backend_config_payload 99 Payload",
    "HloComputationProto": "name 1 string, instructions 2 *HloInstructionProto, id 5 int64, root_id 6 int64",
    "InstructionSequence": "instruction_ids 1 *int64",
    "SequencesEntry": "key 1 int64, value 2 InstructionSequence",
    "HloScheduleProto": "sequences 1 *SequencesEntry",
    "AliasEntryProto": "output_shape_index 1 *int64, parameter_number 2 int64,"
    " parameter_shape_index 3 *int64",
    "HloInputOutputAliasProto": "entries 1 *AliasEntryProto",
    "DeviceAssignmentProto": "replica_count 1 int32, computation_count 2 int32",
    "FileLocation": "file_name_id 1 int32, function_name_id 2 int32, line 3 int32, column 4 int32",
    "StackFrame": "file_location_id 1 int32, parent_frame_id 2 int32",
    "StackFrameIndexProto": "file_names 1 *string, function_names 2 *string, file_locations 3 *FileLocation,"
    " stack_frames 4 *StackFrame",
    "HloModuleProto": "name 1 string, entry_computation_name 2 string, computations 3 *HloComputationProto,"
    " schedule 7 HloScheduleProto, input_output_alias 8 HloInputOutputAliasProto,"
    " device_assignment 15 DeviceAssignmentProto, stack_frame_index 17 StackFrameIndexProto,"
    " payloads 22 *bytes",
    "Location": "shape_index 3 *int64, instruction_id 4 int64",
    "LogicalBufferProto": "id 1 int64, size 2 int64, defined_at 3 Location",
    "Assigned": "logical_buffer_id 1 int64, offset 2 int64, size 3 int64",
    "BufferAllocationProto": "index 1 int64, size 2 int64, is_thread_local 3 bool,"
    " is_entry_computation_parameter 5 bool, maybe_live_out 7 bool, color 8 int64, assigned 9 *Assigned,"
    " is_constant 12 bool",
    "PeakBuffers": "index 1 int64, logical_buffer_ids 2 *int64",
    "BufferAssignmentProto": "logical_buffers 1 *LogicalBufferProto,"
    " buffer_allocations 3 *BufferAllocationProto, peak_buffers 5 *PeakBuffers",
    "HloProto": "hlo_module 1 HloModuleProto, buffer_assignment 3 BufferAssignmentProto",
}
"""Fields of each message, by XLA's names. A test compares their numbers with those inside jaxlib."""

NEWEST_FIELD = 103
"""Largest number of a field of an instruction when this was written. A later one may list devices."""

PRIMITIVES = (
    *("", "pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "(", "opaque"),
    *("c64", "bf16", "token", "c128", "f8e5m2", "f8e4m3fn", "s4", "u4", "f8e4m3b11fnuz", "f8e5m2fnuz"),
    *("f8e4m3fnuz", "s2", "u2", "f8e4m3", "f8e3m4", "s1", "u1", "f4e2m1fn", "f8e8m0fnu", "buffer"),
    *("f6e3m2fn", "f6e2m3fn"),
)
"""XLA's names of the types of elements, by number."""
TUPLE, BUFFER = PRIMITIVES.index("("), PRIMITIVES.index("buffer")

FFTS = ("FFT", "IFFT", "RFFT", "IRFFT")
"""Kinds of Fourier transforms, by number."""


@functools.cache
def hlo_classes() -> dict[str, Any]:
    """Return the class of each message."""
    return message_classes("hlo", MESSAGES)


def program_in(record: bytes) -> tuple[bytes, Any]:
    """Return the serialized ``HloModuleProto`` and the ``BufferAssignmentProto`` in what XLA dumps.

    Args:
        record: A serialized ``HloProto``.
    """
    program = hlo_classes()["HloProto"].FromString(record)
    return bytes(program.hlo_module.SerializeToString()), program.buffer_assignment


def bind_operands(message: Any) -> None:
    """Let each asynchronous operation of a scheduled program begin where it has all its operands.

    What runs on a TPU's SparseCore begins without them: updates hand them over. The last of these becomes the
    start, and the earlier ones are left out.

    Args:
        message: The ``HloModuleProto``, which is changed.
    """
    orders = {sequence.key: sequence.value.instruction_ids for sequence in message.schedule.sequences}
    for computation in message.computations if orders else ():
        order = orders.get(computation.id, [])
        starts: dict[int, Any] = {}
        for instruction in [*computation.instructions] if order else ():
            if instruction.opcode == "async-start":
                starts[instruction.id] = instruction
            elif len(instruction.operand_ids) > 1 and instruction.operand_ids[0] in starts:
                start = starts[instruction.operand_ids[0]]
                bound = type(start)()
                bound.CopyFrom(start)
                bound.id = instruction.id
                bound.shape.CopyFrom(instruction.shape)
                bound.operand_ids.extend(instruction.operand_ids[1:])
                computation.instructions.remove(start)
                order.remove(start.id)
                instruction.CopyFrom(bound)
                starts[instruction.id] = instruction


WITHOUT_DATA = ("token", "opaque")
_UNKNOWN = "unknown type"
"""Start of the name of a type that is not known, such as ``unknown type 40``."""


class ArrayShape(NamedTuple):
    """Type of an array on one device."""

    dtype: str
    """Name in JAX, such as ``float32``; the name in XLA for types that JAX lacks, such as ``token``."""

    dims: tuple[int, ...]
    """Shape."""

    nbytes: int
    """Bytes, packed below 8 bits; 0 for tokens and other types without data."""

    memory_space: int = 0
    """XLA's memory space: 0 for the default, such as HBM; others, such as 1 for VMEM on TPU."""

    @property
    def is_unknown(self) -> bool:
        """Whether the size of its elements is not known."""
        return self.dtype.startswith(_UNKNOWN)


class Type(NamedTuple):
    """Type of the result of an instruction."""

    shapes: tuple[ArrayShape, ...]
    """Arrays, nested tuples flattened."""

    groups: tuple[int, ...]
    """Index of the outermost tuple element of each; empty if the type is not a tuple."""


def dtype_of(name: str) -> str | None:
    """Return JAX's name of a type of XLA, such as ``float32`` for ``f32``.

    XLA's own name for types without data, such as ``token``. None if the type is not known.
    """
    return name if name in WITHOUT_DATA else named_in_full(name)


class Types:
    """The types in a program. Few of them differ."""

    def __init__(self) -> None:
        self._known: dict[bytes, Type] = {}

    def of(self, shape: Any) -> Type:
        """Return the type that a ``ShapeProto`` describes."""
        key = shape.SerializeToString()
        if key not in self._known:
            self._known[key] = self._new(shape)
        return self._known[key]

    def _new(self, shape: Any) -> Type:
        if shape.element_type != TUPLE:
            return Type((_array_shape(shape),), ())
        parts = [self.of(part).shapes for part in shape.tuple_shapes]
        groups = (place for place, part in enumerate(parts) for _ in part)
        return Type(tuple(leaf for part in parts for leaf in part), tuple(groups))


def _array_shape(shape: Any) -> ArrayShape:
    while shape.element_type == BUFFER:
        shape = shape.tuple_shapes[0]
    number, dims = shape.element_type, tuple(shape.dimensions)
    dtype = dtype_of(PRIMITIVES[number]) if 0 < number < len(PRIMITIVES) else None
    nbytes = 0 if dtype is None or dtype in WITHOUT_DATA else packed_nbytes(dims, bits_of_name(dtype))
    return ArrayShape(dtype or f"{_UNKNOWN} {number}", dims, nbytes or 0, shape.layout.memory_space)
