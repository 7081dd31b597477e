"""The hosted workflow and the nox sessions that it runs."""

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import pytest_ignore_collect

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parent.parent
WORKFLOW = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")


def sessions_of_nox():
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    functions = [statement for statement in tree.body if isinstance(statement, ast.FunctionDef)]
    return {
        function.name
        for function in functions
        if any("nox.session" in ast.unparse(decorator) for decorator in function.decorator_list)
    }


def test_each_session_in_the_workflow_exists_in_nox():
    named = re.findall(r"nox -s (\w+)|matrix\.session == '(\w+)'", WORKFLOW)
    assert {first or second for first, second in named} <= sessions_of_nox()
    assert ("bench", "") in named


def test_the_workflow_takes_its_matrix_from_nox_alone():
    assert "nox --json -l" in WORKFLOW
    assert not re.findall(r"\b0\.\d+\.\d+|\b3\.1\d\b", WORKFLOW), "no version of jax or Python is repeated"


def test_every_week_the_workflow_runs_all_of_what_the_gate_tries_in_part():
    assert "schedule:" in WORKFLOW
    assert re.findall(r"= schedule \]; then uvx nox --json -l -s (\w+); else", WORKFLOW) == ["fuzz"]
    assert "fuzz" in sessions_of_nox()


NOTHING, ONE, TWO = (
    "",
    "pytestmark = pytest.mark.newest\n",
    "pytestmark = [\n    pytest.mark.own_process,\n    on_linux,\n]\n",
)
INNER = "@pytest.mark.own_process\ndef test_some(): ...\n"


@pytest.mark.parametrize(
    ("selected", "source", "is_left_out"),
    [
        ("", TWO, False),
        ("everywhere", NOTHING, False),
        ("everywhere", ONE, True),
        ("everywhere", TWO, True),
        ("everywhere", INNER, False),
        ("not own_process and not once_per_version", ONE, False),
        ("not own_process and not newest", ONE, True),
        ("not own_process", TWO, True),
        ("not own_process", INNER, False),
        ("not own_process or newest", TWO, False),
        ("own_process", TWO, False),
        ("own_process", INNER, False),
        ("own_process", NOTHING, True),
        ("own_process and not newest", ONE + INNER, True),
        ("once_per_version and not own_process", NOTHING, False),
    ],
)
def test_a_module_is_left_out_only_if_none_of_its_tests_is_selected(selected, source, is_left_out, tmp_path):
    path = tmp_path / "test_some.py"
    path.write_text(source)
    config = SimpleNamespace(option=SimpleNamespace(markexpr=selected))
    assert bool(pytest_ignore_collect(path, config)) == is_left_out
    assert not pytest_ignore_collect(path.with_name("some.py"), config)
