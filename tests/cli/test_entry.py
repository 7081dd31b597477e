"""``jai-cli FILE``: a file or a folder is shown as what it is."""

import json
import os
import threading

import jax
import numpy as np
import pytest

from jax_array_info import planned_report, record_memory, save_report, save_tree, to_json
from jax_array_info_core import devices_report
from jax_array_info_core.base.files import open_without_waiting

pytestmark = pytest.mark.newest


def saved(name, tmp_path):
    """Write a file or a folder of a kind, and return its name."""
    path = tmp_path / name
    match name:
        case "model.npz":
            np.savez(path, w=np.zeros((8, 4), "float32"))
        case "tree.json":
            save_tree({"w": np.zeros((8, 4), "float32")}, path)
        case "array.json":
            path.write_text(to_json(planned_report((8, 4), {"x": 2}, ("x", None))))
        case "train.log":
            path.write_text("Some donated buffers were not usable: float32[8,64].\n")
        case "record":
            recorder = record_memory(path)
            jax.devices()
            recorder.mark("step")
            recorder.stop()
        case "processes":
            path.mkdir()
            save_report(devices_report(), path)
        case "logs":
            path.mkdir()
            for rank in range(2):
                (path / f"rank{rank}.log").write_text(
                    "Some donated buffers were not usable: float32[8,64].\n"
                )
    return name


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("model.npz", "tree"),
        ("tree.json", "tree"),
        ("array.json", "report"),
        ("train.log", "log"),
        ("record", "memory"),
        ("processes", "hosts"),
        ("logs", "log"),
    ],
)
def test_a_path_is_shown_by_the_command_for_it(call, tmp_path, monkeypatch, name, command):
    monkeypatch.chdir(tmp_path)
    path = saved(name, tmp_path)
    found, expected = call(path), call(command, path)
    first, _, rest = found.stdout.partition("\n")
    assert first.startswith(f"{path}: ")
    assert f"jai-cli {command} " in first
    assert (rest, found.returncode) == (expected.stdout, expected.returncode)


def test_only_the_text_begins_with_what_the_path_is(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = saved("tree.json", tmp_path)
    assert json.loads(call(path, "--format", "json").stdout)["report"] == "TreeReport"
    call(path, "--output", "tree.txt")
    assert (tmp_path / "tree.txt").read_text() == call("tree", path).stdout


def test_options_are_those_of_the_command(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = saved("model.npz", tmp_path)
    assert call(path, "--mesh", "x=2", "--spec", "*=x").stdout.endswith(
        call("tree", path, "--mesh", "x=2", "--spec", "*=x").stdout
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("step.py", "jai-cli run step.py runs it"),
        ("absent.log", "No such file or directory"),
        ("empty/", "a folder with none of these"),
    ],
)
def test_what_no_command_shows_is_refused_in_one_line(call, tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.py").write_text("")
    (tmp_path / "empty").mkdir()
    done = call(name)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr


def test_a_word_that_is_no_path_is_an_unknown_command(call):
    done = call("shwo")
    assert done.returncode == 2
    assert "Did you mean 'show'?" in done.stderr


@pytest.mark.parametrize("command", [(), ("log",), ("profile",), ("tree",), ("report",), ("memory",)])
def test_a_pipe_that_no_program_writes_to_is_not_waited_for(call, tmp_path, command):
    os.mkfifo(tmp_path / "pipe")
    done = call(*command, str(tmp_path / "pipe"))
    assert done.returncode == 2
    assert "pipe" in done.stderr


def test_a_pipe_that_a_program_writes_to_is_read_to_its_end(call, tmp_path):
    """The program writes nothing for a while, and then two parts."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    lines = "Some donated buffers were not usable: float32[8,64].\n", "ValueError: bad batch\n"
    begun = threading.Event()
    pipe = os.open(path, os.O_RDWR)  # does not wait for a reader

    def write():
        begun.wait(60)
        for line in lines:
            os.write(pipe, line.encode())
        os.close(pipe)

    writer = threading.Thread(target=write)
    writer.start()
    with open_without_waiting(path) as file:
        begun.set()
        assert file.read() == "".join(lines).encode()
    writer.join()
