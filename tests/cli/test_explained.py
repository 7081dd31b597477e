"""``jai-cli run``, ``program`` and ``why``: JAX's errors that nothing catches are explained before their text."""

import jax
import pytest

from tests.cli.launching import jai, run, write_program

TRACEBACK = "Traceback (most recent call last)"

FAILING = """
import sys, threading
import jax.numpy as jnp
def fail(a):
    a.delete()
    return a + 1
"""
EXPLAINED = """\
deleted array at program.py:6 fail
    a + 1
      a  f32[30]
The memory of a is gone: it was deleted at line 5.
"""

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]


@pytest.mark.parametrize("options", [(), ("--quiet",), ("--record", "memory")])
def test_an_error_that_nothing_catches_is_explained_before_its_traceback(tmp_path, options):
    script = write_program(tmp_path, f"{FAILING}\nfail(jnp.zeros(30))")
    done = run(*options, script, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    before, _, text = done.stderr.partition(TRACEBACK)
    assert before == EXPLAINED
    assert "launch" not in text
    assert "RuntimeError: Array has been deleted" in text


def test_the_program_s_own_hook_is_called_afterwards(tmp_path):
    hook = "sys.excepthook = lambda kind, error, frames: print('hook', kind.__name__, file=sys.stderr)"
    done = run(write_program(tmp_path, f"{FAILING}\n{hook}\nfail(jnp.zeros(30))"))
    assert (done.returncode, done.stderr) == (1, f"{EXPLAINED}hook RuntimeError\n")


@pytest.mark.parametrize("hook", ["", "threading.excepthook = hook"])
def test_an_error_that_ends_a_thread_is_explained(tmp_path, hook):
    code = f"""
before = threading.excepthook
def hook(args):
    before(args)
    print("hook", file=sys.stderr)
{hook}
thread = threading.Thread(target=fail, args=(jnp.zeros(30),))
thread.start()
thread.join()
"""
    done = run("--quiet", write_program(tmp_path, f"{FAILING}{code}"))
    assert done.returncode == 0
    before, traceback, _ = done.stderr.partition("Exception in thread")
    assert (before, bool(traceback)) == (EXPLAINED, True)
    assert done.stderr.endswith("hook\n") == bool(hook)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("try:\n    fail(jnp.zeros(30))\nexcept RuntimeError:\n    print('caught')", 0),
        ("try:\n    fail(jnp.zeros(30))\nexcept RuntimeError:\n    sys.exit(7)", 7),
        ("raise SystemExit(3)", 3),
    ],
)
def test_an_error_that_is_caught_prints_nothing(tmp_path, ending, code):
    done = run("--quiet", write_program(tmp_path, f"{FAILING}\n{ending}"))
    assert (done.returncode, done.stderr) == (code, "")


def test_a_program_without_jax_has_only_its_traceback(tmp_path):
    script = write_program(tmp_path, "1 / 0")
    done = run(script)
    assert done.returncode == 1
    assert done.stderr.startswith(TRACEBACK)


def test_with_several_processes_each_line_is_prefixed(tmp_path):
    script = write_program(tmp_path, f"{FAILING}\nfail(jnp.zeros(30))")
    done = run("--quiet", "--processes", 2, "--devices", 1, script)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert any(line.endswith("] deleted array at program.py:6 fail") for line in lines)
    assert all(line.startswith(("[0] ", "[1] ", "jai-cli run: ")) for line in lines)


STEP = """
import jax.numpy as jnp
import numpy as np
gone = jnp.zeros(4)
gone.delete()
def f(x):
    return x + np.asarray(gone)
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("program", 1),
        pytest.param(
            "why",
            2,
            marks=pytest.mark.skipif(
                jax.__version_info__ < (0, 10, 1), reason="why needs JAX 0.10.1 or later"
            ),
        ),
    ],
)
def test_an_explanation_precedes_the_line_with_the_error(tmp_path, command, code):
    write_program(tmp_path, STEP, "step.py")
    done = jai(command, "step.py:f", "--mesh", "x=2", "--arg", "f32[4]", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("deleted array at step.py:7 f\n    np.asarray(gone)\n")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: step.py:f does not compile: RuntimeError: Array has been deleted")
    assert TRACEBACK not in done.stderr


GATHERS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("dp",))
tokens = jax.jit(lambda: jnp.arange(16), out_shardings=NamedSharding(mesh, P("dp")))()
def serve(tokens):
    return np.asarray(jax.device_get(tokens))
print(serve(tokens))
"""
CLOSES = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("slab",))
modes, field = (
    jax.jit(lambda: jnp.ones((8, 32)), out_shardings=NamedSharding(mesh, P("slab")))() for _ in range(2)
)
@jax.jit
def kick(f):
    return f * modes
kick(field)
"""
OF_SEVERAL = {
    GATHERS: """\
array of several processes at program.py:7 serve
    jax.device_get(tokens)
      tokens  i32[16@dp]
Other processes have shards of tokens: all of them gather it, by
  process_allgather of jax.experimental.multihost_utils.
Write this instead:
    process_allgather(tokens, tiled=True)
""",
    CLOSES: """\
closure over an array of several processes at program.py:11 <module>
    kick(field)
      modes  f32[8@slab,32]
kick closes over modes, with shards in other processes: pass it as an
  argument.
""",
}


@pytest.mark.newest
@pytest.mark.parametrize("program", OF_SEVERAL, ids=["fetched", "closed over"])
def test_errors_of_several_processes_are_explained(tmp_path, program):
    done = run("--processes", "2", "--devices", "1", write_program(tmp_path, program), cwd=tmp_path)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
    (rank, *_), *_ = (line.removeprefix("[").split("]") for line in lines)
    said = "\n".join(line.removeprefix(f"[{rank}] ") for line in lines if line.startswith(f"[{rank}]"))
    assert said.startswith(OF_SEVERAL[program] + TRACEBACK)


@pytest.mark.newest
def test_an_edit_that_gathers_runs(tmp_path):
    code = GATHERS.replace("jax.device_get(tokens)", "process_allgather(tokens, tiled=True)")
    imported = "from jax.experimental.multihost_utils import process_allgather\n"
    done = run("--processes", "2", "--devices", "1", "--quiet", write_program(tmp_path, imported + code))
    assert done.returncode == 0, done.stderr
    assert str([*range(16)]).replace(",", "") in done.stdout.replace("  ", " ").replace("[ ", "[")
