"""Checkpoints of Orbax that are damaged or too large, which take bounded time and memory."""

import contextlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorstore

from jax_array_info_core import load_tree
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.trees.stored import orbax as orbax_files
from tests.integrations.checkpoints.states import refusal

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]


@pytest.mark.parametrize("damaged", ["_METADATA", "_sharding", "manifest.ocdbt"])
def test_damaged_checkpoints(manager, tmp_path, damaged, capfd):
    """The error is one line, and nothing is written to stderr."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    (item / damaged).write_text("[" * 100_000)
    begin = "tensorstore cannot read it: " if damaged == "manifest.ocdbt" else f"{damaged}: "
    assert refusal(item).startswith(begin)
    (item / damaged).unlink()
    if damaged == "_sharding":
        assert load_tree(item).meshes == ()
    elif damaged == "manifest.ocdbt":
        assert refusal(item).endswith(": missing")
    else:
        refusal(item)
    assert capfd.readouterr().err == ""


def node_of(item):
    """Return the file with the nodes of the database."""
    (path,) = (item / "d").iterdir()
    return path


@pytest.mark.parametrize("part", ["manifest", "node", "folder"])
@pytest.mark.parametrize("kind", ["pipe", "device", "log of the kernel"])
def test_files_of_a_database_that_could_wait_are_refused(manager, tmp_path, part, kind):
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    path = {"manifest": item / "manifest.ocdbt", "node": node_of(item), "folder": item / "d"}[part]
    path.rename(tmp_path / "moved")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "/proc/kmsg")
    expected = "a device, a pipe or a link, not a regular file"
    assert refusal(item) == f"{path.relative_to(item)}: {expected}"


def test_links_to_regular_files_are_followed(manager, tmp_path):
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    path = node_of(item)
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert len(load_tree(item).rows) == 6


def test_large_files_of_a_database(manager, tmp_path):
    """A manifest with holes takes no memory, nor does a node."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    os.truncate(node_of(item), 2**33)
    assert len(load_tree(item).rows) == 6
    os.truncate(item / "manifest.ocdbt", 2**33)
    assert refusal(item).startswith("manifest.ocdbt: 8,589,93")


def test_reading_a_database_ends_in_time(manager, tmp_path, monkeypatch):
    """Even if a file becomes a pipe after it was checked."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    path = node_of(item)
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(orbax_files, "_require_regular", lambda directory: None)
    monkeypatch.setattr(orbax_files, "_SECONDS", 1)
    assert refusal(item) == "reading it takes longer than 1 seconds"


@pytest.mark.parametrize("answer", ["", '["", {"w'], ids=["before it answers", "while it answers"])
def test_a_crash_of_the_library_is_an_error(manager, tmp_path, monkeypatch, answer):
    program = tmp_path / "program.py"
    program.write_text(f"import os; print({answer!r}, end='', flush=True); os.abort()")
    monkeypatch.setattr(orbax_files.ocdbt, "__file__", str(program))
    assert refusal(manager / "1" / "default") == "tensorstore cannot read it: it crashed"


def test_nodes_that_take_much_memory(manager, tmp_path):
    """Of a database with nodes of up to 4 GiB in a small file, none is read."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    shutil.rmtree(item / "d")
    (item / "manifest.ocdbt").unlink()
    config = {"max_decoded_node_bytes": 2**32 - 1}
    spec = {"driver": "ocdbt", "base": {"driver": "file", "path": f"{item}/"}, "config": config}
    tensorstore.KvStore.open(spec).result().write("x", b"").result()
    assert refusal(item) == "nodes of 4,294,967,295 bytes exceed the limit of 134,217,728"


def test_databases_with_changed_bytes(manager, tmp_path, capfd):
    """Checksums find each change: the rows are those of the checkpoint, or there are none."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    rows = load_tree(item).rows
    random = np.random.default_rng(0)
    for path in [item / "manifest.ocdbt", node_of(item)] * 10:
        data = path.read_bytes()
        changed = bytearray(data)
        changed[random.integers(len(data))] ^= 1 << random.integers(8)
        path.write_bytes(changed[: random.choice([len(data), random.integers(len(data))])])
        with contextlib.suppress(FileFormatError):
            assert load_tree(item).rows == rows
        path.write_bytes(data)
    assert capfd.readouterr().err == ""


def test_damaged_shardings(manager, tmp_path):
    """A mesh of 10⁹ devices takes no memory."""
    item = tmp_path / "item"
    shutil.copytree(manager / "1" / "default", item)
    text = {"sharding_type": "NamedSharding", "axis_names": ["x"], "partition_spec": []}
    known = json.loads((item / "_sharding").read_text())
    for shape, problem in (([10**9], "1000000000 devices exceed"), ([-1], "mesh axis 'x' has no devices")):
        sharding = json.dumps({**text, "shape": shape})
        (item / "_sharding").write_text(json.dumps(dict.fromkeys(known, sharding)))
        assert problem in refusal(item)


PROGRAM = """
import sys
import threading

from jax_array_info import to_text
from jax_array_info_core import from_json, load_tree, to_json, tree_diff_report

hook, found = sys.unraisablehook, []
threads = [threading.Thread(target=lambda: found.append(load_tree(sys.argv[1]))) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print([(report.device_count, len(report.rows)) for report in found])
print(sys.unraisablehook is hook, sorted({"jax", "orbax"} & set(sys.modules)))
"""


@pytest.mark.own_process
@pytest.mark.newest
def test_a_checkpoint_is_read_without_jax(manager):
    """Threads that read it change neither JAX's configuration nor hooks of the process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(manager)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str([(8, 6)] * 4), "True []"]
