"""Rematerialization warnings of one compilation."""

import os
import re
import subprocess
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat.compile_events import compile_lowered, prints_warnings
from jax_array_info_core.hlo.module import Module
from jax_array_info_core.layouts.spec import MeshAxes
from jax_array_info_core.origins.origins import UserLines
from jax_array_info_core.programs.warnings_of_compile import captured_warnings, rematerializations_of
from tests.arrays import mesh_of
from tests.c_stderr import write_in_c
from tests.documents import run_python
from tests.logs import WORDINGS

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]

MESH = MeshAxes(("x", "y"), (4, 2))


def lowered(function=None):
    """Return a program of a function, or one that XLA can only partition by replicating its argument."""
    mesh = mesh_of((4, 2), ("x", "y"))
    after = NamedSharding(mesh, P(None, ("x", "y")))

    def program(a):
        return lax.with_sharding_constraint(a * 2, after) + 1  # the line of the warning

    a = jax.ShapeDtypeStruct((16, 16, 16), jnp.float32, sharding=NamedSharding(mesh, P("y", None, "x")))
    return jax.jit(function or program).lower(a)


def reported(program, *, fresh=False):
    compiled = []
    captured = captured_warnings(lambda: compiled.append(compile_lowered(program, fresh=fresh)))
    module = module_of(compiled[0].as_text())
    return captured, rematerializations_of(captured.text, module, MESH, UserLines())


def test_a_rematerialization_is_told_in_specs_with_its_line(capfd):
    captured, [found] = reported(lowered())
    assert captured.known == "known"
    assert (str(found.before), str(found.after)) == ("P('y', None, 'x')", "P(None, ('x', 'y'))")
    assert (found.shape, found.dtype, found.nbytes, found.count) == (
        (8, 16, 4),
        "float32",
        16 * 16 * 16 * 4,
        1,
    )
    line = Path(found.origin.file).read_text("utf-8").splitlines()[found.origin.line - 1]
    assert found.origin.file == __file__
    assert "the line of the warning" in line
    assert "rematerialization" not in capfd.readouterr().err


def test_a_fresh_compilation_is_told_each_time_and_one_from_a_cache_never():
    program = lowered()
    asked = [reported(program, fresh=fresh) for fresh in (False, False, True, True, False)]
    known = [captured.known for captured, _ in asked]
    assert known == ["known", "compiled before", "known", "known", "compiled before"]
    assert [len(found) for _, found in asked] == [1, 0, 1, 1, 0]


def test_a_program_without_warnings_has_none():
    captured, found = reported(lowered(lambda a: a + 1))
    assert (captured.known, captured.text, found) == ("known", "", ())


def test_what_is_compiled_freshly_is_not_kept():
    program = lowered()
    program.compile()
    client = jax.devices()[0].client
    before = len(client.live_executables())
    for _ in range(3):
        compile_lowered(program, fresh=True)
        assert len(client.live_executables()) == before


def test_only_lines_with_the_prefix_and_the_file_of_xla_are_taken(capfd):
    warning = WORDINGS["0.10.2"]
    words = warning.partition("] ")[2]
    others = [
        "before",
        words,
        f"W1122 17:39:56.673246    3133 mine.cc:656] {words}",
        "Involuntary full rematerialization, said a user",
        warning.replace("[SPMD]", "[user]"),
    ]
    captured = captured_warnings(lambda: write_in_c(warning, *others, WORDINGS["0.4.38"]))
    assert captured.text == f"{warning}\n{WORDINGS['0.4.38']}\n"
    assert capfd.readouterr().err.splitlines() == others


def test_lines_of_xla_that_python_and_children_write_pass(capfd):
    line = f"{WORDINGS['0.10.2']}\n"

    def write():
        os.write(2, line.encode())
        subprocess.run(["/bin/sh", "-c", 'printf %s "$0" >&2', line], check=True)

    assert captured_warnings(write).text == ""
    assert capfd.readouterr().err == line * 2


def test_warnings_of_another_python_thread_pass(capfd):
    def line():
        return WORDINGS["0.10.2"].replace("3133", str(threading.get_native_id()))

    def work():
        write_in_c(line())
        time.sleep(1)  # it is passed on while the thread still exists
        # Read once: what is written while capfd empties its file is lost.
        passed.extend(capfd.readouterr().err.splitlines())

    def write():
        write_in_c(line())
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    passed = []
    assert captured_warnings(write).text == f"{line()}\n"
    assert len(passed) == 1


def test_each_of_several_threads_has_the_warnings_of_its_program():
    found = {}

    def work(number):
        def program(a):
            return jnp.sin(a) * number

        wanted = lowered(program) if number % 2 else lowered()
        found[number] = len(reported(wanted, fresh=True)[1])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: 1, 1: 0, 2: 1, 3: 0}


