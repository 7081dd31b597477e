"""``jai-cli top``: keys, sizes and signals on a terminal, which is restored each way out, and snapshots elsewhere."""

import os
import shutil
import signal
import subprocess
import termios

import pytest

from jax_array_info_cli.commands.recorded import View
from jax_array_info_core import from_json
from jax_array_info_core.facts.reports.record import RecordDevice, RecordMark, RecordSample
from jax_array_info_core.jobs.timeline.segments import encoded
from jax_array_info_core.jobs.timeline.timeline_report import Follower
from tests.cli.terminals import COMMAND, PATIENCE, Terminal, run_into_pipe, run_on_terminal
from tests.core.jobs.timeline.samples import START, record_group, record_start, samples_of, write_record

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

LEFT = "\x1b[?25h\x1b[?1049l"
"""Shows the cursor and leaves the alternate screen."""


def top(*args, **options):
    return Terminal(*COMMAND, "top", *args, **options)


def lines_of(process=0, process_count=1):
    """Return the lines of a process with two devices, whose arrays of line 31 grow."""
    devices = tuple(
        RecordDevice(id=2 * process + one, name=f"cuda:{2 * process + one}", bytes_limit=2**34)
        for one in range(2)
    )
    start = record_start(devices=devices, process=process, process_count=process_count)
    groups = [record_group(0, 14, mib=64), record_group(1, 31)]
    samples = samples_of(groups, {0: lambda _: 3, 1: lambda number: number}, 20)
    two = [
        type(sample)(
            time=sample.time,
            step=sample.step,
            in_use=(sample.in_use[0], process + 1),
            groups=sample.groups,
            counts=sample.counts,
        )
        for sample in samples
    ]
    return [start, *groups, *two[:-1], RecordMark(time=START + 18.5, name="eval"), two[-1]]


@pytest.fixture
def folder(tmp_path):
    """The record of a job of two processes."""
    for process in range(2):
        write_record(tmp_path / "memory", lines_of(process, 2), f"process-{process}.jsonl")
    return tmp_path / "memory"


def test_keys_sort_and_choose_the_process_and_the_device_and_quit(folder):
    with top(str(folder)) as terminal:
        terminal.wait_for("q: quit   s: sort (bytes)   p: next process   right: next device")
        assert "\x1b[?1049h" in terminal.text
        assert "arrays on cuda:0 of process 0, step 19, in eval" in terminal.text
        assert not terminal.is_restored
        for key, words in [
            ("s", "sort (trend)"),
            ("p", "arrays on cuda:2 of process 1"),
            ("\x1b[C", "arrays on cuda:3 of process 1"),
            ("\x1b[D", "arrays on cuda:2 of process 1"),
            ("\x1bOA", "arrays on cuda:0 of process 0"),
            ("ss", "sort (bytes)"),
            ("\x1b[15~x", "sort (bytes)"),
        ]:
            terminal.press(key)
            terminal.wait_for(words)
        terminal.press("q")
        assert terminal.exit_code() == 0
        assert terminal.text.endswith(LEFT)
        assert terminal.is_restored


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (signal.SIGINT, 0),
        (signal.SIGTERM, -signal.SIGTERM),
        (signal.SIGHUP, -signal.SIGHUP),
        (signal.SIGQUIT, -signal.SIGQUIT),
    ],
)
def test_a_signal_restores_the_terminal_and_ends_the_program_as_it_does_by_default(folder, end, code):
    with top(str(folder)) as terminal:
        terminal.wait_for("q: quit")
        terminal.process.send_signal(end)
        assert terminal.exit_code() == code
        assert terminal.text.endswith(LEFT)
        assert terminal.is_restored


def test_an_error_while_it_runs_restores_the_terminal_and_is_one_line(folder):
    with top(str(folder)) as terminal:
        terminal.wait_for("q: quit")
        shutil.rmtree(folder)
        folder.write_text("a file")
        assert terminal.exit_code() == 2
        after = terminal.text.rpartition(LEFT)[2]
        assert after == f"Error: {folder}: Not a directory\r\n"
        assert terminal.is_restored


def test_ctrl_z_restores_the_terminal_until_the_program_is_continued(folder):
    job = 'set -m; "$@"; echo suspended; stty -a; fg > /dev/null; echo "ended with $?"'
    with Terminal(shutil.which("bash"), "-c", job, "bash", *COMMAND, "top", str(folder)) as terminal:
        terminal.wait_for("q: quit")
        terminal.press("\x1a")
        terminal.wait_for("suspended")
        terminal.wait_for("q: quit")
        before, _, state = terminal.text.partition("suspended")
        assert LEFT in before
        assert " icanon " in state.partition("\x1b[?1049h")[0]
        assert " echo " in state.partition("\x1b[?1049h")[0]
        assert not terminal.is_restored
        terminal.press("q")
        terminal.wait_for("ended with 0")
        assert terminal.is_restored


