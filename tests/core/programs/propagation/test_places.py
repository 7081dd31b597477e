"""Lines of files and functions whose names have characters that MLIR escapes."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import to_html
from jax_array_info_core import program_report, propagation_report
from jax_array_info_core.programs.propagation.graph import read_place
from jax_array_info_core.programs.propagation.propagation_report import at_line
from tests.core.programs.propagation.programs import needs_shardy, struct

pytestmark = needs_shardy

SOURCE = """\
import jax
from jax.sharding import PartitionSpec as P

def größe(x, mesh):
    y = x * 2
    return jax.lax.with_sharding_constraint(y, jax.sharding.NamedSharding(mesh, P()))
"""


@pytest.fixture
def größe(tmp_path):
    """Return a function of a file in a folder with such a name."""
    folder = tmp_path / 'é "q"\tα' / r"back\09slash"
    folder.mkdir(parents=True)
    path = folder / "größe.py"
    path.write_text(SOURCE, "utf-8")
    spec = importlib.util.spec_from_file_location("größe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.größe


def test_a_line_is_found_in_a_file_with_any_name(größe):
    x = struct((32, 64), "data")
    report = propagation_report(lambda x: größe(x, x0.sharding.mesh), x0 := x)
    file = größe.__code__.co_filename
    [loss] = report.lost
    assert (loss.origin.file, loss.origin.line, loss.origin.function) == (file, 5, "größe")
    assert (loss.constraint.file, loss.constraint.line) == (file, 6)
    for text in ("größe.py:5", f"{file}:5"):
        assert at_line(report, text).lost == (loss,)
    assert "y = x * 2" in to_html(report)


@pytest.mark.needs_devices(8)
def test_a_collective_has_its_reason_from_a_file_with_any_name(größe):
    mesh = Mesh(np.reshape(jax.devices()[:8], (4, 2)), ("data", "model"))
    x = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    report = program_report(lambda x: größe(x, mesh), x)
    [[because]] = [one.because for one in report.collectives]
    assert (because.kind, because.origin.file) == ("constraint", größe.__code__.co_filename)


@pytest.mark.parametrize(
    ("escaped", "text"),
    [(r"\C3\A9", "é"), (r"\22\5C\\", '"\\\\'), (r"\\09\09", "\\09\t"), (r"\FF", "\ufffd")],
)
def test_bytes_of_locations_are_hexadecimal(escaped, text):
    place = read_place(f'loc("jit({escaped})/sin"("{escaped}"("{escaped}.py":3:4 to :9)))')
    assert place.name == f"jit({text})/sin"
    assert place.frames == ((f"{text}.py", 3, text),)
