"""Files whose names are not UTF-8."""

import os
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

from jax_array_info import from_json, save_tree, tree_report

pytestmark = pytest.mark.oldest_and_newest


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names")
def test_a_command_reads_and_writes_files_with_such_names(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, report = os.fsdecode(b"caf\xe9.json"), tree_report({"caf\udce9": jnp.zeros(3)}, "caf\udce9")
    save_tree(report, name)
    for suffix in ("json", "html", "svg", "txt"):
        for command in ("tree", "check"):
            output = os.fsdecode(b"out\xe9." + suffix.encode())
            done = call(command, name, "--output", output)
            assert (done.returncode, done.stderr) == (0, ""), done
            assert Path(output).read_text(encoding="utf-8")
            shown = call(command, name, "--format", suffix.replace("txt", "text"))
            assert (shown.returncode, shown.stderr) == (0, "")
    done = call("tree", name, "--format", "json")
    assert from_json(done.stdout) == report
    done = call("tree", os.fsdecode(b"miss\xe9.json"))
    assert (done.returncode, done.stderr) == (2, "Error: miss\\udce9.json: No such file or directory\n")
