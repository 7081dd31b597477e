"""The structure of the packages: imports, public names and the division into modules."""

import ast
import importlib
import re
import subprocess
import sys
from functools import cache
from importlib import resources
from pathlib import Path

import pytest

import jax_array_info
import jax_array_info_core

pytestmark = pytest.mark.newest

PACKAGES = ["jax_array_info_core", "jax_array_info", "jax_array_info_cli"]


@cache
def modules():
    """Return the relative path and the source of each module of the packages."""
    roots = [Path(str(resources.files(name))) for name in PACKAGES]
    paths = [(path.relative_to(root.parent), path) for root in roots for path in root.rglob("*.py")]
    return [(relative, path.read_text(encoding="utf-8")) for relative, path in paths]


def run(code):
    """Run a program, and return the names of all modules that it imports."""
    code = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


PICTURES = """
import contextlib, io
import jax_array_info
with contextlib.redirect_stdout(io.StringIO()):
    jax_array_info.print_mesh({"a": 4})
    jax_array_info.sharding_vis(jax_array_info.spec_layout((16,), {"a": 4}, ("a",)))
"""


@pytest.mark.parametrize(
    ("code", "without"),
    [
        ("import jax_array_info_core", {"rich", "click", "jax", "jax_array_info"}),
        ("import jax_array_info", {"rich", "msgspec", "google.protobuf"}),
        (PICTURES, {"click", "jax", "jax_array_info_cli"}),
    ],
    ids=["the core", "the frontend", "pictures"],
)
def test_libraries_are_imported_on_first_use(code, without):
    assert not without & run(code)


def test_the_core_works_without_rich_and_click():
    run("""
sys.modules["rich"] = sys.modules["click"] = None
import jax, jax_array_info_core as core
core.label_array(array := jax.numpy.zeros(3), "x")
for report in (core.array_report(array), core.live_array_report(), core.memory_report(jax.devices()[0]),
               core.devices_report(), core.memory_profile_report(), core.compile_caches_report()):
    assert core.from_json(core.to_json(report)) == report
""")


@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_is_typed(name):
    assert resources.files(name).joinpath("py.typed").is_file()


@pytest.mark.parametrize(
    "name",
    [f"{package}{room}" for package in PACKAGES[:2] for room in ("", ".errors", ".layouts", ".reports")],
)
def test_each_public_name_exists_is_documented_and_sorted(name):
    module = importlib.import_module(name)
    assert module.__all__ == sorted(module.__all__)
    assert [public for public in module.__all__ if not getattr(module, public).__doc__] == []
    package, _, room = name.partition(".")
    assert not room or getattr(importlib.import_module(package), room) is module


@pytest.mark.parametrize("name", PACKAGES[:2])
def test_other_names_are_not_found(name):
    module = importlib.import_module(name)
    assert set(module.__all__) <= set(dir(module))
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018
    assert not any(hasattr(module, text) for text in ("nothing.at_all", "errors.at_all", "", "\0"))


@pytest.mark.parametrize(
    ("name", "imports"),
    [
        ("jax_array_info", "__init__"),
        ("jax_array_info_core", "__init__"),
        ("jax_array_info_core.geometry.layouts", "__init__"),
        ("jax_array_info_core.facts.reports", "all_reports"),
    ],
)
def test_type_checkers_see_the_names_that_are_imported_at_first_use(name, imports):
    package = importlib.import_module(name)
    source = resources.files(name).joinpath(f"{imports}.py").read_text(encoding="utf-8")
    seen = {
        alias.name: "." * node.level + node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.asname == alias.name
    }
    if imports == "all_reports":
        seen["Report"] = ".all_reports"
    places = package._PLACES.items()
    assert seen == {public: place for place, names in places for public in names.split()}


def test_the_top_has_at_most_89_names():
    names = jax_array_info.__all__
    assert len(names) <= 89
    classes = {name for name in names if isinstance(getattr(jax_array_info, name), type)}
    assert classes == {
        *["ArrayTracker", "CompileWatch", "Config", "MemoryRecorder", "PathRules", "ShardingLayout"]
    }


def test_lazy_imports_are_thread_safe():
    run("""
import threading
import jax_array_info
start, found = threading.Barrier(8), []
def look_up():
    start.wait()
    found.append([id(getattr(jax_array_info, name)) for name in jax_array_info.__all__])
threads = [threading.Thread(target=look_up) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(found) == 8 and found.count(found[0]) == 8
from jax_array_info import *
assert list(map(id, map(globals().get, jax_array_info.__all__))) == found[0]
""")


