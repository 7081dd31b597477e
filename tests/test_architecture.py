"""What the packages promise about themselves."""

import importlib
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

pytestmark = pytest.mark.once_per_version

PACKAGES = ["jax_array_info_core", "jax_array_info", "jax_array_info_cli"]


def imported_by(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_core_imports_neither_pictures_nor_shell_nor_jax():
    assert not {"rich", "click", "jax", "jax_array_info"} & imported_by("import jax_array_info_core")


def test_the_core_works_where_rich_and_click_cannot_be_imported():
    code = """
import sys
sys.modules["rich"] = sys.modules["click"] = None
import jax, jax_array_info_core as core
core.label_array(array := jax.numpy.zeros(3), "x")
for report in (core.array_report(array), core.live_array_report(), core.memory_report(jax.devices()[0]),
               core.devices_report(), core.memory_profile_report(), core.compile_caches_report()):
    assert core.from_json(core.to_json(report)) == report
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_pictures_import_neither_shell_nor_jax():
    statement = """
import contextlib, io
import jax_array_info
with contextlib.redirect_stdout(io.StringIO()):
    jax_array_info.print_mesh({"a": 4})
    jax_array_info.sharding_vis(jax_array_info.spec_layout((16,), {"a": 4}, ("a",)))
"""
    assert not {"click", "jax", "jax_array_info_cli"} & imported_by(statement)


@pytest.mark.parametrize("name", PACKAGES)
def test_each_package_is_typed(name):
    assert resources.files(name).joinpath("py.typed").is_file()


@pytest.mark.parametrize("name", PACKAGES[:2])
def test_each_public_name_exists_is_documented_and_sorted(name):
    module = importlib.import_module(name)
    assert module.__all__ == sorted(module.__all__)
    for public in module.__all__:
        value = getattr(module, public)
        assert value.__doc__, public


def test_what_the_core_reports_is_re_exported():
    import jax_array_info
    import jax_array_info_core

    helpers = {"Grids", "flat_grids", "format_bytes", "format_devices"}
    missing = set(jax_array_info_core.__all__) - set(jax_array_info.__all__)
    assert missing == helpers
    for name in set(jax_array_info_core.__all__) - helpers:
        assert getattr(jax_array_info, name) is getattr(jax_array_info_core, name)


def test_one_module_knows_versions_and_private_parts_of_jax():
    private = re.compile(r"jax\._src|jax\.__version|\bversion_info\b|_hlo_sharding")
    for name in PACKAGES:
        for path in Path(str(resources.files(name))).rglob("*.py"):
            assert path.parent.name == "compat" or not private.search(path.read_text(encoding="utf-8")), path


def test_one_function_asks_the_garbage_collector_for_referents():
    for name in PACKAGES:
        for path in Path(str(resources.files(name))).rglob("*.py"):
            asks = "gc.get_referents" in path.read_text(encoding="utf-8")
            assert asks == (path.name == "referents.py"), path


def test_only_the_verbs_print():
    prints = re.compile(r"\b_?print\(|\.print\(")
    for path in Path(str(resources.files("jax_array_info"))).rglob("*.py"):
        printing = prints.search(path.read_text(encoding="utf-8"))
        # render.py prints into a text.
        assert not printing or path.parent.name == "verbs" or path.name == "render.py", path
    for path in Path(str(resources.files("jax_array_info_core"))).rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert not [line for line in lines if prints.search(line) and ">>>" not in line], path
