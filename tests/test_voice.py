"""Patterns of hard-to-read English in the docs, the docstrings, the help and the printed text.

Each pattern has the reason and the better wording next to it: an author who meets it learns what to write.
"""

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.newest

ROOT = Path(__file__).parent.parent
PACKAGES = sorted((ROOT / "packages").glob("*/src/**/*.py"))
PRINTING = [*PACKAGES, *sorted((ROOT / "docs_hooks").glob("*.py"))]
"""Modules with text that users read: the packages, and what generates pages."""
PROGRAMS = [
    *PRINTING,
    *(path for folder in ("tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))),
]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("packages/**/*.md")),
]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

AVOIDED = {
    r"cut (?:by|into|along|over)|(?:is|are|be|was|were|been) cut": "JAX shards arrays: sharded over a mesh axis, split into shards",
    r"cuts? (?:nothing|no axis)": "replicated over those mesh axes",
    r"copies (?:of it|of each)|held? in full": "replicas; fully replicated",
    r"whoever|shall|anew|beside|nobody": "archaic: use anyone who, must, again, next to, no one",
    r"of which|from now on|has no longer|as well as it": "two short sentences are easier to read",
    r"says so": "name the message",
    r"what is no|(?<!there )is no(?! longer)": "a riddle of negation: say what it is, or write 'is not a'",
    r"does not tell|cannot be told|is not told|told by": "programs do not tell: 'not available in', 'not recorded by'",
    r"(?:compiler|jax|xla|partitioner) (?:is|was) asked": "programs are not asked: 'the partitioner chooses'",
    r"who (?:made|holds) (?:it|them|an? \w+)": "allocation site; referrer",
}
OPENING = r"(?:What|Who|Whose|Where|How|Which)\b"
IN_JSON = {"this version of jax does not tell", "not told by this jax"}
"""Values of JSON fields, which programs compare: their printed form is another one."""


def found_in(text):
    """Return each avoided pattern that occurs in a text, with what to write instead."""
    text = " ".join(text.split())
    return [
        f"{match[0]!r}: {reason}"
        for pattern, reason in AVOIDED.items()
        for match in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
    ]


def prose_of(markdown):
    """Return the prose of a page: without front matter, code blocks, code spans and addresses of links."""
    text = re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL)
    text = re.sub(r"^( *)(`{3,}|~{3,}).*?^\1\2", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"(`+)(?:(?!\n\n).)+?\1", "", text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", text)


@cache
def tree_of(module):
    return ast.parse(module.read_text(encoding="utf-8"))


def is_docstring(node):
    value = getattr(node, "value", None)
    return isinstance(node, ast.Expr) and isinstance(value, ast.Constant) and isinstance(value.value, str)


def docstrings_of(tree):
    """Yield every docstring of a module, those of fields included."""
    yield from (node.value for node in ast.walk(tree) if is_docstring(node))


def strings_of(tree):
    """Yield the text of each string that a module may print: f-strings whole, their values as ``0``."""
    nodes = [*ast.walk(tree)]
    apart = {id(node.value) for node in nodes if is_docstring(node)}
    apart |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in apart:
            yield node.value


def names(paths):
    return [path.relative_to(ROOT).as_posix() for path in paths]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_a_page_reads_well(page):
    assert found_in(prose_of(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=names(NOTEBOOKS))
def test_a_notebook_reads_well(notebook):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert texts
    assert found_in(prose_of("\n\n".join(texts))) == []


@pytest.mark.parametrize("module", PRINTING, ids=names(PRINTING))
def test_printed_text_help_and_docstrings_read_well(module):
    tree = tree_of(module)
    texts = [*strings_of(tree), *(prose_of(node.value) for node in docstrings_of(tree))]
    assert [problem for text in texts if text not in IN_JSON for problem in found_in(text)] == []


def test_the_docstring_of_a_module_is_a_noun_phrase():
    starts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")[:100] for path in PROGRAMS}
    assert [path for path, start in starts.items() if re.match(rf'"""{OPENING}', start)] == []


@pytest.mark.parametrize(
    ("poor", "good"),
    [
        ("an axis that is cut by two mesh axes", "an axis sharded over two mesh axes"),
        ("mesh axes that cut nothing: x", "replicated over: x (2 replicas)"),
        ("two copies of each", "two replicas of each shard"),
        ("whoever runs it shall know", "anyone who runs it must know"),
        ("three rows, of which one is empty", "three rows; one is empty"),
        ("this is no `jax.Array`", "this is not a `jax.Array`; it is no longer alive"),
        ("it is no 'x'", "there is no 'x'"),
        ("axes that were cut, and the compiler was asked", "sharded axes; XLA chose"),
        ("this jax does not tell", "not available in this version of JAX"),
        ("who made it", "its allocation site"),
        ("the last line\n    says so", "there is no such device; besides, there\nis no mesh"),
    ],
)
def test_the_patterns_find_what_they_are_for_and_nothing_else(poor, good):
    assert found_in(poor)
    assert not found_in(good)


def test_code_is_not_prose():
    page = "---\nsearch: {boost: 2}\n---\nA `x is no y` [link](beside.md)\n\n```python\nshall = 1\n```\n\nSee nobody."
    assert prose_of(page).split() == ["A", "[link]", "See", "nobody."]


def test_the_strings_of_a_module_are_those_that_it_prints():
    tree = ast.parse('"""Module."""\nx: int\n"""Field."""\nprint(f"{x} is no {y} that", "z")\n')
    assert [node.value for node in docstrings_of(tree)] == ["Module.", "Field."]
    assert list(strings_of(tree)) == ["0 is no 0 that", "z"]
