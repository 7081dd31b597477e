"""Programs that differ in nothing but constraints that give the same shardings."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ..propagation.helper import NoAnswerError, ask

_CONSTRAINT = "sdy.sharding_constraint"


def sharding_key(bytecode: bytes) -> bytes:
    """Return a key that two programs of one function share if Shardy gives all their values one sharding.

    Where Shardy gives no answer, only equal programs share it.

    Args:
        bytecode: The lowered program.
    """
    try:
        found = ask(bytecode)
    except NoAnswerError:
        return hashlib.sha256(bytecode).digest()
    values = [found["shardings"][own] if own is not None else None for _, own, _ in found["values"]]

    def shardings(numbers: Any) -> list[Any]:
        return [values[number] for number in numbers]

    rows = [
        (name, shardings(operands), shardings(results))
        for name, _, operands, results, *_ in found["operations"]
        if name != _CONSTRAINT
    ]
    ends = (
        shardings(range(found["arguments"])),
        [found["shardings"][own] if own is not None else None for own in found["results"]],
    )
    return hashlib.sha256(json.dumps([rows, ends]).encode()).digest()
