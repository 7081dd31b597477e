"""All checks of the project, as nox sessions. ``nox -l`` lists them, ``nox -s lint`` runs one.

``tests`` has a cell for each version of jax and number of simulated devices, such as
``nox -s "tests(jax=0.10.2, devices=8)"``. Markers select the cells in which a test runs, to avoid repeating
tests that cannot differ. ``nox -s full`` runs every test in every cell.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = [
    "lint",
    "types",
    "readme",
    "tests",
    "multiprocess",
    "integrations",
    "minimums",
    "bare",
    "build",
    "docs",
]

# The oldest and newest jax, and the last release of each minor version between them, each with a Python.
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
OLDEST, *_, NEWEST = PYTHON_FOR_JAX
DEVICES = (1, 4, 8)
# Processes × devices per process.
PROCESSES = ("2x4", "4x2", "8x1")
MIDDLE = "0.8.3"
CURRENT_PYTHON = "3.12"
LOWEST_PYTHON = "3.11"
SOURCES = [f"packages/{name}/src" for name in ("core", "rich_render", "cli")]
# Programs of several processes are one group and run one at a time, because each uses all cores.
PARALLEL = ("-n", "auto", "--dist", "loadgroup")


def find_programs() -> None:
    """Put uv and pyenv's interpreters on the path: nox and uv do not find inactive ones."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    pythons = sorted(map(str, root.glob("versions/3.*/bin")), reverse=True)
    path = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([*pythons, path, str(Path(sys.executable).parent)])


find_programs()


def environment_of(session: nox.Session, jax: str) -> Path:
    """Return the ``bin`` directory of the environment that all cells of one jax share.

    That of the oldest jax has the lowest supported version of every dependency. The first cell creates the
    environment, and the others use it as it is until ``pyproject.toml`` changes: an installation would take
    the packages away from the tests of another cell for a moment. A lock makes concurrent cells wait for it.
    """
    folder = Path(".nox").resolve() / f"jax-{jax}"
    folder.parent.mkdir(exist_ok=True)
    to_install = ["-e", ".[cli,test]", f"jax=={jax}"]
    if jax == OLDEST:  # the oldest of everything
        to_install += ["--resolution", "lowest-direct"]
    python, installed = str(folder / "bin" / "python"), folder / "installed.txt"
    wanted = "\n".join([*to_install, Path("pyproject.toml").read_text(encoding="utf-8")])
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not Path(python).exists():
            session.run("uv", "venv", "--quiet", "--python", PYTHON_FOR_JAX[jax], str(folder))
        if not installed.exists() or installed.read_text(encoding="utf-8") != wanted:
            session.run("uv", "pip", "install", "--quiet", "--python", python, *to_install)
            installed.write_text(wanted, encoding="utf-8")
        # What pytest compiles is for itself alone: the programs that tests start would compile it each time.
        session.run(python, "-m", "compileall", "-q", *SOURCES)
    return folder / "bin"


def run_in_environment(session: nox.Session, jax: str, *arguments: str, **variables: str) -> None:
    """Run pytest in the environment of one jax."""
    programs = environment_of(session, jax)
    env = {**variables, "PATH": os.pathsep.join([str(programs), os.environ["PATH"]])}
    session.run(str(programs / "python"), "-m", "pytest", "-q", *arguments, *session.posargs, env=env)


def run_tests(session: nox.Session, *arguments: str) -> None:
    """Run pytest on 8 simulated devices."""
    env = {"JAI_TEST_DEVICES": "8"}
    session.run("pytest", "-q", "-n", "auto", *arguments, *session.posargs, env=env)


def cells(*, is_full: bool) -> Callable[..., Any]:
    """Return a decorator for a session of each version of jax and number of simulated devices.

    Unless ``is_full``, only the newest jax runs on 4 devices, and one more on 1: what differs between numbers
    of devices does not depend on the version. The session ``readme`` has the newest on 8.
    """
    return nox.parametrize(
        ("python", "jax", "devices"),
        [
            nox.param(python, jax, devices, id=f"jax={jax}, devices={devices}")
            for jax, python in PYTHON_FOR_JAX.items()
            for devices in DEVICES
            if is_full
            or (jax != NEWEST) == (devices == max(DEVICES))
            or (jax == MIDDLE and devices == min(DEVICES))
        ],
    )


