"""Records of small programs that tests write down as text, in XLA's notation as far as the tests need it.

Unlike XLA's parser, it takes parts of programs: types need not fit, and what is called may come after its callers.
Operands and computations that are missing are constants.
"""

from __future__ import annotations

import re
from itertools import accumulate, count

from jax_array_info_core.xla.hlo.messages import FFTS, PRIMITIVES, TUPLE, hlo_classes
from jax_array_info_core.xla.hlo.source import unescaped

STRING = r'"(?:[^"\\]++|\\(?s:.))*+"'
"""Pattern of a quoted string."""

# A part of the groups of a collective looks like an attribute: mesh['x'=8], device_ids=([8]) {'x'}.
_TOKEN = re.compile(rf'{STRING}|\{{(?:[^{{}}"]++|{STRING})*+\}}|[{{}}"]|, (?!device_ids=)([\w-]++)=')
_FIELD = re.compile(rf"\b(\w++)=(?:({STRING})|(\S+))(?:\s|$)")


def read_attributes(text: str) -> dict[str, str]:
    """Return the attributes by name, each with its text, as far as they can be read.

    An attribute ends where its quotes and braces end. The time is linear in the length of the text.
    """
    found: dict[str, str] = {}
    name, start, depth = "", 0, 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
        elif not depth and mark[0] == ",":
            if name:
                found[name] = text[start : token.start()]
            elif token.start():
                break
            name, start = token[1], token.end()
        if mark == '"' or depth < 0 or not name:
            return found
    if name and not depth:
        found[name] = text[start:]
    return found


def read_fields(text: str) -> dict[str, str]:
    """Return the fields of ``{file_name_id=1 line=97}``, or of metadata, by name, strings without quotes."""
    fields = _FIELD.findall(text.strip("{}"))
    return {name: unescaped(string[1:-1]) if string else bare for name, string, bare in fields}


_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s(]+) (?:\(.*)?\{")
_TYPE = r"(?:\([^=]*\)|[a-z]\w*\[[^\]]*\](?:\{[^}]*\})?)"
_INSTRUCTION = re.compile(rf"\s*(ROOT )?%([^\s=]+) = ({_TYPE}) ([\w-]+)\((.*)")
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<= ]*)\](?:\{[^}]*?(?:S\((\d+)\))?\})?")
_CALLS = ("body", "condition", "calls", "to_apply", "called_computations", "branch_computations")
_MORE_CALLS = ("true_computation", "false_computation", "select", "scatter")


def _numbers(text: str) -> list[int]:
    return [int(one) for one in re.findall(r"-?\d+", text)]


