"""The installed script in another folder than that of the user's file: each command loads the same files."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.cli.launching import write_program

SCRIPT = Path(sysconfig.get_path("scripts")) / "jai-cli"
pytestmark = [pytest.mark.own_process, pytest.mark.newest]

STEP = """
    import jax, helper
    def f(x, w):
        return helper.g(x, w).sum(1)
    if __name__ == "__main__":
        print("done")
"""
FILES = {
    "sibling/helper.py": "def g(x, w):\n    return x @ w\n",
    "sibling/step.py": STEP,
    "pack/__init__.py": "",
    "pack/part.py": "def g(x, w):\n    return x @ w\n",
    "pack/step.py": STEP.replace("jax, helper", "jax\n    from . import part as helper"),
}
FILES["sibling/odd.py"] = f"""
import helper, multiprocessing, types
def twice(n):
    return 2 * n
scale = 1
if __name__ != "__mp_main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        scale = pool.apply(twice, (2,))
def step(x, w):
    return (scale * helper.g(x, w)).sum(1)
variables = {{"__builtins__": __builtins__, "helper": helper, "scale": scale}}
f = types.FunctionType(step.__code__, variables, "f")
def deep(y):
    return y{" + 1" * 1500}
"""
"""A file that starts a process, with a function of other globals, and with a long expression."""
OPTIONS = ("--mesh", "x=2,y=2", "--arg", "f32[256,256]@-,y", "--arg", "f32[256,256]@-,x")


def scripted(folder, *arguments):
    """Run the installed script in a folder."""
    for name, text in FILES.items():
        write_program(folder, text, name)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        [SCRIPT, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["program", "sibling/odd.py:f", *OPTIONS], "helper.py:2 g"),
        (["why", "sibling/step.py:f", *OPTIONS], "step.py:"),
        (["advise", "pack.step:f", *OPTIONS, "--budget", "5s", "--balance", "500"], "500 FLOPs (--balance)"),
        (["advise", "sibling/odd.py:f", *OPTIONS, "--budget", "5s"], "Expressions of odd.py are not changed"),
        (["run", "--devices", "1", "sibling/step.py"], "done"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_file_finds_the_modules_of_its_folder(tmp_path, arguments, words):
    """So does a module of a package in the current folder."""
    done = scripted(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout
