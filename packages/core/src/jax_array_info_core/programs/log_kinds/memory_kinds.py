"""Kinds of lines about memory: of a device, of a kernel, and of the host; sentences on their numbers."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.quantities import bytes_apart, format_bytes
from ...facts.reports.compiler_messages import was_full
from ...xla.hlo.oom_logs import FAILED_ALLOCATION, GIVEN_UP, NO_ROOM_AT_COMPILATION
from .kinds import Kind

_STATISTICS = (
    r"\btotal allocation: +<total_nbytes>",
    r"\bparameter allocation: +<arguments_nbytes>",
    r"\bpreallocated temp allocation: +<temporary_nbytes>",
    r"\bFree memory/Total: <free_nbytes>/<device_nbytes>",
    r"\bLimit: +<limit_nbytes>$",
    r"\bInUse: +<in_use_nbytes>$",
    r"There are <free_nbytes> free",
    r"maximum reservable bytes would be <reservable_nbytes>",
    r"and <reservable_nbytes> reservable",
)
_USAGE = (
    r"Total hbm usage >= <total_nbytes>",
    r"^ +reserved +<reserved_nbytes>",
    r"^ +program +<program_nbytes>",
    r"^ +arguments +<arguments_nbytes>",
    r"Unpadded size: <unpadded_nbytes>",
    r"Extra memory due to padding: <padding_nbytes>",
)

MEMORY_KINDS = (
    Kind(
        "hbm at compilation",
        "root",
        NO_ROOM_AT_COMPILATION,
        "The arguments, outputs and temporary values of one program exceed the memory of a device.",
        "Shard or recompute the largest values, and donate arguments that outputs can replace.",
        details=_USAGE,
        category="program memory",
    ),
    Kind(
        "kernel memory",
        "root",
        (
            r"Scoped allocation with size <needed_nbytes> and limit <available_nbytes> exceeded scoped "
            r"(?P<memory>vmem)",
            r"in memory space (?P<memory>[vsc]mem|sflag)\. Used <needed_nbytes> of <available_nbytes>",
            r"Allocation \(size=<needed_nbytes>\) would exceed memory \(size=<available_nbytes>\)"
            r".{0,300}space=(?P<memory>[vsc]mem)",
            r"in memory space (?P<memory>[vsc]mem)[\s\S]{0,4000}Scoped allocation with size <needed_nbytes> "
            r"and limit <available_nbytes>",
            r"(?P<memory>[Ss]hared memory) size limit exceeded: requested <needed_nbytes>, "
            r"available <available_nbytes>",
        ),
        "The blocks of a kernel exceed the memory of a core (VMEM, shared memory), not that of the device.",
        "Give pallas_call smaller blocks, or, on TPU, raise CompilerParams(vmem_limit_bytes=). More devices "
        "do not help.",
        category="other memory",
    ),
    Kind(
        "compilation given up",
        "root",
        (
            r"Aborting compilation early.{0,200}Requires <needed_nbytes>, has <available_nbytes> available",
            *GIVEN_UP,
        ),
        "The program needs far more than a device has, so that the compiler stopped early.",
        "Shard the largest values. If the size is absurd, look for a wrong shape.",
        category="program memory",
    ),
    Kind(
        "program load",
        "root",
        (
            r"Error loading program.{0,200}Attempting to (?:reserve|allocate) <requested_nbytes>",
            r"Attempting to reserve <requested_nbytes> at the bottom",
        ),
        "Live buffers and other loaded programs leave no room for the program.",
        "Drop references to arrays, donate arguments, or load fewer programs.",
        details=_STATISTICS,
        category="program memory",
    ),
    Kind(
        "tpu allocation",
        "root",
        (r"Attempting to allocate <requested_nbytes>\. That was not possible",),
        "Live arrays leave no room for an array, or free memory is fragmented.",
        "Drop references to arrays and shard them when they are created; a new process has no fragmentation.",
        details=_STATISTICS,
        category="program memory",
    ),
    Kind(
        "sparsecore memory",
        "root",
        (
            r"TensorCore Hbm usage: <tensor_core_nbytes>, SparseCore Hbm usage:? <sparse_core_nbytes>, "
            r"exceeding available bytes: <available_nbytes>",
        ),
        "Embedding tables and their buffers on the SparseCores exceed the memory.",
        "Shard the embedding tables, or lower max_ids_per_partition and max_unique_ids_per_partition.",
        category="other memory",
    ),
    Kind(
        "sparsecore stack",
        "root",
        (
            r"memref\.alloca.{0,300}?offset upper bound \(<words> words\)"
            r"(?:.{0,300}offset upper bound \(<limit_words> words\))?",
        ),
        "A SparseCore program needs more of its own memory than it has.",
        "Lower the limits per partition, or turn the offload of collectives to SparseCores off.",
        category="other memory",
    ),
    Kind(
        "pinned host memory",
        "root",
        (
            r"[Ff]ailed to allocate <requested_nbytes> bytes for host memory kind pinned_host",
            r"RESOURCE_EXHAUSTED: .{0,300}pinned_host",
        ),
        "Offloaded state exceeds the host memory that can be pinned.",
        "Raise `ulimit -l`, or offload less.",
        category="other memory",
    ),
    Kind(
        "host memory",
        "root",
        (
            r"oom_kill event",
            r"OOMKilled",
            r"[Oo]ut of memory: Killed process",
            r"Detected \d{1,9} oom-kill",
            r"(?:^|: line \d{1,9}: +\d{1,9} )Killed(?: +\(core dumped\))?(?: {4,}|$)",
            r"[Ee]xit(?:ed)?(?: with)?(?: exit)? ?(?:code|status|Code)\W{0,3}137\b",
        ),
        "The process was killed from outside, most often because the host's memory was full.",
        "Stage less state in host memory when a checkpoint is saved, or raise the container's limit.",
        category="other memory",
        is_hard=True,
    ),
    Kind(
        "rematerialization limit",
        "warning",
        (
            r"Can't reduce memory use below .{0,30}\(<floor_nbytes> bytes\) by rematerialization; "
            r"only reduced to .{0,30}\(<temporary_nbytes> bytes\)",
        ),
        "Recomputing values does not make the program fit its limit.",
        "Shard the largest temporary values.",
    ),
    Kind(
        "arguments exceed limit",
        "root",
        (r"input/output arguments \(<arguments_nbytes>\) exceeds the base limit \(<limit_nbytes>\)",),
        "The arguments and outputs alone exceed the memory that the program may use.",
        "Shard the arguments over more devices.",
        category="program memory",
    ),
    Kind(
        "cuda async allocation",
        "root",
        (r"cuMemAllocAsync failed to allocate <requested_nbytes> bytes",),
        "An allocation failed on a GPU.",
        "If far less is in use than is taken, stop the other process on the GPU; else shard or recompute.",
        details=_STATISTICS,
        category="program memory",
    ),
    Kind(
        "allocation",
        "root",
        FAILED_ALLOCATION,
        "An allocation failed while the program ran.",
        "Free or shard arrays; recompute the largest temporary values.",
        details=_STATISTICS,
        category="program memory",
    ),
)
"""Kinds of lines about memory."""


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
        needed = sum(filter(None, parts)) or None
    more = dict(numbers)
    if needed is not None:
        more["needed_nbytes"] = needed
    if "rounded_nbytes" in sizes and "requested_nbytes" not in sizes:
        more["requested_nbytes"] = sizes["rounded_nbytes"]
    if "free_nbytes" not in sizes and {"limit_nbytes", "in_use_nbytes"} <= sizes.keys():
        more["free_nbytes"] = max(0, sizes["limit_nbytes"] - sizes["in_use_nbytes"])
    return more


def memory_words(kind: Kind, numbers: Mapping[str, int | str]) -> str:
    """Return what the numbers of a line say; empty if they are not about memory."""
    sizes = {name: value for name, value in numbers.items() if isinstance(value, int)}
    needed, available = sizes.get("needed_nbytes"), sizes.get("available_nbytes", sizes.get("limit_nbytes"))
    memory = str(numbers.get("memory", ""))
    memory = memory.upper() if memory.endswith("mem") else memory.lower()
    where = f"of {memory}" if memory else "per device"
    where = "of pinned host memory" if kind.name == "pinned host memory" else where
    if kind.category not in ("program memory", "other memory") or not sizes:
        return ""
    if "requested_nbytes" in sizes and kind.name != "arguments exceed limit":
        return _failed(sizes, needed, where)
    if needed is None or available is None:
        return ""
    needs, has = bytes_apart(needed, available)
    not_understood = f"refused, but needs {needs} of {has} {where}: the line was not understood"
    does_not_fit = f"does not fit: needs {needs}{_parts(sizes)}, has {has} {where}"
    return (not_understood if needed <= available else does_not_fit) + _padding(sizes)


def _failed(sizes: Mapping[str, int], needed: int | None, where: str) -> str:
    """Return the words on an allocation that failed."""
    requested, free = sizes["requested_nbytes"], sizes.get("free_nbytes")
    wanted, unused = bytes_apart(requested, free) if free is not None else (format_bytes(requested), "")
    words = f"allocation failed: {wanted} requested {where}"
    if free is not None:
        words += f", {unused} free{', but fragmented' if requested <= free else ''}"
    if needed is not None:
        least = "" if "total_nbytes" in sizes else "at least "
        words += f"; the program needs {least}{format_bytes(needed)}{_parts(sizes)}"
    if was_full(requested, needed, free):
        words += "; the memory was full before"
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