def test_after_a_stop_that_it_does_not_notice_the_terminal_is_set_up_again(folder):
    with top(str(folder)) as terminal:
        terminal.wait_for("q: quit")
        terminal.process.send_signal(signal.SIGSTOP)
        os.waitpid(terminal.process.pid, os.WUNTRACED)
        termios.tcsetattr(terminal.its, termios.TCSANOW, terminal.before)  # as a shell does
        terminal.text = ""
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait_for("q: quit")
        assert not terminal.is_restored
        terminal.press("q")
        assert terminal.exit_code() == 0


def test_a_page_follows_the_size_of_the_terminal(folder):
    with top(str(folder), columns=80, lines=11) as terminal:
        terminal.wait_for("arrays on cuda:0")
        assert "train.py:31" not in terminal.text
        terminal.resize(200, 50)
        terminal.wait_for("train.py:31")
        terminal.press("q")
        assert terminal.exit_code() == 0


def test_a_terminal_that_is_closed_ends_the_program(folder):
    with top(str(folder)) as terminal:
        terminal.wait_for("q: quit")
        terminal.close()
        assert terminal.process.wait(PATIENCE) == -signal.SIGHUP


def test_a_job_that_has_not_started_is_waited_for_and_so_is_half_a_line(tmp_path):
    folder = tmp_path / "memory"
    whole = b"".join(map(encoded, lines_of()))
    with top(str(folder), columns=200) as terminal:
        terminal.wait_for("waiting for a record")
        terminal.wait_for("no such folder")
        folder.mkdir()
        terminal.wait_for("no memory record")
        path = folder / "process-0.jsonl"
        path.write_bytes(whole[:-20])
        terminal.wait_for("step 18")
        assert "left out" not in terminal.text
        with path.open("ab") as file:
            file.write(whole[-20:])
        terminal.wait_for("step 19")
        terminal.press("q")
        assert terminal.exit_code() == 0


def test_without_a_keyboard_ctrl_c_quits(folder):
    with top(str(folder), stdin=subprocess.DEVNULL) as terminal:
        terminal.wait_for("Ctrl+C quits")
        assert "sort" not in terminal.text
        terminal.press("\x03")
        assert terminal.exit_code() == 0
        assert terminal.text.endswith(LEFT)


def test_a_dumb_terminal_gets_a_snapshot_without_escapes(folder):
    printed = run_on_terminal("top", str(folder), columns=80, TERM="dumb")
    assert printed.code == 0, printed.text
    assert "\x1b" not in printed.text
    assert printed.width <= 80
    assert "arrays on cuda:0 of process 0, step 19, in eval" in printed.text
    assert "q: quit" not in printed.text


def test_a_pipe_has_the_width_in_columns_and_only_ascii_if_the_encoding_is_ascii(folder):
    printed = run_into_pipe("top", str(folder), COLUMNS="50", PYTHONIOENCODING="ascii")
    assert (printed.code, printed.text.isascii()) == (0, True)
    assert "\x1b" not in printed.text
    assert printed.width <= 50


def test_a_snapshot_is_text_json_or_a_file_and_the_record_is_only_read(call, folder, tmp_path):
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert "arrays on cuda:0 of process 0, step 19, in eval" in call("top", str(folder)).stdout
    report = from_json(call("top", str(folder), "--format", "json", "--process", "1", "--device", "3").stdout)
    assert (report.process, report.device) == (1, 3)
    for name, start in [("a.txt", "memory: 2"), ("a.svg", "<svg"), ("a.html", "<!")]:
        assert call("top", str(folder), "--output", str(tmp_path / name), columns=200).returncode == 0
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()} == before


def test_the_device_that_is_shown_stays_until_another_is_far_fuller(folder):
    def peak(process, nbytes):
        sample = RecordSample(time=START + 20, in_use=(0, 0), peak=(nbytes, 0))
        with (folder / f"process-{process}.jsonl").open("ab") as file:
            file.write(encoded(sample))
        view.read()
        report, _ = view.read()  # decides by the report before
        return report.process

    view = View(Follower(folder), str(folder), None, None)
    assert peak(0, 100 * 2**30) == 0
    assert peak(1, 109 * 2**30) == 0
    assert peak(1, 120 * 2**30) == 1
    view.press("p")
    assert peak(1, 200 * 2**30) == 0


def test_the_keys_go_through_the_runs_of_a_process(tmp_path):
    for run in range(2):
        start = record_start(started=START + run / 10, pid=run)
        sample = RecordSample(time=START + 5, in_use=(run,))
        write_record(tmp_path, [start, sample], f"process-0-{run}.jsonl")
    view = View(Follower(tmp_path), str(tmp_path), None, None)
    shown = []
    for key in ("", "p", "p", "up", "right"):
        view.press(key)
        report, _ = view.read()
        shown.append((report.process, report.run))
    assert shown == [(0, 1), (0, 0), (0, 1), (0, 0), (0, 0)]
