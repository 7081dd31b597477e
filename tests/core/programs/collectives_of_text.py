"""Collectives of a program."""

import re

from jax_array_info_core.arrays.origins.origins import UserLines
from jax_array_info_core.geometry.layouts.spec import MeshAxes
from jax_array_info_core.programs.collectives import described_collectives, merged_collectives
from jax_array_info_core.xla.hlo.loops import executions
from tests.hlo_texts import module_of

FSDP = MeshAxes(("data", "fsdp", "tensor"), (2, 2, 2))
DP = MeshAxes(("dp",), (8,))


def collectives_of(module, mesh, paths, **given):
    """Return the collectives of a program, and the instructions that are not understood."""
    described, unread = described_collectives(module, executions(module), mesh, paths, UserLines(), **given)
    return merged_collectives(described), unread


def of_text(program, mesh=FSDP):
    """Return the collectives of a program's text, all of which is understood."""
    return of_module(module_of(program), mesh)


def of_module(module, mesh=FSDP):
    """Return the collectives of a program, all of which is understood."""
    paths = {
        one.op_name: re.sub(r"\['(\w+)'\]", r"/\1", one.op_name) for one in module.parameters() if one.op_name
    }
    found, unread = collectives_of(module, mesh, paths)
    assert unread == ()
    return found