@nox.session(python=CURRENT_PYTHON)
def lint(session: nox.Session) -> None:
    """Style, formatting, and the import layers of docs/architecture.md."""
    session.install("ruff==0.17.*", "import-linter==2.*", "-e", ".[cli]")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports", "--no-cache")


@nox.session(python=CURRENT_PYTHON)
def types(session: nox.Session) -> None:
    """Strict static types of all three packages and of the site's hooks."""
    session.install("mypy==2.*", "types-Markdown", "types-protobuf", "-e", ".[cli,docs]", f"jax=={NEWEST}")
    session.run("mypy", *SOURCES, "docs_hooks")


@nox.session(python=PYTHON_FOR_JAX[NEWEST])
def readme(session: nox.Session) -> None:
    """The README's test command, on the newest jax and 8 devices: all tests that start no programs."""
    (command,) = re.findall(r"^python3 -m venv .* pytest .*", Path("README.md").read_text("utf-8"), re.M)
    environment = Path(session.create_tmp()).resolve() / "environment"
    session.run("bash", "-c", command.replace(".venv", str(environment)), external=True)


@nox.session(venv_backend="none")
@cells(is_full=False)
def tests(session: nox.Session, jax: str, devices: int) -> None:
    """The tests that depend on the version of jax or the number of simulated devices."""
    selected = "not own_process and not newest" if devices == max(DEVICES) else "everywhere"
    run_in_environment(session, jax, "-n", "auto", "-m", selected, "tests", JAI_TEST_DEVICES=str(devices))


@nox.session(venv_backend="none")
@cells(is_full=True)
def full(session: nox.Session, jax: str, devices: int) -> None:
    """Every test on one version of jax and one number of simulated devices, before a release."""
    paths = ["tests", "README.md"] if jax == NEWEST else ["tests"]
    run_in_environment(session, jax, *PARALLEL, *paths, JAI_TEST_DEVICES=str(devices), JAI_FULL="1")


@nox.session(venv_backend="none")
@nox.parametrize(
    ("python", "jax", "processes"),
    [
        nox.param(PYTHON_FOR_JAX[jax], jax, processes, id=f"jax={jax}, processes={processes}")
        for jax, numbers in ((OLDEST, PROCESSES[:1]), (MIDDLE, PROCESSES[1:2]), (NEWEST, PROCESSES))
        for processes in numbers
    ],
)
def multiprocess(session: nox.Session, jax: str, processes: str) -> None:
    """Tests that start programs or read the whole heap, on one version of jax."""
    # Tests outside tests/multiprocess, and those of hosts, set their own number of processes: they run once.
    everything = processes == PROCESSES[0] and jax in (OLDEST, NEWEST)
    selected = "own_process" if jax == NEWEST else "own_process and not newest"
    paths = ["tests"] if everything else ["tests/multiprocess"]
    if not everything and jax != MIDDLE:
        paths += ["--ignore=tests/multiprocess/test_hosts.py"]
    run_in_environment(session, jax, *PARALLEL, "-m", selected, *paths, JAI_TEST_PROCESSES=processes)


@nox.session(python=PYTHON_FOR_JAX[NEWEST])
def integrations(session: nox.Session) -> None:
    """Tests with flax, equinox, optax, orbax and safetensors on the newest jax, and some mutated inputs."""
    libraries = ("equinox", "flax", "h5py", "optax", "orbax-checkpoint", "safetensors", "zarr")
    session.install("-e", ".[cli,test,checkpoint]", f"jax=={NEWEST}", *libraries)
    # Some of the inputs and programs of the session fuzz are tried here, in at most 90 s of one core.
    run_tests(session, "tests/integrations", "tests/fuzz")


