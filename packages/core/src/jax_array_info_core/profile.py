"""The memory profile that a JAX backend takes of itself, read from its pprof encoding.

The format is https://github.com/google/pprof/blob/main/proto/profile.proto; only the fields that
are read here are declared, by name and number as there.
"""

from __future__ import annotations

import functools
import gzip
from collections import Counter
from typing import Any

_FIELDS = {
    "Label": [("key", 1, "int64"), ("str", 2, "int64")],
    "ValueType": [("type", 1, "int64"), ("unit", 2, "int64")],
    "Sample": [("value", 2, "repeated int64"), ("label", 3, "repeated Label")],
    "Profile": [
        ("sample_type", 1, "repeated ValueType"),
        ("sample", 2, "repeated Sample"),
        ("string_table", 6, "repeated string"),
    ],
}


def buffer_nbytes(profile: bytes) -> dict[str, int]:
    """Return the bytes of all buffers by the name of their device.

    Args:
        profile: What ``jax.profiler.device_memory_profile()`` returns.
    """
    message = _profile_class().FromString(gzip.decompress(profile))
    strings = message.string_table
    space = [strings[kind.type] for kind in message.sample_type].index("space")
    nbytes: Counter[str] = Counter()
    for sample in message.sample:
        labels = {strings[label.key]: strings[label.str] for label in sample.label}
        if labels.get("kind") == "buffer":
            nbytes[labels["device"]] += sample.value[space]
    return dict(nbytes)


@functools.cache
def _profile_class() -> Any:
    """Return the protobuf class of a profile."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="jax_array_info/profile.proto", package="jax_array_info.pprof", syntax="proto3"
    )
    for message_name, fields in _FIELDS.items():
        message = file.message_type.add(name=message_name)
        for name, number, declaration in fields:
            *repeated, kind = declaration.split()
            field = message.field.add(name=name, number=number)
            field.label = field_types.LABEL_REPEATED if repeated else field_types.LABEL_OPTIONAL
            if kind in _FIELDS:
                field.type = field_types.TYPE_MESSAGE
                field.type_name = f".{file.package}.{kind}"
            else:
                field.type = field_types.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Profile"))