def test_public_names_of_the_core_are_re_exported():
    missing = set(jax_array_info_core.__all__) - set(jax_array_info.__all__)
    alone = {"format_bytes", "format_devices"}
    assert missing - set(jax_array_info.layouts.__all__) == alone
    for name in set(jax_array_info_core.__all__) - alone:
        home = jax_array_info.layouts if name in missing else jax_array_info
        assert getattr(home, name) is getattr(jax_array_info_core, name)


def test_the_core_has_nine_wings_and_three_modules_beside_them():
    home = Path(str(resources.files("jax_array_info_core")))
    wings = {path.parent.name for path in home.glob("*/__init__.py")}
    assert wings == {"jobs", "programs", "trees", "arrays", "compat", "facts", "xla", "geometry", "base"}
    assert {path.stem for path in home.glob("*.py")} == {"__init__", "errors", "layouts", "reports"}
    for wing in wings:
        doc = importlib.import_module(f"jax_array_info_core.{wing}").__doc__
        assert 3 <= len(doc.strip().splitlines()) <= 4, wing  # a line, an empty one, and what stands where


def public_names():
    """Return the public names by documented module, as tests/data/public_names.txt lists them."""
    text = Path(__file__).with_name("data").joinpath("public_names.txt").read_text()
    return {words[0]: words[1:] for words in map(str.split, re.split(r"\n(?! )", text)) if words}


@pytest.mark.parametrize(("name", "names"), public_names().items(), ids=[*public_names()])
def test_public_names_stay_in_their_documented_place(name, names):
    module = importlib.import_module(name)
    assert module.__all__ == names
    run(f"from {name} import {', '.join(names)}")


def test_exceptions_have_their_documented_place():
    from jax_array_info_core import errors

    assert {getattr(errors, name).__module__ for name in errors.__all__} == {"jax_array_info_core.errors"}


def test_private_names_are_imported_only_within_their_subpackage():
    for path, text in modules():
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.ImportFrom) or node.module == "__future__":
                continue
            private = [alias.name for alias in node.names if re.match(r"_(?!_)", alias.name)]
            own_room = node.level == 1 and path.parent.parent != Path()
            assert own_room or not private, f"{path} imports {private} of {node.module}"


def imported(path, text):
    """Return the modules that a module imports, also in functions and for types, by their relative paths."""
    known = {relative for relative, _ in modules()}
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name.replace(".", "/") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = Path(*path.parts[: len(path.parts) - node.level]) if node.level else Path()
            base = package.joinpath(*(node.module or "").split("."))
            inner = [str(base / alias.name) for alias in node.names]
            names = [name if Path(f"{name}.py") in known else str(base) for name in inner]
        yield from known & {Path(f"{name}{end}") for name in names for end in (".py", "/__init__.py")}


def test_no_two_modules_import_each_other():
    imports = {path: {*imported(path, text)} - {path} for path, text in modules()}
    assert sum(map(len, imports.values())) > 1000
    assert [(str(path), str(to)) for path in imports for to in imports[path] if path in imports[to]] == []


def test_only_compat_uses_versions_and_private_parts_of_jax():
    private = re.compile(r"jax\._src|jax\.__version|\bversion_info\b|_hlo_sharding")
    for path, text in modules():
        assert path.parent.name == "compat" or not private.search(text), path


def test_a_reloaded_package_has_its_names_and_submodules():
    run("""
import importlib, jax_array_info, jax_array_info_core
jax_array_info.to_text = None
importlib.reload(jax_array_info_core)
importlib.reload(jax_array_info)
assert jax_array_info.to_text is jax_array_info.engine.render.to_text
assert jax_array_info.config is jax_array_info_core.config
assert not hasattr(jax_array_info, "no_such_name")
rooms = {"errors", "layouts", "reports"}
assert not set(dir(jax_array_info_core)) - {*jax_array_info_core.__all__, *rooms} - set(vars(jax_array_info_core))
assert "import_module" not in dir(jax_array_info_core)
""")


def test_only_one_module_calls_gc_get_referents():
    for path, text in modules():
        assert ("gc.get_referents" in text) == (path.name == "jitted.py"), path


def test_only_verbs_and_the_cli_print():
    prints = re.compile(r"\b_?print\(|\.print\(")
    for path, text in modules():
        lines = [line for line in text.splitlines() if prints.search(line) and ">>>" not in line]
        # render.py prints to a string.
        may_print = path.parts[0] == "jax_array_info_cli" or path.parts[:2] == ("jax_array_info", "verbs")
        assert not lines or may_print or path.parts == ("jax_array_info", "engine", "render.py"), path
