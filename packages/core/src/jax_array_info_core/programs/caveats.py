"""Figures of a compiled program that differ on another platform."""

from __future__ import annotations

from collections.abc import Collection

from ..reports.program import Collective

_ON_CPU = (
    "Compiled for CPU: shardings, donations, loops and flops also hold for TPU and GPU.",
    "On CPU, temporaries are larger and differently scheduled, and XLA forms no reduce-scatter: it uses an"
    " all-reduce instead. Pass topology= for the figures of an accelerator.",
)
_NARROW = ("bfloat16", "float16")


def caveats_of(
    platform: str, dtypes: Collection[str], collectives: Collection[Collective]
) -> tuple[str, ...]:
    """Return what differs on another platform, as sentences; empty for an accelerator.

    Args:
        platform: Platform that the program is compiled for.
        dtypes: Dtypes of the arguments and outputs.
        collectives: Collectives of the program.
    """
    if platform != "cpu":
        return ()
    caveats = list(_ON_CPU) if collectives else [_ON_CPU[0], "On CPU, temporaries differ."]
    narrow = [dtype for dtype in _NARROW if dtype in dtypes]
    if narrow and any(one.dtype == "float32" for one in collectives):
        caveats.append(f"CPU sends {' and '.join(narrow)} as float32, twice the bytes of an accelerator.")
    elif any(one.dtype == "float32" for one in collectives):
        caveats.append("TPU may send float32 operands of matrix products as bfloat16, half the bytes.")
    return tuple(caveats)
