"""Sentences on the numbers of a line about memory: what is needed, what there is, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.quantities import bytes_apart, format_bytes
from .kinds import Kind


def memory_numbers(numbers: Mapping[str, int | str]) -> dict[str, int | str]:
    """Return the numbers of a line with those that follow from them.

    A program needs all its parts: TensorCore and SparseCore; arguments and temporary values.
    """
    sizes = {name: value for name, value in numbers.items() if isinstance(value, int)}
    parts = [sizes.get("arguments_nbytes"), sizes.get("temporary_nbytes")]
    needed = None
    if "sparse_core_nbytes" in sizes:
        needed = sizes["sparse_core_nbytes"] + sizes.get("tensor_core_nbytes", 0)
    elif "requested_nbytes" in sizes and "total_nbytes" in sizes:
        needed = sizes["total_nbytes"]
    elif "available_nbytes" not in sizes and {"limit_nbytes", "requested_nbytes"} & sizes.keys():
        needed = sum(one for one in parts if one is not None) or None
    found = dict(numbers)
    if needed is not None:
        found["needed_nbytes"] = needed
    if "rounded_nbytes" in sizes and "requested_nbytes" not in sizes:
        found["requested_nbytes"] = sizes["rounded_nbytes"]
    if "free_nbytes" not in sizes and {"limit_nbytes", "in_use_nbytes"} <= sizes.keys():
        found["free_nbytes"] = max(0, sizes["limit_nbytes"] - sizes["in_use_nbytes"])
    return found


def memory_words(kind: Kind, numbers: Mapping[str, int | str]) -> str:
    """Return what the numbers of a line say; empty if they are not about memory."""
    sizes = {name: value for name, value in numbers.items() if isinstance(value, int)}
    needed, available = sizes.get("needed_nbytes"), sizes.get("available_nbytes", sizes.get("limit_nbytes"))
    memory = str(numbers.get("memory", ""))
    memory = memory.upper() if memory.endswith("mem") else memory.lower()
    of = f"of {memory}" if memory else "per device"
    of = "of pinned host memory" if kind.name == "pinned host memory" else of
    if kind.category not in ("program memory", "other memory") or not sizes:
        return ""
    if "requested_nbytes" in sizes and kind.name != "arguments exceed limit":
        return _failed(sizes, needed, of)
    if needed is None or available is None:
        return ""
    needs, has = bytes_apart(needed, available)
    words = f"does not fit: needs {needs}{_parts(sizes)}, has {has} {of}"
    if needed <= available:
        words = f"refused, but needs {needs} of {has} {of}: the line was not understood"
    return words + _padding(sizes)


def _failed(sizes: Mapping[str, int], needed: int | None, of: str) -> str:
    """Return the words on an allocation that failed."""
    requested, free = sizes["requested_nbytes"], sizes.get("free_nbytes")
    wanted, left = bytes_apart(requested, free) if free is not None else (format_bytes(requested), "")
    words = f"allocation failed: {wanted} requested {of}"
    if free is not None:
        words += f", {left} free{', but fragmented' if requested <= free else ''}"
    if needed is not None:
        least = "" if "total_nbytes" in sizes else "at least "
        words += f"; the program needs {least}{format_bytes(needed)}{_parts(sizes)}"
    used = sizes.get("in_use_nbytes")
    if (
        used is not None
        and free is not None
        and (taken := sizes.get("device_nbytes", 0) - free - used) > used
    ):
        words += f"; {format_bytes(taken)} taken by other processes"
    return words


def _parts(sizes: Mapping[str, int]) -> str:
    """Return the parts of what is needed. The need does not include what is reserved."""
    names = {
        "tensor_core_nbytes": "TensorCore",
        "sparse_core_nbytes": "SparseCore",
        "arguments_nbytes": "arguments",
        "program_nbytes": "program",
        "temporary_nbytes": "temporary values",
    }
    parts = [f"{words} {format_bytes(sizes[name])}" for name, words in names.items() if sizes.get(name)]
    return f" ({', '.join(parts)})" if len(parts) > 1 else ""


def _padding(sizes: Mapping[str, int]) -> str:
    """Return the words on a value that padding enlarges."""
    if not {"unpadded_nbytes", "padding_nbytes"} <= sizes.keys():
        return ""
    whole = sizes["unpadded_nbytes"] + sizes["padding_nbytes"]
    return f"; padding makes {format_bytes(whole)} of {format_bytes(sizes['unpadded_nbytes'])}"
