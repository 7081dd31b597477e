"""Nothing that a page runs is left when the build ends, however it does."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from docs_hooks import lifelines
from docs_hooks.blocks import BlockError, block_of
from docs_hooks.lifelines import Lifeline, StoppedError
from docs_hooks.running import run_blocks
from tests.site.conftest import ROOT

HIDDEN = "setsid sleep 600 & echo $! > {pids}; echo $$ >> {pids}; "


def are_gone(pids):
    """Wait until none of the processes runs."""
    deadline = time.monotonic() + 60
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)
    return True


def is_alive(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def heed_interrupts():
    """Undo what a shell does to those that it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pids_in(path, count=2):
    """Wait until so many are written; return them."""
    deadline = time.monotonic() + 120
    while not path.exists() or len(path.read_text().split()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return list(map(int, path.read_text().split()))


def test_what_a_command_leaves_behind_ends_with_it(tmp_path):
    pids = tmp_path / "pids"
    run_blocks([block_of("console", f"$ {HIDDEN.format(pids=pids)}", {})])
    assert are_gone(pids_in(pids))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    "fence",
    [
        "```console\n$ {hidden}sleep 600\n```",
        '```python devices="1"\nimport os\nos.system("""{hidden}sleep 600""")\n```',
    ],
    ids=["console", "python"],
)
def test_a_build_that_is_ended_leaves_nothing(fence, number, tmp_path):
    pids = tmp_path / "pids"
    (tmp_path / "docs").mkdir()
    for page in ("a", "b", "c"):  # one that runs, and some that would
        hidden = HIDDEN.format(pids=pids)
        (tmp_path / "docs" / f"{page}.md").write_text(fence.format(hidden=hidden) + f"\n\n{page}\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"site_name: x\ntheme: mkdocs\nplugins: []\nhooks: [{ROOT / 'docs_hooks' / 'hook.py'}]\n"
        "markdown_extensions: [pymdownx.superfences]\n"
    )
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(tmp_path / "mkdocs.yml")]
    with subprocess.Popen(
        command, stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=heed_interrupts
    ) as build:
        found = pids_in(pids)
        os.kill(build.pid, number)
        assert build.wait(60) != 0
    assert are_gone(found + pids_in(pids))


def test_programs_end_and_none_begins_when_blocks_are_no_longer_run():
    line = Lifeline()
    command = [*line.words, "sleep", "600"]
    with subprocess.Popen(command, pass_fds=line.descriptors) as program:
        try:
            lifelines.stop()
            assert program.wait(60) == 128 + signal.SIGKILL
            with pytest.raises(StoppedError):
                Lifeline()
        finally:
            lifelines.begin()
        line.cut()  # again


def test_a_killed_program_is_known_by_its_number():
    block = block_of("python", "import os; os.kill(os.getpid(), 9)", {"devices": "1"})
    with pytest.raises(BlockError, match="its process ended with 137"):
        run_blocks([block])
