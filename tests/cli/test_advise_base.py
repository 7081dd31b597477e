"""``jai-cli advise``: the program that changes are compared with is that of ``jai-cli program``."""

import ast
import functools
import importlib
import inspect
import os
import sys
import types
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from jax_array_info_cli.advice.child import Values, _parts
from jax_array_info_cli.advice.instrument import Source
from jax_array_info_cli.commands.advise import _say_first
from jax_array_info_core.programs.raised.source import MISSING, value_of
from jax_array_info_core.reports import ProgramFigures, Remedy, RemedyPlace
from tests import right_programs
from tests.cli.advised import advice_on, called, mesh_of, random_program

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

IS_LONG = "JAI_FUZZ" in os.environ
DATA = Path(__file__).parents[1] / "data" / "advise"
SIZES = {"data": 4, "model": 2}


def with_calls(path, values):
    """Return the module of a file with calls around its expressions."""
    module = types.ModuleType("with_calls")
    module.__file__ = str(path)
    Source(lambda file: False, values).run(path.read_bytes(), str(path), module.__dict__)
    return module


def text_of(module, name, sizes):
    """Return the lowered program of a function of a module."""
    mesh = mesh_of(sizes)
    arguments, step = getattr(module, f"{name}_args")(mesh), getattr(module, name)
    if "mesh" in inspect.signature(step).parameters:
        step = functools.partial(step, mesh=mesh)
    arguments = arguments if type(arguments) is tuple else (arguments,)
    return (step if hasattr(step, "lower") else jax.jit(step)).lower(*arguments).as_text()


def assert_same(path, names, sizes=SIZES):
    """Assert that the functions of a file give the same programs with calls around their expressions."""
    values = Values()
    module = with_calls(path, values)
    for name in names:
        step, arguments = called(path, name, sizes)
        plain = (step if hasattr(step, "lower") else jax.jit(step)).lower(*arguments).as_text()
        assert text_of(module, name, sizes) == plain, name
    assert values.by_site


@pytest.mark.parametrize("file", ["wrong.py", "real.py"])
def test_the_base_of_a_program_is_the_program(file):
    """Its text is the same, so that each figure is."""
    text = (DATA / file).read_text(encoding="utf-8")
    names = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    names = [name for name in names if f"{name}_args" in names and name not in ("heads_uneven", "decode")]
    assert_same(DATA / file, names)
    other = {"wrong.py": "heads_uneven", "real.py": "decode"}[file]
    assert_same(DATA / file, [other], {"data": 2, "model": 4})


@pytest.mark.parametrize("seed", range(100 if IS_LONG else 3))
def test_the_base_of_a_random_program_is_the_program(seed, tmp_path):
    text, sizes = random_program(seed)
    (tmp_path / "step.py").write_text(text, encoding="utf-8")
    assert_same(tmp_path / "step.py", ["step"], sizes)


def test_the_bases_of_right_programs_are_the_programs(monkeypatch):
    """They are models and simulations with loops, gradients, shard_map and kernels."""
    for name in [name for name in sys.modules if name.startswith("tests.right_programs")]:
        monkeypatch.delitem(sys.modules, name)
    values = Values()
    source = Source(lambda file: os.path.basename(os.path.dirname(file)) != "right_programs", values)
    monkeypatch.setattr(sys, "meta_path", [source, *sys.meta_path])
    registry = importlib.import_module("tests.right_programs").registry
    assert registry is not right_programs.registry
    for name in right_programs.PROGRAMS if IS_LONG else right_programs.FAMILIES.values():
        texts = []
        for programs in (right_programs.registry, registry):
            function, arguments = programs.compiled_for(name)
            texts.append(function.lower(*arguments).as_text())
        assert texts[0] == texts[1], name
    assert len(values.by_site) > 100


NETS = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

class Net:
    def __init__(self, *weights): self.rest = list(weights)
    def __getitem__(self, key): return self.rest.pop(key)
    @property
    def w(self): return self.rest.pop(0)

def of_properties(x, a, b, c, d):
    net = Net(a, b, c, d)
    x = jnp.tanh(net.w) @ x
    return (jnp.tanh(net.w) @ x).sum(1)

def of_items(x, a, b):
    net = Net(a, b)
    return (jnp.tanh(net[0] @ x) @ net[0]).sum(1)

def arguments(mesh, *specs):
    return tuple(jax.ShapeDtypeStruct((512, 512), "float32", sharding=NamedSharding(mesh, P(*spec))) for spec in specs)

