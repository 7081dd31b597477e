"""Collectives of a program."""

import re

from jax_array_info_core.arrays.origins.origins import UserLines
from jax_array_info_core.geometry.layouts.spec import MeshAxes
from jax_array_info_core.programs.collectives import collectives_of
from jax_array_info_core.xla.hlo.loops import executions
from tests.hlo_texts import module_of

FSDP = MeshAxes(("data", "fsdp", "tensor"), (2, 2, 2))
DP = MeshAxes(("dp",), (8,))


def of_text(program, mesh=FSDP):
    """Return the collectives of a program's text, all of which is understood."""
    return of_module(module_of(program), mesh)


def of_module(module, mesh=FSDP):
    """Return the collectives of a program, all of which is understood."""
    paths = {
        one.op_name: re.sub(r"\['(\w+)'\]", r"/\1", one.op_name) for one in module.parameters() if one.op_name
    }
    found, unread = collectives_of(module, executions(module), mesh, paths, UserLines())
    assert unread == ()
    return found
