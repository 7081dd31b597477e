"""Every check of the project, as sessions: ``nox -l`` lists them, ``nox -s lint`` runs one.

``tests`` has a cell for each version of jax and number of fake devices, named as
``nox -s "tests(jax=0.10.2, devices=8)"``.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["lint", "types", "tests", "multiprocess", "minimums", "bare", "build", "docs"]

# The oldest, the newest and the last of each minor version between, on a Python that each supports.
PYTHON_FOR_JAX = {
    "0.4.38": "3.11",
    "0.5.3": "3.11",
    "0.6.2": "3.12",
    "0.7.2": "3.11",
    "0.8.3": "3.12",
    "0.9.2": "3.13",
    "0.10.2": "3.11",
    "0.11.2": "3.12",
    "0.12.0.1": "3.13",
}
DEVICES = (1, 4, 8)
# Processes × devices of each, on the oldest, a middle and the newest jax.
PROCESSES = ("2x4", "4x2", "8x1")
JAX_OF_PROCESSES = ("0.4.38", "0.8.3", "0.12.0.1")
# Tests of the command that are alike on all versions, and long: the README's test command runs them.
ALIKE = ("terminal", "help", "large_tour")
CURRENT_PYTHON = "3.12"
LOWEST_PYTHON = "3.11"
SOURCES = [f"packages/{name}/src" for name in ("core", "rich_render", "cli")]


def find_inactive_pythons() -> None:
    """Put pyenv's interpreters on the path: neither nox nor uv looks for those that are not active."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = sorted(map(str, root.glob("versions/3.*/bin")), reverse=True)
    os.environ["PATH"] = os.pathsep.join([*found, os.environ.get("PATH", "")])


find_inactive_pythons()


def run_tests(session: nox.Session, *paths: str, devices: int = 8) -> None:
    """Run pytest on so many fake devices, without what starts programs: ``multiprocess`` runs that."""
    env = {"JAI_TEST_DEVICES": str(devices)}
    # The README brings its own devices: once for a version of jax.
    paths = paths or (("tests", "README.md") if devices == 8 else ("tests",))
    session.run("pytest", "-q", "-n2", "-m", "not own_process", *paths, *session.posargs, env=env)


@nox.session(python=CURRENT_PYTHON)
def lint(session: nox.Session) -> None:
    """Style, formatting, and the layers of ``ARCHITECTURE``: who may import whom."""
    session.install("ruff==0.17.*", "import-linter==2.*", "-e", ".[cli]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports", "--no-cache")


@nox.session(python=CURRENT_PYTHON)
def types(session: nox.Session) -> None:
    """Static types, strictly, of all three packages and of what makes the site."""
    session.install("mypy==2.*", "types-Markdown", "types-protobuf", "-e", ".[cli,docs]", "jax==0.12.0.1")
    session.run("mypy", *SOURCES, "docs_hooks")


@nox.session
@nox.parametrize(
    ("python", "jax", "devices"),
    [
        nox.param(python, jax, devices, id=f"jax={jax}, devices={devices}")
        for jax, python in PYTHON_FOR_JAX.items()
        for devices in DEVICES
    ],
)
def tests(session: nox.Session, jax: str, devices: int) -> None:
    """The tests on one version of jax and one number of fake devices."""
    session.install("-e", ".[cli,test]", f"jax=={jax}")
    run_tests(session, devices=devices)


@nox.session
@nox.parametrize(
    ("python", "jax", "processes"),
    [
        nox.param(PYTHON_FOR_JAX[jax], jax, processes, id=f"jax={jax}, processes={processes}")
        for jax in JAX_OF_PROCESSES
        for processes in PROCESSES
    ],
)
def multiprocess(session: nox.Session, jax: str, processes: str) -> None:
    """Programs that tests start, on one version of jax; each of them ends itself after a while."""
    session.install("-e", ".[cli,test]", f"jax=={jax}")
    paths = ["tests/multiprocess"]
    # Other tests have numbers of processes of their own; the README's test command runs them on a version
    # between these.
    if processes == PROCESSES[0] and jax in (JAX_OF_PROCESSES[0], JAX_OF_PROCESSES[-1]):
        paths = ["tests", *(f"--ignore=tests/cli/test_{name}.py" for name in ALIKE)]
    # One after the other: a program has as many processes as cores already.
    env = {"JAI_TEST_PROCESSES": processes}
    session.run("pytest", "-q", "-m", "own_process", *paths, *session.posargs, env=env)


@nox.session(python=LOWEST_PYTHON)
def minimums(session: nox.Session) -> None:
    """The tests on the lowest version of every dependency that the project admits."""
    session.install("--resolution", "lowest-direct", "-e", ".[cli,test]")
    run_tests(session)


@nox.session(python=CURRENT_PYTHON)
def bare(session: nox.Session) -> None:
    """Without click the command says what to install; the core needs neither click nor rich."""
    session.install("-e", ".[test]")
    session.run("jai-cli", success_codes=[1])
    run_tests(session, "tests/core", "tests/rich_render")
    session.run("uv", "pip", "uninstall", "rich", external=True, silent=True)
    run_tests(session, "tests/core")


@nox.session(python=CURRENT_PYTHON)
def build(session: nox.Session) -> None:
    """Sdist, and wheel made from it, in ``dist/``; the tests as the sdist has them, on the wheel alone."""
    shutil.rmtree("dist", ignore_errors=True)
    session.install("build", "twine")
    session.run("python", "-m", "build", silent=True)
    session.run("twine", "check", "--strict", *map(str, Path("dist").iterdir()))
    (wheel,), (sdist,) = Path("dist").glob("*.whl"), Path("dist").glob("*.tar.gz")
    unpacked = Path(session.create_tmp()).resolve() / sdist.name.removesuffix(".tar.gz")
    shutil.rmtree(unpacked, ignore_errors=True)
    shutil.unpack_archive(sdist, unpacked.parent, filter="data")
    tracked = session.run("git", "ls-files", external=True, silent=True) or ""
    if missing := [path for path in tracked.splitlines() if not (unpacked / path).exists()]:
        session.error(f"the sdist lacks {', '.join(missing)}")
    session.install(f"{wheel}[cli,test]")
    session.chdir(unpacked)
    run_tests(session)


@nox.session(python=CURRENT_PYTHON)
def docs(session: nox.Session) -> None:
    """The site, built strictly into ``site/``: its code runs, Chromium opens its pages, its links hold."""
    session.install("-e", ".[cli,docs,test]", "jax==0.12.0.1")
    session.run("python", "-m", "mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    session.run("pytest", "-q", "tests/site", *session.posargs)


@nox.session(python=CURRENT_PYTHON)
def bench(session: nox.Session) -> None:
    """The figures of ``benchmarks/``, as ratios; nothing fails on them."""
    session.install("-e", ".[cli]")
    for script in sorted(Path("benchmarks").glob("*.py")):
        if script.stem != "compare":
            session.run("python", str(script))