of_properties_args = lambda mesh: arguments(mesh, (None, "y"), (None, "x"), ("x", "y"), (), ("y", "x"))
of_items_args = lambda mesh: arguments(mesh, (None, "y"), (None, "x"), (None, "x"))
"""


@pytest.mark.parametrize(("name", "sent"), [("of_properties", 769 * 1024), ("of_items", 1_050_624)])
def test_weights_that_are_taken_one_after_another_are_those_of_the_program(name, sent, tmp_path, monkeypatch):
    """Each look at them would take the next."""
    monkeypatch.setattr("jax_array_info_cli.user_code.compiling._prepare_jax", lambda count: None)
    (tmp_path / "nets.py").write_text(NETS, encoding="utf-8")
    report = advice_on(tmp_path / "nets.py", name, {"x": 2, "y": 2})
    assert (report.base.sent_nbytes, report.failed) == (sent, 0)


NOTICES = """
import jax.numpy as jnp

seen = []

class Meta(type):
    def __getattribute__(cls, name):
        seen.append(f"Meta.{name}")
        return super().__getattribute__(name)
    def __instancecheck__(cls, value):
        seen.append("instance")
        return False
    def __subclasscheck__(cls, value):
        seen.append("subclass")
        return False

class Loud(metaclass=Meta):
    def __init__(self, w): object.__getattribute__(self, "__dict__")["w"] = w
    def __getattribute__(self, name):
        seen.append(name)
        return object.__getattribute__(self, name)
    def __getattr__(self, name):
        seen.append(name)
        raise AttributeError(name)
    def __getitem__(self, key):
        seen.append(key)
        return object.__getattribute__(self, "__dict__")["w"]
    def __eq__(self, other):
        seen.append("==")
        return False
    def __hash__(self):
        seen.append("hash")
        return 1
    def __bool__(self):
        seen.append("bool")
        return True
    @property
    def ndim(self):
        seen.append("ndim")
        return 2

class Net:
    def __init__(self, w): self.kept = w; self.rest = [w, w, w]
    @property
    def w(self):
        seen.append("property")
        return self.rest.pop()
    def __getitem__(self, key):
        seen.append("item")
        return self.rest.pop(key)

class Lazy(type(jnp)):
    def __getattr__(self, name):
        seen.append(f"module {name}")
        raise AttributeError(name)

class Odd:
    @property
    def __class__(self):
        seen.append("class")
        raise RuntimeError("not yet")

odd, lazy = Odd(), Lazy("lazy")

def f(x):
    loud, net = Loud(x), Net(x)
    y = loud.w + loud[0] * net.w @ net[0]
    loud == 1, bool(loud), loud.ndim
    return y @ net.kept
"""


def test_an_object_that_notices_when_it_is_looked_at_sees_the_same(tmp_path):
    """Nothing of the user runs but what the file runs: no property, no item, no comparison."""
    path = tmp_path / "notices.py"
    path.write_text(NOTICES, encoding="utf-8")
    plain, values = types.ModuleType("plain"), Values()
    exec(compile(NOTICES, str(path), "exec", dont_inherit=True), plain.__dict__)
    module = with_calls(path, values)
    programs = [
        str(jax.make_jaxpr(one.f)(jax.ShapeDtypeStruct((2, 2), "float32"))) for one in (plain, module)
    ]
    assert programs[0] == programs[1]
    assert plain.seen == module.seen != []
    assert "y @ net.kept" in {expression.text for expression, _, _ in values.by_site.values()}


def test_operands_are_read_only_where_nothing_runs():
    names: dict = {}
    exec(NOTICES, names)
    names.update(x=1, loud=names["Loud"](2), net=names["Net"](3), held={"w": [4]}, i=0)
    text = (
        "x + loud.w + net.w + net[0] + net.kept + held['w'][0] + held['w'][i] + held['v'] + (i := x) + g(x)"
    )
    names["seen"].clear()
    found = {part: value_of(node, names) for part, node in _parts(text)}
    assert names["seen"] == []
    read = {part: value for part, value in found.items() if value is not MISSING}
    plain = ("x", "i", "loud", "net", "held")
    assert {part: value for part, value in read.items() if part not in plain} == {
        "net.kept": 3,
        "held['w']": [4],
        "held['w'][0]": 4,
    }
    assert plain[0] in read


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_first_answer_is_said_on_a_terminal_alone(is_terminal, monkeypatch, capsys):
    before = ProgramFigures(sent_nbytes=2**21, memory_nbytes=2**22, flops=0)
    remedy = Remedy(
        kind="argument",
        place=RemedyPlace(path="w"),
        expression="P()",
        code='P("x")',
        before=before,
        after=replace(before, sent_nbytes=2**20),
    )
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    _say_first(remedy)
    said = "proved: 2.0 MiB → 1.0 MiB sent per device and call (-50%) at w; looking for others …\n"
    assert capsys.readouterr().err == (said if is_terminal else "")
