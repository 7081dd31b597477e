"""Files that XLA writes about a program that it refuses: they are read, and removed."""

import tempfile
from pathlib import Path

import jax
import pytest

from jax_array_info_core.compat.compiled_calls import refused_program

pytestmark = pytest.mark.newest


class Refused:
    """A lowered program whose compilation ends with an error, after XLA has written some files."""

    def __init__(self, error, files):
        self.error, self.files = error, files

    def compile(self, compiler_options):
        assert compiler_options["xla_dump_hlo_as_proto"] is True
        for name, data in self.files.items():
            (Path(compiler_options["xla_dump_to"]) / name).write_bytes(data)
        raise self.error


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


REFUSAL = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: no")
FILES = {
    "module_0001.jit_f.after_optimizations.hlo.pb": b"the program",
    "module_0002.jit_g.after_optimizations.hlo.pb": b"a part",
    "module_0001.jit_f.after_optimizations_before_buffer_assignment.hlo.pb": b"something longer",
    "module_0001.jit_f.oom_intermediate_module.hlo.pb": b"something longer",
}


def test_the_record_is_that_of_the_largest_program_with_an_assignment(folder):
    assert refused_program(Refused(REFUSAL, FILES)) == b"the program"
    assert refused_program(Refused(REFUSAL, {})) is None
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), ValueError("no")])
def test_nothing_is_left_behind_by_an_interrupt(folder, error):
    with pytest.raises(type(error)):
        refused_program(Refused(error, FILES))
    assert list(folder.iterdir()) == []
