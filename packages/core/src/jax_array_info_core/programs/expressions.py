"""The bytes that an expression sends, found in a helper process that compiles it for devices of the CPU."""

from __future__ import annotations

import ast
import math
import os
from typing import Any

from ..compat.lowering import sharded_struct
from ..geometry.layouts.spec import Spec, as_spec
from .program_report import program_report
from .raised.source import at_path

_BUILTINS = {"__import__": __import__}
"""Builtins of the expression: what JAX's own C++ needs below it."""


def sent_nbytes(question: dict[str, Any]) -> int | None:
    """Return the bytes that a device sends for an expression of JAX; None if some are not known.

    Args:
        question: ``code``; ``mesh``, of each axis its name, size and type; ``arrays``, by name the dtype,
            shape, axes and unreduced axes of an array; ``paths``, by name that of a part of JAX;
            ``constants``, by name the code of a literal; and ``x64``, whether JAX has 64-bit types.

    Raises:
        Exception: If JAX refuses the expression.
    """
    names, sizes, types = zip(*question["mesh"], strict=True)
    devices = _devices(math.prod(sizes), is_x64=question["x64"])
    import jax
    import numpy as np

    axis_types = tuple(getattr(jax.sharding.AxisType, type_) for type_ in types)
    mesh = jax.sharding.Mesh(np.array(devices).reshape(sizes), names, axis_types=axis_types)

    def struct(of_array: list[Any]) -> Any:
        dtype, shape, axes, unreduced = of_array
        leaf = jax.ShapeDtypeStruct(tuple(shape), jax.numpy.dtype(dtype))
        return sharded_struct(leaf, mesh, Spec(as_spec(axes).axes, unreduced=tuple(unreduced)), None)

    known = {name: at_path(path) for name, path in question["paths"].items()}
    known |= {name: ast.literal_eval(text) for name, text in question["constants"].items()}
    code = compile(question["code"], "<expression>", "eval")
    arrays = {name: struct(of_array) for name, of_array in question["arrays"].items()}
    with jax.set_mesh(mesh):
        # The code has functions of JAX, operators and lambdas of these alone.
        run = jax.jit(lambda given: eval(code, {"__builtins__": _BUILTINS, **known, **given}))  # noqa: S307
        return program_report(run, arrays, explain=False).sent_nbytes


def _devices(count: int, *, is_x64: bool) -> list[Any]:
    """Return so many devices of the CPU, without the settings of the program."""
    for name in [name for name in os.environ if name.startswith(("JAX_", "XLA_"))]:
        del os.environ[name]
    import jax
    from jax.extend.backend import clear_backends

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", is_x64)
    if jax.config.jax_num_cpu_devices != count:
        clear_backends()
        jax.config.update("jax_num_cpu_devices", count)
    return jax.devices()
