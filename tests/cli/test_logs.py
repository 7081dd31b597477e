"""``jai-cli log``: what ended a job, in one line and in its exit code."""

import io
import json
import shutil
import sys

import pytest

from jax_array_info import from_json
from tests.core.jobs.logs.sample import FOLDER
from tests.core.jobs.logs.test_honesty import HEALTHY
from tests.core.jobs.logs.test_ranks import RAISED, STEPS, TRACEBACK

pytestmark = pytest.mark.newest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with logs of jobs that ended in different ways."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(FOLDER / "ranks" / "raise", tmp_path / "job")
    (tmp_path / "empty").mkdir()
    texts = {
        "healthy.log": STEPS,
        "failed.log": [*STEPS, *TRACEBACK],
        "survived.log": [*STEPS, *TRACEBACK, "step 3 loss 2"],
        "warned.log": [*STEPS, "step 3 loss nan"],
        "unknown.log": [*STEPS, "F0920 09:00:00.1 700 x.cc:1] the frobnicator is gone"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "binary.log").write_bytes(b"\0\1")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "code", "first"),
    [
        ("healthy.log", 0, "nothing fatal in 3 lines"),
        ("survived.log", 0, "nothing fatal in 8 lines; survived: 1"),
        ("warned.log", 0, "nothing fatal in 4 lines; 1 finding: JAI505 log-warning"),
        ("failed.log", 1, "fatal, not interpreted: ValueError: bad batch (train.py:88); 1 finding: JAI504"),
        ("unknown.log", 1, "fatal, not interpreted: the frobnicator is gone; 1 finding: JAI504"),
        ("job", 1, RAISED),
    ],
)
def test_the_exit_code_is_1_if_something_was_fatal(call, folder, name, code, first):
    done = call("log", name, columns=200)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(first)
    assert call("log", name, "--format", "json").returncode == code


@pytest.mark.parametrize("name", ["binary.log", "none.log", "empty"])
def test_the_exit_code_is_2_if_there_is_no_answer(call, folder, name):
    done = call("log", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert name in done.stderr


def test_the_exit_code_is_in_the_help(call):
    words = " ".join(call("log", "--help").stdout.split())
    assert "Exits with 0 if nothing in the log is fatal, with 1 if something is, and with 2" in words


def test_standard_input_has_the_same_answer(call, folder, monkeypatch):
    content = (folder / "failed.log").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    done = call("log", "-", columns=200)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("fatal, not interpreted: ValueError: bad batch (train.py:88)")


def test_json_has_the_kind_the_role_the_rank_the_line_and_the_numbers(call, folder):
    made = json.loads(call("log", "job", "--format", "json").stdout)
    root, barrier = made["findings"][:2]
    assert {name: root[name] for name in ("kind", "role", "rank", "line", "numbers", "code")} == {
        "kind": "not interpreted",
        "role": "root",
        "rank": "1",
        "line": 9,
        "numbers": {},
        "code": "JAI504",
    }
    assert (barrier["kind"], barrier["role"]) == ("barrier", "consequence")
    assert barrier["numbers"] == {"module": "Shutdown::2478946800946155347::0", "arrived": 1, "expected": 3}
    assert (made["headline"], made["survived_count"]) == (RAISED, 0)
    assert [(one["rank"], one["end"]) for one in made["ranks"]] == [
        ("0", "in consequence"),
        ("1", "failed"),
        ("2", "in consequence"),
    ]
    assert from_json(json.dumps(made)).headline == RAISED


def test_a_page_has_the_root_then_the_consequences_then_the_ranks(call, folder):
    text = call("log", "job", columns=120).stdout
    places = [text.index(words) for words in ("── JAI504", "── JAI502", "┃ rank ┃")]
    assert places == sorted(places)
    [row] = [line for line in text.splitlines() if line.startswith("│ 1 ")]
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == ["1", "2", "12:18:16", "failed: ValueError: bad batch at step 2 (w.py:13)"]


def test_an_ignored_code_does_not_change_the_exit_code(call, folder):
    done = call("log", "failed.log", "--ignore-code", "JAI504")
    assert done.returncode == 1
    assert "ignored codes: JAI504" in done.stdout


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_logs_exit_with_0(call, tmp_path, name):
    (tmp_path / "train.log").write_text(HEALTHY[name], encoding="utf-8")
    assert call("log", str(tmp_path / "train.log")).returncode == 0


DIED = (
    "F1127 09:14:31.205  4149 client.h:86] Terminating process because the JAX distributed service detected"
)


@pytest.fixture
def forty(tmp_path):
    """A folder with the logs of 40 ranks, of which rank 37 failed, and rank 3 printed no step."""
    for rank in range(40):
        steps = [] if rank == 3 else ["09:14:00 step 1 loss 2.31", f"09:14:20 step {2 + rank % 2} loss 2.08"]
        end = TRACEBACK if rank == 37 else [f"{DIED} fatal errors."]
        (tmp_path / f"rank{rank}.log").write_text("\n".join([*steps, *end]))
    return str(tmp_path)


def cells_of(text):
    """Return the rows of the table on a page, without its further lines."""
    rows = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"
    ]
    return [row for row in rows if row[0]]


def test_the_rank_that_failed_is_first_then_one_row_for_equal_ends(call, forty):
    assert cells_of(call("log", forty, columns=120).stdout) == [
        ["37", "3", "09:14:20", "failed: ValueError: bad batch (train.py:88)"],
        ["0-36, 38, 39", "2 to 3", "09:14:31", "in consequence: coordinator gone"],
    ]


def test_max_rows_limits_the_rows(call, forty):
    done = call("log", forty, "--max-rows", "1", columns=120)
    assert [row[0] for row in cells_of(done.stdout)] == ["37", "39 more"]
    assert done.stdout.endswith("1 row is left out: --max-rows all shows all\n")
    assert call("log", forty, "--max-rows", "all").stdout == call("log", forty).stdout


def test_healthy_ranks_are_one_row(call, tmp_path):
    for name in ("rank0.log", "rank1.log", "rank2.log", "rank3.log"):
        (tmp_path / name).write_text("\n".join(STEPS))
    assert [row[0] for row in cells_of(call("log", str(tmp_path)).stdout)] == ["0-3"]


def test_the_first_line_is_whole_in_a_pipe_and_in_a_file(call, forty, tmp_path):
    first = call("log", forty, columns=40).stdout.splitlines()[0]
    assert first.endswith("; 2 findings: JAI504 not-interpreted, JAI502 consequence")
    call("log", forty, "--output", str(tmp_path / "page.txt"), columns=40)
    assert (tmp_path / "page.txt").read_text().splitlines()[0] == first
