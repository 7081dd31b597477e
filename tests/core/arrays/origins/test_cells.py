"""Notebook cells are named as IPython names them."""

import sys
import types

import pytest

from jax_array_info_core.arrays.origins.origins import UserLines, cell_number, code_origin
from jax_array_info_core.reports import Origin

pytestmark = pytest.mark.newest

KERNEL = "/tmp/ipykernel_12/3456789.py"


def run_ipython(monkeypatch, compiler):
    """Make a shell with a compiler the running one."""
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: None if compiler is None else types.SimpleNamespace(compile=compiler)
    monkeypatch.setitem(sys.modules, "IPython", ipython)


@pytest.mark.parametrize("label", ["In[8]", "In [8]"])
def test_a_cell_has_its_number(label, monkeypatch):
    names = types.SimpleNamespace(format_code_name=lambda name: ("Cell", label) if name == KERNEL else None)
    run_ipython(monkeypatch, names)
    inner = UserLines().origin([(KERNEL, 4, "f")])
    assert (str(inner), inner.cell, inner.file) == ("Cell In[8], line 4 f", 8, KERNEL)
    assert str(UserLines().origin([(KERNEL, 4, "<module>")])) == "Cell In[8], line 4"
    assert str(UserLines().origin([("train.py", 4, "<module>")])) == "train.py:4 <module>"


def test_names_are_those_of_ipython_itself(monkeypatch):
    compilerop = pytest.importorskip("IPython.core.compilerop")
    compiler = compilerop.CachingCompiler()
    source = "def f():\n    return 1"
    name = compiler.cache(source, 8)
    run_ipython(monkeypatch, compiler)
    code = compile(source, name, "exec").co_consts[0]
    assert code_origin(code).place == "Cell In[8], line 1"


def test_a_terminal_s_cells_have_their_numbers_elsewhere_too():
    assert cell_number("<ipython-input-12-0123456789ab>") == 12
    assert Origin(file="<ipython-input-12-0>", line=1, function="f", cell=12).place == "Cell In[12], line 1"


@pytest.mark.parametrize("compiler", [None, object(), types.SimpleNamespace(format_code_name=lambda name: 3)])
def test_without_a_running_shell_there_are_no_cells(compiler, monkeypatch):
    run_ipython(monkeypatch, compiler)
    assert cell_number(KERNEL) is None
    assert cell_number(__file__) is None
