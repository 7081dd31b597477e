"""``jai-cli log``."""

import io
import json
import sys

import pytest

from jax_array_info import from_json
from jax_array_info.reports import LogReport
from tests.logs import DONATIONS, REFUSED, REMATERIALIZATION

pytestmark = pytest.mark.oldest_and_newest

LOG = "\n".join([REMATERIALIZATION, *DONATIONS.values()])


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The name of a log in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.log").write_text(LOG, encoding="utf-8")
    return "train.log"


def test_warnings_are_printed_in_specs(call, log):
    done = call("log", log, "--mesh", "x=4,y=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert "train.log, 8 lines, mesh: x=4, y=2" in done.stdout
    assert "from P('y', None, 'x') to P(None, ('x', 'y'))" in " ".join(done.stdout.split())


def test_an_out_of_memory_error_is_first(call, tmp_path):
    path = tmp_path / "refused.log"
    path.write_text(f"step 1\n{REFUSED}\n{LOG}", encoding="utf-8")
    done = call("log", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("does not fit: needs 19.3 GiB, has 15.8 GiB per device; 3 findings: ")
    assert done.stdout.index("at model.py:41 first") < done.stdout.index("── JAI208 full-replication")
    made = json.loads(call("log", str(path), "--format", "json").stdout)
    assert [len(error["buffers"]) for error in made["out_of_memory"]] == [3]


def test_standard_input_is_read(call, log, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    done = call("log", "-", "--format", "json")
    report = from_json(done.stdout)
    assert isinstance(report, LogReport)
    assert json.loads(done.stdout)["line_count"] == 8
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    assert call("log", "-").stdout.splitlines()[1] == "standard input, 8 lines"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.log"], "Error: none.log: No such file or directory\n"),
        (["empty"], "Error: empty: a folder without logs (.log, .txt, .out, .err)\n"),
        (["binary"], "Error: binary: a binary file, not a log\n"),
        (["packed"], "Error: packed: compressed with gzip, not text: decompress it first\n"),
    ],
)
def test_a_file_that_is_not_a_log_is_one_line_and_exit_code_2(call, log, tmp_path, args, message):
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    (tmp_path / "packed").write_bytes(b"\x1f\x8b\x08")
    (tmp_path / "empty").mkdir()
    done = call("log", *args)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_standard_input_that_is_closed_is_one_line_and_exit_code_2(call, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    done = call("log", "-")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: standard input: it is closed\n"


def test_a_mesh_that_is_not_one_is_refused_before_the_log_is_read(call, log):
    done = call("log", "none.log", "--mesh", "x=y")
    assert done.returncode == 2
    assert "--mesh cannot be read: expected a number" in done.stderr
