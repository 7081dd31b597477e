"""Text of lowered programs that tells what the numbers of stack frames mean.

In JAX 0.8, the table and the instructions of programs on several devices have different numbers.
"""

from __future__ import annotations

from typing import Any


def text_for_frame_numbers(lowered: Any) -> str | None:
    """Return the text of a lowered program whose operations tell the numbers of the stack frames.

    None if the version of JAX prints the right table; empty if the lowered program is not known.

    Args:
        lowered: A ``jax.stages.Lowered``, or None.
    """
    import jax

    if jax.__version_info__[:2] != (0, 8):
        return None
    return text_with_locations(lowered)


def text_with_locations(lowered: Any) -> str:
    """Return the text of a lowered program with the source lines of its operations; empty for None."""
    return "" if lowered is None else str(lowered.as_text(debug_info=True))