@nox.session(python=PYTHON_FOR_JAX[NEWEST])
def fuzz(session: nox.Session) -> None:
    """Mutated inputs of every reader, 20,000 of each format, interrupts, and all variants of programs."""
    libraries = ("equinox", "flax", "optax", "orbax-checkpoint", "safetensors")
    session.install("-e", ".[cli,test,checkpoint]", f"jax=={NEWEST}", *libraries)
    session.env["JAI_FUZZ"] = "long"
    advice = ("tests/cli/test_advise.py", "tests/integrations/test_advise_mistakes.py")
    rooms = ("tests/fuzz", "tests/core/jobs/logs/test_mutations.py", *advice)
    run_tests(session, *rooms)


@nox.session(python=PYTHON_FOR_JAX[NEWEST], name="ahead-of-time")
def ahead_of_time(session: nox.Session) -> None:
    """Programs compiled for TPUs and GPUs that are not here, on Linux and x86-64.

    Installs libtpu, which has a license of its own: the Google Cloud Platform Terms of Service.
    """
    session.install("-e", ".[cli,test]", f"jax[tpu]=={NEWEST}")
    # Without the plugin, the tests of GPUs are skipped.
    session.run(
        "uv",
        "pip",
        "install",
        "--quiet",
        f"jax-cuda12-plugin=={NEWEST}",
        external=True,
        success_codes=[0, 1, 2],
    )
    session.run("pytest", "-q", "tests/ahead_of_time", *session.posargs, env={"JAI_TEST_DEVICES": "8"})


@nox.session(python=LOWEST_PYTHON)
def minimums(session: nox.Session) -> None:
    """What starts from files and reports, with the lowest version of every dependency."""
    libraries = ("orbax-checkpoint==0.11.0", "safetensors==0.4.0")
    session.install("--resolution", "lowest-direct", "-e", ".[cli,test,checkpoint]", *libraries)
    rooms = (
        "tests/integrations/checkpoints",
        "tests/core/facts/reports",
        "tests/rich_render/svg",
        "tests/rich_render/test_goldens.py",
        "tests/cli/test_saved_reports.py",
    )
    run_tests(session, "-m", "not own_process", *rooms)


@nox.session(python=CURRENT_PYTHON)
def bare(session: nox.Session) -> None:
    """Without click, the command prints how to install it; the core needs neither click nor rich."""
    session.install("-e", ".[test]")
    session.run("jai-cli", success_codes=[1])
    run_tests(
        session, "-m", "not own_process", "tests/rich_render/test_who_prints.py", "tests/rich_render/tables"
    )
    session.run("uv", "pip", "uninstall", "rich", external=True, silent=True)
    # That the core imports neither is a contract of the session lint.
    rooms = [f"tests/core/{room}" for room in ("arrays/test_labels.py", "programs/test_report.py", "trees")]
    run_tests(session, "-m", "once_per_version and not own_process", *rooms)


@nox.session(python=CURRENT_PYTHON)
def build(session: nox.Session) -> None:
    """The sdist and the wheel built from it, in ``dist/``; the sdist's tests run on the wheel."""
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
    # These tests find what a wheel may lack: modules, data files, the command and dependencies.
    run_tests(
        session,
        "-m",
        "not own_process",
        "tests/cli",
        "tests/rich_render/test_original.py",
        "tests/test_architecture.py",
    )


@nox.session(python=CURRENT_PYTHON)
def docs(session: nox.Session) -> None:
    """The site, built strictly into ``site/`` with its code run; then tests of its pages and links.

    ``-- --write`` writes the output of the code into the pages instead; names of pages may follow.
    """
    session.install("-e", ".[cli,docs,test]", f"jax=={NEWEST}")
    if "--write" in session.posargs:
        session.run("python", "-m", "docs_hooks", *(arg for arg in session.posargs if arg != "--write"))
        return
    session.run("python", "-m", "tests.site.chromium")
    session.run("python", "-m", "mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    run_tests(session, "tests/site")


@nox.session(python=CURRENT_PYTHON)
def bench(session: nox.Session) -> None:
    """The benchmarks, as ratios. They have no thresholds."""
    session.install("-e", ".[cli]")
    for script in sorted(Path("benchmarks").glob("*.py")):
        if script.stem != "compare":
            session.run("python", str(script))