def _split(text: str) -> list[str]:
    """Return the parts between commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for place, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == "," and not depth:
            parts.append(text[start:place])
            start = place + 1
    return [part.strip() for part in (*parts, text[start:]) if part.strip()]


def _add_shape(shape, text: str) -> None:
    if text.startswith("("):
        shape.element_type = TUPLE
        for part in _split(text[1:-1]):
            _add_shape(shape.tuple_shapes.add(), part)
        return
    name, dims, space = _ARRAY.match(text).groups()
    shape.element_type = PRIMITIVES.index(name) if name in PRIMITIVES else 127
    shape.dimensions.extend(_numbers(dims))
    shape.layout.memory_space = int(space or 0)


def add_groups(op, text: str) -> None:
    """Add the groups of a collective to its message, in the form that the text has."""
    if text.startswith("mesh"):
        sizes, devices, axes = re.fullmatch(
            r"mesh\[(.*?)\](?:, device_ids=\((.*?)\))? ?\{(.*)\}", text
        ).groups()
        mesh = op.mesh_axes_replica_group_list.mesh
        names = []
        for name, size in re.findall(r"'?(\w+)'?=(\d+)", sizes):
            names.append(name)
            mesh.axes.add(name=name, size=int(size))
        if devices and devices.startswith("["):
            dims, _, order = devices.partition("T")
            mesh.iota_transform.reshape_dims.extend(_numbers(dims))
            mesh.iota_transform.transpose_perm.extend(_numbers(order))
        elif devices:
            mesh.device_ids.extend(_numbers(devices))
        for name, first, size in re.findall(r"'?(\w+)'?(?::\((\d+)\)(\d+))?", axes):
            axis = op.mesh_axes_replica_group_list.axes.add(mesh_axis_index=names.index(name))
            if size:
                axis.sub_axis_info.pre_size, axis.sub_axis_info.size = int(first), int(size)
    elif text.startswith("["):
        shape, dims, order = re.fullmatch(r"\[(.*?)\]<=\[(.*?)\](?:T\((.*)\))?", text).groups()
        iota = op.iota_collective_device_list
        iota.num_replica_groups, iota.num_devices_per_group = _numbers(shape)
        iota.iota_reshape_dims.extend(_numbers(dims))
        iota.iota_transpose_perm.extend(_numbers(order or ""))
    else:
        op.collective_device_list.SetInParent()
        for group in re.findall(r"\{([\d, ]*)\}", text[1:-1]):
            op.collective_device_list.replica_groups.add(replica_ids=_numbers(group))


def _add_window(op, text: str) -> None:
    fields = dict(re.findall(r"(\w+)=([-\dx_]+)", text))
    for place, size in enumerate(fields.get("size", "").split("x") if fields else ()):

        def value(name, default, place=place):
            return fields[name].split("x")[place] if name in fields else default

        low, _, high = value("pad", "0_0").partition("_")
        op.window.dimensions.add(
            size=int(size),
            stride=int(value("stride", 1)),
            padding_low=int(low),
            padding_high=int(high),
            window_dilation=int(value("rhs_dilate", 1)),
            base_dilation=int(value("lhs_dilate", 1)),
        )


def _add_labels(op, text: str) -> None:
    axes = op.convolution_dimension_numbers
    source, kernel, result = re.split(r"_|->", text)
    axes.input_batch_dimension, axes.input_feature_dimension = source.index("b"), source.index("f")
    axes.kernel_input_feature_dimension = kernel.index("i")
    axes.kernel_output_feature_dimension = kernel.index("o")
    axes.output_batch_dimension, axes.output_feature_dimension = result.index("b"), result.index("f")
    for found, names in (
        (axes.input_spatial_dimensions, source),
        (axes.kernel_spatial_dimensions, kernel),
        (axes.output_spatial_dimensions, result),
    ):
        found.extend(names.index(name) for name in sorted(filter(str.isdecimal, names)))


def _add_attribute(op, name: str, text: str, ids) -> None:
    plain = text.strip('"')
    if name in _CALLS + _MORE_CALLS:
        op.called_computation_ids.extend(ids(one) for one in re.findall(r"%([^\s,{}]+)", text))
    elif name == "replica_groups":
        add_groups(op, text)
    elif name == "source_target_pairs":
        for source, target in re.findall(r"\{(\d+),(\d+)\}", text):
            op.source_target_pairs.add(source=int(source), target=int(target))
    elif name == "metadata":
        fields = read_fields(text)
        op.metadata.op_name = fields.get("op_name", "")
        op.metadata.source_file = fields.get("source_file", "")
        op.metadata.source_line = int(fields.get("source_line", 0))
        op.metadata.stack_frame_id = int(fields.get("stack_frame_id", 0))
    elif name == "frontend_attributes":
        for key, quoted, listed in re.findall(
            r'([\w-]+)=(?:"([^"]*)"|(\{(?:[^{}]|\{[^{}]*\})*\}))', text[1:-1]
        ):
            op.frontend_attributes.map.add(key=key, value=quoted or listed)
    elif name == "output_to_operand_aliasing":
        for output, operand, inside in re.findall(r"\{([\d, ]*)\}: \((\d+), \{([\d, ]*)\}", text):
            op.output_operand_aliasing.add(
                output_shape_index=_numbers(output),
                operand_index=int(operand),
                operand_shape_index=_numbers(inside),
            )
    elif name in ("index", "channel_id", "feature_group_count", "batch_group_count"):
        setattr(op, "tuple_index" if name == "index" else name, int(text))
    elif name in ("is_host_transfer", "use_global_device_ids"):
        setattr(op, name, text == "true")
    elif name in ("dimensions", "dynamic_slice_sizes", "slice_sizes", "fft_length"):
        getattr(op, "dynamic_slice_sizes" if "slice" in name else name).extend(_numbers(text))
    elif name in ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims"):
        getattr(op.dot_dimension_numbers, name.replace("dims", "dimensions")).extend(_numbers(text))
    elif name == "sparsity":
        op.dot_sparsity.add(value=b"x")
    elif name == "fft_type":
        op.fft_type = FFTS.index(text)
    elif name == "window":
        _add_window(op, text)
    elif name == "dim_labels":
        _add_labels(op, text)
    elif name == "direction":
        op.comparison_direction = text
    elif name == "custom_call_target":
        op.custom_call_target = plain
    elif name == "backend_config":
        op.backend_config = (plain.replace('\\"', '"') if text.startswith('"') else text).encode()


def _add_instruction(computation, line: str, ids, numbers, names: dict[str, int]) -> None:
    root, name, type_text, opcode, rest = _INSTRUCTION.fullmatch(line).groups()
    depths = accumulate(((mark in "({") - (mark in ")}") for mark in rest), initial=1)
    end = next(place for place, depth in enumerate(depths) if not depth)
    inner, attributes = rest[: end - 1], rest[end:]
    operands = [] if opcode in ("parameter", "constant") else re.findall(r"%([^\s,()]+)", inner)
    for one in operands:
        if one not in names:
            names[one] = next(numbers)
            missing = computation.instructions.add(name=one, opcode="constant", id=names[one])
            _add_shape(missing.shape, "f32[]")
    op = computation.instructions.add(name=name, opcode=opcode, id=next(numbers))
    names[name] = number = op.id
    if root:
        computation.root_id = number
    _add_shape(op.shape, type_text)
    if opcode == "parameter":
        op.parameter_number = int(inner)
    elif opcode == "constant":
        _add_shape(op.literal.shape, type_text)
        field = f"{PRIMITIVES[op.literal.shape.element_type]}s"
        values = _numbers(inner) if field in ("s32s", "s64s", "u32s", "u64s") else []
        if values:
            getattr(op.literal, field).extend(values)
    else:
        op.operand_ids.extend(names[one] for one in operands)
    # XLA lists the body of a loop before its condition.
    for attribute, text in sorted(read_attributes(attributes).items(), key=lambda one: one[0] != "body"):
        _add_attribute(op, attribute, text, ids)


def _called_first(computations) -> list[int]:
    """Return the ids of computations, those that others call before these."""
    order: list[int] = []

    def add(number: int) -> None:
        for one in computations[number].instructions:
            for called in one.called_computation_ids:
                if called not in order:
                    add(called)
        order.append(number)

    for number in computations:
        if number not in order:
            add(number)
    return order


_SECTIONS = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


def _add_row(index, section: str, line: str) -> None:
    """Add a row of the tables of source lines. The text has the number of a frame's parent plus one."""
    row = line.partition(" ")[2]
    if section.endswith("Names"):
        (index.file_names if section == "FileNames" else index.function_names).append(row.strip('"'))
        return
    fields = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", row)}
    if section == "StackFrames":
        parent = fields["parent_frame_id"] - 1
        index.stack_frames.add(file_location_id=fields["file_location_id"], parent_frame_id=parent)
    else:
        names = ("file_name_id", "function_name_id", "line", "column")
        index.file_locations.add(**{name: fields.get(name, 0) for name in names})


