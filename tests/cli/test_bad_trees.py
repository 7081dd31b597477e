"""Files that ``jai-cli tree``, ``check`` and ``diff`` cannot read: one line, exit code 2, little memory."""

import json
import os
import random
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from jax_array_info_core import planned_mesh_report, save_tree, to_json

pytestmark = pytest.mark.newest


def bad_files(folder):
    """Write files and directories that are not trees, and return their names with a part of the error."""
    tree = folder / "good.json"
    save_tree({"w": np.zeros((8, 4), np.float32)}, tree)
    good = tree.read_text()
    fields = json.loads(good)
    nested = "[" * 200_000
    texts = {
        "truncated.json": (good[: len(good) // 2], "expected the JSON of a report"),
        "empty.json": ("", "an empty file"),
        "array.json": ("[]", "JSON of an unknown format"),
        "object.json": ("{}", "JSON of an unknown format"),
        "another_report.json": (to_json(planned_mesh_report({"x": 2})), "a MeshReport, not a TreeReport"),
        "wrong_type.json": (json.dumps({**fields, "rows": 3}), "Expected `array`, got `int`"),
        "wrong_mesh.json": (json.dumps({**fields, "rows": [{**fields["rows"][0], "mesh": 5}]}), "mesh 5"),
        "wrong_version.json": (json.dumps({**fields, "schema_version": 99}), "schema_version 99"),
        "nested.json": (nested, "nested too deeply"),
        "nested_report.json": ('{"report": "TreeReport", "rows": ' + nested, "expected the JSON of a report"),
        "\x1b[31mred\n.json": ("{", r"\x1b[31mred\n.json: not valid JSON"),
        "index.safetensors.index.json": ('{"weight_map": {"w": "../../secret"}}', "index"),
        "text.txt": ("hello", "the format is not known"),
    }
    for name, (text, _) in texts.items():
        (folder / name).write_text(text)
    header = json.dumps({"w": {"dtype": "F32", "shape": [2**40, 2**30], "data_offsets": [0, 2**62]}}).encode()
    contents = {
        "random.safetensors": (random.Random(0).randbytes(4096), "safetensors"),
        "claims.safetensors": (struct.pack("<Q", 2**60) + b"{}", "safetensors"),
        "large.safetensors": (struct.pack("<Q", len(header)) + header, "safetensors"),
        "random.npz": (random.Random(1).randbytes(4096), "not a valid npz file"),
        "bytes.json": (bytes(range(256)), "not UTF-8 text"),
    }
    for name, (data, _) in contents.items():
        (folder / name).write_bytes(data)
    np.savez(folder / "objects.npz", w=np.array([{}, None], dtype=object))
    with zipfile.ZipFile(folder / "claims.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + bytes(2**26))
    os.symlink("loop", folder / "loop")
    os.mkfifo(folder / "pipe.json")
    (folder / "folder").mkdir()
    (folder / "files").mkdir()
    (folder / "files" / "w.txt").write_text("hello")
    (folder / "half").mkdir()
    (folder / "half" / "5.orbax-checkpoint-tmp-123").mkdir()
    others = {
        "objects.npz": "an array of Python objects",
        "claims.npz": "not an array of numpy",
        "loop": "Too many levels of symbolic links",
        "pipe.json": "not a regular file",
        "folder": "an empty directory",
        "files": "not an Orbax checkpoint",
        "half": "no step of this Orbax checkpoint was completely written",
        "missing.json": "No such file or directory",
        "": "expected the name of a file or a directory",
        "/dev/zero": "not a regular file",
    }
    return {name: part for name, (_, part) in {**texts, **contents}.items()} | others


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    """A directory with bad files, and a part of the error for each."""
    folder = tmp_path_factory.mktemp("bad")
    return folder, bad_files(folder)


def test_a_file_that_is_not_a_tree_is_a_one_line_error(call, bad, monkeypatch):
    folder, problems = bad
    monkeypatch.chdir(folder)
    for name, problem in problems.items():
        done = call("tree", name)
        assert (name, done.returncode, done.stdout) == (name, 2, "")
        assert done.stderr.startswith("Error: ")
        assert problem in done.stderr
        assert done.stderr.count("\n") == 1
        assert "\x1b" not in done.stderr
        assert call("check", name) == done
        if name != "another_report.json":  # tests/cli/test_program_diff.py
            assert call("diff", "good.json", name) == call("diff", name, "good.json") == done


@pytest.mark.own_process
@pytest.mark.newest
def test_bad_files_take_at_most_1_gib_of_memory_and_jax_is_not_imported(tmp_path):
    names = list(bad_files(tmp_path))
    code = f"""
import contextlib, resource, sys
from jax_array_info_cli.commands import jai_cli
for name in {names!r}:
    with contextlib.suppress(SystemExit):
        jai_cli(["check", name], prog_name="jai-cli")
kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
print(kib < 2**20, "jax" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stderr.count("\n") == len(names), done.stderr
    assert done.stdout == "True False\n"
