"""The code of changes, with the names of the program."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from jax_array_info_core.geometry.layouts.spec import MeshAxes, Spec
from jax_array_info_core.programs.advice.code import constraint_code, spec_code

if not hasattr(jax, "typeof"):
    pytest.skip("advice needs JAX 0.5 or later, which has typeof", allow_module_level=True)
if len(jax.devices()) < 8:
    pytest.skip("the mesh of the programs has 8 devices", allow_module_level=True)

AXES = MeshAxes(("data", "model"), (4, 2))
SPEC = Spec((("data", "model"), ()))
MESH = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))


@pytest.mark.parametrize(
    ("names", "code", "imports"),
    [
        (
            {"jax": jax, "P": PartitionSpec, "NamedSharding": NamedSharding, "mesh": MESH},
            'jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P(("data", "model"))))',
            "",
        ),
        (
            {"j": jax, "lax": jax.lax, "of_model": MESH, "m": Mesh(MESH.devices.T, ("model", "data"))},
            "lax.with_sharding_constraint(x @ w, j.sharding.NamedSharding(of_model, "
            'j.sharding.PartitionSpec(("data", "model"))))',
            "",
        ),
        (
            {},
            "jax.lax.with_sharding_constraint(x @ w, jax.sharding.NamedSharding(jax.typeof(x).sharding.mesh, "
            'jax.sharding.PartitionSpec(("data", "model"))))',
            "import jax",
        ),
        (
            {"wsc": jax.lax.with_sharding_constraint, "S": jax.sharding, "one": MESH, "a": MESH},
            'wsc(x @ w, S.NamedSharding(a, S.PartitionSpec(("data", "model"))))',
            "",
        ),
    ],
)
def test_a_constraint_has_the_names_of_the_program(names: dict[str, Any], code: str, imports: str) -> None:
    """Its own names for the parts of JAX and for the mesh, and written out without them."""
    found = constraint_code("x @ w", SPEC, names, "x", mesh=AXES, is_explicit=False)
    assert found == (code, imports)


@pytest.mark.parametrize("names", [{"jax": None, "mesh": MESH}, {"jax": jax.numpy, "mesh": MESH}])
def test_a_file_whose_jax_is_another_gets_no_code(names: dict[str, Any]) -> None:
    """An import would replace it."""
    with pytest.raises(LookupError, match="jax is another name"):
        constraint_code("x", SPEC, names, None, mesh=AXES, is_explicit=False)


def test_two_meshes_of_the_same_axes_are_taken_from_an_array() -> None:
    """One of them has other places of the devices, and no name tells which it is."""
    names = {"jax": jax, "mesh": MESH, "other": Mesh(MESH.devices[::-1], ("data", "model"))}
    found, _ = constraint_code("x", SPEC, names, "x", mesh=AXES, is_explicit=False)
    assert "jax.typeof(x).sharding.mesh" in found
    with pytest.raises(LookupError):
        constraint_code("x", SPEC, names, None, mesh=AXES, is_explicit=False)


def test_a_mesh_with_devices_is_preferred() -> None:
    """An abstract one has the same axes."""
    names = {"jax": jax, "a": AbstractMesh((4, 2), ("data", "model")), "of_devices": MESH}
    assert "(of_devices, " in constraint_code("x", SPEC, names, None, mesh=AXES, is_explicit=False)[0]


@pytest.mark.skipif(
    not hasattr(jax.sharding, "reshard"),
    reason="explicit axes are written with jax.sharding.reshard, which this JAX lacks",
)
def test_explicit_axes_are_resharded() -> None:
    """A constraint is an error there."""
    names = {"jax": jax, "mesh": MESH, "reshard": jax.sharding.reshard}
    found, _ = constraint_code("x", SPEC, names, None, mesh=AXES, is_explicit=True)
    assert found.startswith("reshard(x, ")


def test_a_spec_has_no_trailing_none() -> None:
    """It is written as a user writes it."""
    assert spec_code(Spec(((), ()))) == "P()"
    assert spec_code(Spec(((), ("model",), ()))) == 'P(None, "model")'


def test_the_code_runs() -> None:
    """With the names that it was written for, and without a mesh among them."""
    x = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(MESH, PartitionSpec("data")))
    for names in ({"jax": jax, "mesh": MESH}, {"jax": jax}, {"P": PartitionSpec}):
        code, imports = constraint_code("x * 2", SPEC, names, "x", mesh=AXES, is_explicit=False)

        variables: dict[str, Any] = {**names}
        exec(imports, variables)

        def f(x: Any, code: str = code, variables: dict[str, Any] = variables) -> Any:
            return eval(code, {**variables, "x": x})

        compiled = jax.jit(f).lower(x).compile()
        assert compiled.output_shardings.shard_shape((8, 8)) == (1, 8)