def assembled(text: str) -> bytes:
    """Return the record of a program from its text. Computations are scheduled if the header says so."""
    header, _, rest = (text.strip() or "HloModule nothing").partition("\n")
    message = hlo_classes()["HloModuleProto"]()
    attributes = read_attributes(header.partition(",")[2] and "," + header.partition(",")[2])
    message.name = header.split()[1].rstrip(",")
    devices = message.device_assignment
    devices.computation_count = int(attributes.get("num_partitions", 1))
    devices.replica_count = int(attributes.get("replica_count", 1))
    for output, number, index in re.findall(
        r"\{([\d, ]*)\}: \((\d+), \{([\d, ]*)\}", attributes.get("input_output_alias", "")
    ):
        message.input_output_alias.entries.add(
            output_shape_index=_numbers(output),
            parameter_number=int(number),
            parameter_shape_index=_numbers(index),
        )
    known: dict[str, int] = {}

    def ids(name: str) -> int:
        return known.setdefault(name, len(known) + 1)

    numbers, computation, names, section = count(1), None, {}, ""
    lines = iter(rest.splitlines())
    for line in lines:
        if line in _SECTIONS:
            section = line
        elif section and line[:1].isdecimal():
            _add_row(message.stack_frame_index, section, line)
        elif computation is None:
            opening = _COMPUTATION.fullmatch(line.strip())
            if opening is not None:
                computation, names = message.computations.add(name=opening[2], id=ids(opening[2])), {}
                message.entry_computation_name = opening[2] if opening[1] else message.entry_computation_name
        elif line.strip().startswith("}"):
            computation = None
        elif line.strip():
            while line.count('"') % 2:
                line += "\n" + next(lines)
            _add_instruction(computation, line, ids, numbers, names)
    for name in set(known) - {one.name for one in message.computations}:  # such as %add, which few tests need
        missing = message.computations.add(name=name, id=known[name]).instructions
        _add_shape(missing.add(name="missing", opcode="constant", id=next(numbers)).shape, "f32[]")
    order = _called_first({one.id: one for one in message.computations})
    message.computations.sort(key=lambda one: order.index(one.id))
    for one in message.computations:
        one.root_id = one.root_id or next((part.id for part in reversed(one.instructions)), 0)
        if "is_scheduled" in attributes:
            message.schedule.sequences.add(key=one.id).value.instruction_ids.extend(
                part.id for part in one.instructions
            )
    return bytes(message.SerializeToString())
