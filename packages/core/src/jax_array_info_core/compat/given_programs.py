"""Programs that a user gives, and their arguments: what form they have, and the arrays of each argument."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Literal

from .jitted import is_jitted, unwrapped
from .shardings import is_named
from .stages import ProgramLeaf, stage_of
from .topologies import topology_of

ProgramForm = Literal["jitted", "traced", "lowered", "compiled"]
"""A jitted function, or the stage that it has reached."""


def program_form(value: Any) -> ProgramForm | None:
    """Return what form of a program a value is: that of JAX, or of a library that wraps it; None for none."""
    with contextlib.suppress(Exception):  # of a user's object
        if isinstance(value, type):
            return None
        is_of_library = any(hasattr(value, name) for name in ("as_text", "lower"))  # a Traced has lower
        stages = stage_of(value) if is_of_library else None
        if stages is not None:
            return "compiled" if stages.compiled else "lowered" if stages.lowered else "traced"
        if is_jitted(unwrapped(value, (), {}).function):
            return "jitted"
    return None


def places_of_arguments(values: Sequence[Any], leaves: Sequence[ProgramLeaf]) -> list[int] | None:
    """Return the place of each argument of a program in the given leaves; None if they do not match it.

    Args:
        values: The leaves of the given arguments, also of static ones.
        leaves: The arguments of the program.
    """
    shapes = [leaf.shape for leaf in leaves]
    arrays = [place for place, value in enumerate(values) if hasattr(value, "shape")]
    for found in ([*range(len(values))], arrays):
        if [tuple(getattr(values[place], "shape", ())) for place in found] == shapes:
            return found
    return None


def struct_as_returned(value: Any, given: ProgramLeaf, returned: ProgramLeaf) -> Any:
    """Return a ShapeDtypeStruct of an argument with the sharding of an output; None if it is not known.

    An argument of a program that is compiled for a topology stays on its own mesh.

    Args:
        value: The array or the ShapeDtypeStruct that is passed.
        given: The argument.
        returned: The output.
    """
    import jax

    sharding, own = returned.got, getattr(value, "sharding", None)
    if is_named(sharding) and is_named(own) and own.mesh != sharding.mesh:
        if own.mesh.shape != sharding.mesh.shape:
            return None
        sharding = jax.sharding.NamedSharding(own.mesh, sharding.spec, memory_kind=own.memory_kind)
    elif not is_named(own) and topology_of(next(iter(sharding.device_set))) is not None:
        return None
    weak_type = bool(getattr(value, "weak_type", False))
    return jax.ShapeDtypeStruct(given.shape, given.dtype, sharding=sharding, weak_type=weak_type)
