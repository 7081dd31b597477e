"""The hosted workflow and the nox sessions that it runs."""

import ast
import re
from pathlib import Path

import pytest

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
