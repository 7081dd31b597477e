"""Classes of protobuf messages from the fields that are read. Others are kept as unknown fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
    found = {one: pool.FindMessageTypeByName(f"{package}.{one}") for one in messages}
    if not hasattr(message_factory, "GetMessageClass"):  # protobuf before 4.22
        factory = message_factory.MessageFactory()
        return {one: factory.GetPrototype(kind) for one, kind in found.items()}  # type: ignore[attr-defined]
    return {one: message_factory.GetMessageClass(kind) for one, kind in found.items()}


def unknown_fields(message: Any) -> frozenset[int]:
    """Return the numbers of the fields in a message that its class does not have."""
    try:
        from google.protobuf.unknown_fields import UnknownFieldSet
    except ImportError:  # protobuf before 4.21
        return frozenset(one.field_number for one in message.UnknownFields())
    return frozenset(one.field_number for one in UnknownFieldSet(message))  # type: ignore[attr-defined]
