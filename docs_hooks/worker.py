"""Runs blocks of Python one after the other, as a notebook does; started as a program, without this package.

Each line of its input is a request: the source of a block and its file's name, the width of the terminal, the
class of the exception that is expected, and the file for what is printed. Each line of its output answers
one: the error that stopped it, and the HTML of the last expression if any.
"""

import ast
import contextlib
import json
import linecache
import os
import sys
import traceback
import types
from typing import Any

SCRIPT = "example.py"
"""What they are together: the module that names lead from."""
source_of: dict[str, str] = {}
"""The blocks so far, by the paths that their files would have."""


def main() -> None:
    """Answer requests until there are no more."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    sys.path[0] = os.getcwd()
    module = types.ModuleType("__main__")
    module.__file__ = os.path.abspath(SCRIPT)
    sys.modules["__main__"] = module
    del module
    for line in requests:
        print(json.dumps(answer(**json.loads(line))), file=answers, flush=True)


def answer(source: str, name: str, width: int, raises: str, output: str) -> dict[str, str]:
    """Run a block, and say what came of it."""
    os.environ["COLUMNS"] = str(width)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    path = os.path.abspath(name)
    source_of[path] = source
    show_source(path, source)
    show_source(os.path.abspath(SCRIPT), "".join(source_of.values()))  # where classes are looked for
    html, error = "", ""
    try:
        html = run(source, path)
    except BaseException as raised:  # the page stops with whatever the block raises, an exit too
        if raises and raises in {kind.__name__ for kind in type(raised).__mro__}:
            print(last_line(raised), end="", file=sys.stderr)
            raises = ""
        else:
            error = without_worker(raised)
    finish()
    return {"html": html, "error": error or (f"it does not raise {raises}" if raises else "")}


def show_source(path: str, source: str) -> None:
    """Let tracebacks and ``inspect`` find the source of a file that is not there."""
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)


def run(source: str, path: str) -> str:
    """Run the statements of a block; return the HTML of the last one where it has any."""
    tree = ast.parse(source, path)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        del tree.body[-1]
    namespace = vars(sys.modules["__main__"])
    exec(compile(tree, path, "exec"), namespace)
    if not isinstance(last, ast.Expr):
        return ""
    code = compile(ast.Expression(last.value), path, "eval")
    return html_of(eval(code, namespace))


def html_of(value: Any) -> str:
    """Return how a value shows itself in a notebook, where that is HTML or SVG."""
    if isinstance(value, type):  # its instances show themselves, not it
        return ""
    if hasattr(value, "_repr_mimebundle_"):
        bundle = value._repr_mimebundle_()
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        return bundle.get("text/html") or bundle.get("image/svg+xml") or ""
    for name in ("_repr_html_", "_repr_svg_"):
        if hasattr(value, name):
            return getattr(value, name)() or ""
    return ""


def last_line(error: BaseException) -> str:
    """Return the class and the message of an exception, without the notes that follow them."""
    report = traceback.TracebackException.from_exception(error)
    report.__notes__ = None
    return list(report.format_exception_only())[-1]


def without_worker(error: BaseException) -> str:
    """Return the traceback from the block's own line on."""
    report = traceback.TracebackException.from_exception(error)
    frames = list(report.stack)
    own = next((place for place, frame in enumerate(frames) if frame.filename in source_of), len(frames))
    report.stack = traceback.StackSummary.from_list(frames[own:])
    return "".join(report.format())


def finish() -> None:
    """Wait for what prints later, and write what is printed."""
    if "jax" in sys.modules:
        with contextlib.suppress(Exception):  # an error of a computation was the block's to see
            sys.modules["jax"].effects_barrier()
    sys.stdout.flush()
    sys.stderr.flush()


if __name__ == "__main__":
    main()
