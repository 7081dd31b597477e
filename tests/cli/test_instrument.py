"""The user's source with calls around its expressions: it does what the plain file does."""

import ast
import inspect
import linecache
import sys
import traceback
import types
from importlib.util import decode_source

import pytest

from jax_array_info_cli.advice.instrument import CALL, Source, _Replacing
from jax_array_info_core.programs.advice.candidates import Site
from tests.cli.constructs import CONSTRUCTS

pytestmark = pytest.mark.newest

each = pytest.mark.parametrize("name", CONSTRUCTS)


def ran(path, run):
    """Run a file and its function, and return what it returns or raises, with lines and source."""
    module = types.ModuleType("constructs_of_test")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    linecache.checkcache(str(path))
    try:
        run(path.read_bytes(), str(path), module.__dict__)
        source = inspect.getsource(module.run)
        found = module.run()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [(one.name, one.lineno, one.line) for one in frames if one.filename == str(path)]
        found = type(error).__name__, str(error), lines
    finally:
        del sys.modules[module.__name__]
    names = {*vars(module)} - {CALL}
    return repr(found), source, names


def run_plain(code, path, namespace):
    exec(compile(code, path, "exec", dont_inherit=True), namespace)


def expressions_of(code, path):
    """Return the expressions that are wrapped in a file, and run it."""
    source = Source(lambda file: False, {}, lambda expression, value: value)
    source.run(code, path, {"__name__": "constructs_of_test"})
    return source._expressions


@each
def test_a_file_does_the_same_with_calls_around_its_expressions(name, tmp_path):
    path = tmp_path / "file.py"
    path.write_bytes(CONSTRUCTS[name])
    seen = []

    def value(expression, value):
        seen.append(expression)
        return value

    source = Source(lambda file: False, {}, value)
    assert ran(path, source.run) == ran(path, run_plain)
    assert seen


@each
def test_the_text_of_an_expression_is_where_its_line_and_column_say(name, tmp_path):
    code = CONSTRUCTS[name]
    lines = decode_source(code).split("\n")
    found = expressions_of(code, str(tmp_path / "file.py"))
    for one in found:
        rest = "\n".join(lines[one.site.line - 1 :])[one.column :]
        assert rest.startswith(one.text)
        ast.parse(f"({one.text}\n)", mode="eval")
    assert len({one.site for one in found}) == len(found)


def instructions(code):
    """Return a code object without its lines."""
    constants = [
        instructions(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts
    ]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_name, code.co_qualname, code.co_flags, code.co_code, names, constants


@each
def test_a_replaced_expression_is_as_in_a_file_that_is_edited(name, tmp_path):
    path = str(tmp_path / "file.py")
    code = CONSTRUCTS[name]
    text = decode_source(code)
    lines = text.split("\n")
    for one in expressions_of(code, path)[:40]:
        new = f"__edit(-1, {one.text}, key={{'a': [2]}})"
        start = sum(len(line) + 1 for line in lines[: one.site.line - 1]) + one.column
        edited = text[:start] + new + text[start + len(one.text) :]
        tree = _Replacing(path, {one.site: new}).visit(ast.parse(code, path))
        assert instructions(compile(tree, path, "exec", dont_inherit=True)) == instructions(
            compile(edited, path, "exec", dont_inherit=True)
        )


def test_a_file_runs_plain_where_an_expression_is_too_deep():
    """The value of each expression is not asked for then, and the file does the same."""
    seen, namespace = [], {}
    code = "def run():\n    return " + "+".join(["1"] * 900) + " + f()\ndef f():\n    return -1"
    source = Source(lambda file: False, {}, lambda expression, value: seen.append(value) or value)
    source.run(code.encode(), "deep.py", namespace)
    assert namespace["run"]() == 899
    assert not seen


def test_a_file_of_an_installed_package_runs_plain(tmp_path):
    path, values = tmp_path / "file.py", []
    source = Source(lambda file: file == str(path), {}, lambda expression, value: values.append(value))
    namespace = {}
    source.run(b"def f(x):\n    return x + 1\n", str(path), namespace)
    assert (namespace["f"](1), values, CALL in namespace) == (2, [], False)


def test_operands_are_not_those_that_change_something_when_evaluated_twice():
    one = expressions_of(b"def run(x):\n    return x[(i := 1)] + x.y + z[0]\n", "operands.py")[-1]
    assert {*one.operands} == {"x", "z", "i", "x.y", "z[0]"}


def test_the_place_of_a_replaced_expression_is_its_own():
    """Of two equal expressions in a line, one is replaced."""
    code = b"def run():\n    return ['\xc3\xa9' * 2, 1 + 1, 1 + 1]\n"
    namespace = {}
    sites = [one.site for one in expressions_of(code, "two.py") if one.text == "1 + 1"]
    assert len(sites) == 2
    Source(lambda file: False, {sites[1]: "1 + 5"}, lambda expression, value: value).run(
        code, "two.py", namespace
    )
    assert namespace["run"]() == ["éé", 2, 6]
    assert all(isinstance(one, Site) for one in sites)
