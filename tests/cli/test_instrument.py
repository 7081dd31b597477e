"""The user's source with calls around its expressions: it does what the plain file does."""

import ast
import inspect
import linecache
import sys
import traceback
import types
from importlib.util import decode_source

import pytest

from jax_array_info_cli.advice.changes import Text
from jax_array_info_cli.advice.instrument import Source, edited
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
    names = {*vars(module)}
    return repr(found), source, names


def run_plain(code, path, namespace):
    exec(compile(code, path, "exec", dont_inherit=True), namespace)


def expressions_of(code, path):
    """Return the expressions that are wrapped in a file, and run it."""
    source = Source(lambda file: False, lambda expression, value: value)
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

    source = Source(lambda file: False, value)
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


class Wrapping(ast.NodeTransformer):
    """Puts a call around the node at a place."""

    def __init__(self, site):
        self.site = site

    def visit(self, node):
        place = [
            getattr(node, name, None) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")
        ]
        node = super().visit(node)
        if [*self.site[1:]] != place or not isinstance(node, ast.expr):
            return node
        self.site = ("",)  # nodes inside of it can have its place
        return ast.copy_location(
            ast.Call(ast.copy_location(ast.Name("edit", ast.Load()), node), [node], []), node
        )


def nodes(tree):
    """Return the nodes of a tree with their lines."""
    return ast.dump(tree), [getattr(node, "lineno", None) for node in ast.walk(tree)]


@each
def test_an_edit_changes_its_expression_alone(name, tmp_path):
    """The lines of all others stay."""
    path, code = str(tmp_path / "file.py"), CONSTRUCTS[name]
    for one in expressions_of(code, path)[:40]:
        text = edited(code, [Text(one.site, f"edit({one.text})")])
        assert nodes(ast.parse(text)) == nodes(Wrapping(one.site).visit(ast.parse(code, path)))


def test_a_file_runs_plain_where_an_expression_is_too_deep():
    """The value of each expression is not asked for then, and the file does the same."""
    seen, namespace = [], {}
    code = "def run():\n    return " + "+".join(["1"] * 1500) + " + f()\ndef f():\n    return -1"
    source = Source(lambda file: False, lambda expression, value: seen.append(value) or value)
    source.run(code.encode(), "deep.py", namespace)
    assert (namespace["run"](), seen, source.too_deep) == (1499, [], ["deep.py"])


def test_a_file_of_an_installed_package_runs_plain(tmp_path):
    path, values = tmp_path / "file.py", []
    source = Source(lambda file: file == str(path), lambda expression, value: values.append(value))
    namespace = {}
    source.run(b"def f(x):\n    return x + 1\n", str(path), namespace)
    assert (namespace["f"](1), values) == (2, [])


def test_a_function_with_other_globals_than_those_of_its_file_does_the_same():
    """The calls around its expressions are found in any module, and leave no name in its own."""
    seen, namespace = [], {}
    code = b"import types\ndef one(x):\n    return x + 1\nf = types.FunctionType(one.__code__, {})\n"
    source = Source(lambda file: False, lambda expression, value: seen.append(value) or value)
    source.run(code, "globals.py", namespace)
    assert (namespace["f"](1), seen) == (2, [2])
    assert namespace.keys() - {"__builtins__"} == {"types", "one", "f"}


def test_the_places_of_edited_expressions_are_their_own():
    """Of equal expressions in a line, some are replaced."""
    code = b"def run():\n    return ['\xc3\xa9' * 2, 1 + 1, 1 + 1, 1 + 1]\n"
    namespace = {}
    sites = [one.site for one in expressions_of(code, "two.py") if one.text == "1 + 1"]
    texts = Text(sites[0], "(3 +\n 4)"), Text(sites[2], "math.floor(6)", "import math")
    Source(lambda file: False, texts=texts).run(code, "two.py", namespace)
    assert namespace["run"]() == ["éé", 7, 2, 6]


def test_an_edit_does_not_join_two_words():
    code = b"def f(x):\n    return(x)+1\n"
    assert (
        edited(code, [Text(expressions_of(code, "f.py")[0].site, "g(x)")]) == "def f(x):\n    return g(x)\n"
    )


def test_a_file_that_was_another_before_is_named():
    source = Source(lambda file: False)
    for code, path in ((b"1", "a.py"), (b"2", "b.py"), (b"1", "a.py"), (b"3", "b.py")):
        source.run(code, path, {})
    assert source.changed == ["b.py"]
    again = Source(lambda file: False, digests=source.digests)
    again.run(b"2", "a.py", {})
    assert again.changed == ["a.py"]