def test_equal_warnings_are_one_row_and_the_largest_comes_first():
    small = WORDINGS["0.10.2"].replace("f32[8,16,4]", "f32[8,16,2]")
    text = "\n".join([small, WORDINGS["0.10.2"], WORDINGS["0.10.2"], WORDINGS["0.4.28"]])
    rows = rematerializations_of(text, Module("m", "", {}), MESH, UserLines())
    assert [(row.nbytes, row.count, row.op) for row in rows] == [
        (16384, 2, "jit(two)/add"),
        (8192, 1, "jit(two)/add"),
        (None, 1, ""),
    ]
    assert {str(row.before) for row in rows} == {"P('y', None, 'x')"}
    [row] = rematerializations_of(small, Module("m", "", {}), None, UserLines())
    assert (row.before, row.before_text) == (None, "{devices=[2,1,4]<=[4,2]T(1,0)}")


class Lowered:
    """A lowered program of two multiplications and a constraint."""

    def as_text(self, *, debug_info):
        assert debug_info
        places = [("mul", 4), ("mul", 5), ("sharding_constraint", 6)]
        body = "".join(f"    %{line} = op loc(#loc{line}2)\n" for _, line in places)
        locations = "".join(
            f'#loc{line} = loc("f.py":{line}:0 to :9)\n'
            f'#loc{line}1 = loc("f"(#loc{line}))\n'
            f'#loc{line}2 = loc("jit(f)/{name}"(#loc{line}1))\n'
            for name, line in places
        )
        return f"module @jit_f {{\n  func.func public @main() {{\n{body}  }}\n}}\n{locations}"


TABLE = """\
HloModule jit_f, num_partitions=8

FileNames
1 "f.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=0 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


ENTRY %main () -> f32[] {
  ROOT %c = f32[] constant(0)
}
"""


@pytest.mark.parametrize(
    ("name", "platform", "line"),
    [
        ("mul", "cpu", 5),
        ("mul", "tpu", None),
        ("sharding_constraint", "cpu", 6),
        ("sharding_constraint", "tpu", 6),
        ("jit(g)/sin", "tpu", None),
    ],
    ids=["the number", "several lines", "not of the name", "the only line", "not known"],
)
def test_the_number_of_a_frame_is_not_one_of_the_compiled_program_for_another_platform(name, platform, line):
    """There, the line is the one of the operation of that name, if all have the same."""
    warning = WORDINGS["0.10.2"]
    metadata = re.compile(r"metadata=\{[^}]*\}")
    assert metadata.search(warning)
    warning = metadata.sub(f'metadata={{op_name="jit(f)/{name}" stack_frame_id=1}}', warning)
    [row] = rematerializations_of(
        warning, module_of(TABLE), MESH, UserLines(), lowered=Lowered(), platform=platform
    )
    assert (row.origin and row.origin.line) == line


def test_the_levels_of_logs_that_hide_the_warnings_are_known(monkeypatch):
    assert prints_warnings(None)
    assert not prints_warnings("tpu")
    monkeypatch.setenv("TPU_STDERR_LOG_LEVEL", "1")
    assert prints_warnings("tpu")


LEVEL = """
from tests.core.programs.test_warnings_of_compile import captured_warnings, lowered, prints_warnings
captured = captured_warnings(lambda: lowered().compile())
print(bool(captured.text), captured.known, prints_warnings(None))
"""


@pytest.mark.own_process
@pytest.mark.parametrize("level", ["2", "3"])
def test_what_is_not_printed_is_not_known(level):
    root = str(Path(__file__).parents[3])
    printed = run_python(LEVEL, TF_CPP_MIN_LOG_LEVEL=level, PYTHONPATH=root).split("\n")[0]
    assert printed in ("True known True", "False not captured False")


CACHE = """
import os
from tests.core.programs.test_warnings_of_compile import lowered, reported
from tests.hlo_texts import module_of
folder = os.environ["JAX_COMPILATION_CACHE_DIR"]
known = lambda fresh: reported(lowered(), fresh=fresh)[0].known
print(known(False), known(True), known(True), known(False))

"""


@pytest.mark.own_process
def test_the_persistent_cache_neither_answers_a_fresh_compilation_nor_gets_its_program(tmp_path):
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]),
    }
    first = run_python(CACHE, **settings).splitlines()
    entries = sorted(path.name for path in tmp_path.iterdir() if "-atime" not in path.name)
    assert first[0] == "known known known compiled before"
    second = run_python(CACHE, **settings).splitlines()
    assert second[0] == "compiled before known known compiled before"
    assert sorted(path.name for path in tmp_path.iterdir() if "-atime" not in path.name) == entries
    assert len([name for name in entries if "program" in name]) == 1
