"""The rank that failed first: from a folder of logs, or from one log of all ranks."""

import shutil

import pytest

from jax_array_info_core import log_report
from jax_array_info_core.errors import FileFormatError
from tests.core.jobs.logs.sample import FOLDER

pytestmark = pytest.mark.newest

RAISED = "rank 1 failed first: ValueError: bad batch at step 2 (w.py:13); 2 other ranks ended in consequence"
HEADLINES = {
    "raise": RAISED,
    "kill": "rank 1 has no error: killed from outside, or ended early (2 ranks: missed heartbeats); 2 other ranks"
    " ended in consequence",
    "fetch": "all 3 ranks: RuntimeError: Fetching value for `jax.Array` that spans non-addressable (non process local)"
    " devices is not possible (w.py:19)",
    "port": "never all connected: 3 ranks waited for the others (DEADLINE_EXCEEDED: Deadline Exceeded)",
}
ENDS = {
    "raise": ["in consequence", "failed", "in consequence"],
    "kill": ["in consequence", "no error", "in consequence"],
    "fetch": ["failed"] * 3,
    "port": ["in consequence"] * 3,
}
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/home/u/train.py", line 88, in <module>',
    "    step(batch)",
    "ValueError: bad batch",
)
GLOO = "ValueError: UNKNOWN: Gloo all-reduce failed: [gloo/pair.cc:547] Connection closed by peer [10.0.0.1]:54401"
HEARTBEAT = (
    "jax.errors.JaxRuntimeError: UNAVAILABLE: Task {} heartbeat timeout. This indicates that it has failed."
)
POLLED = (
    "F1126 12:19:57.688181    5877 client.h:86] Terminating process because the JAX distributed service detected fatal"
    " errors. absl::Status: UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task was"
    " preempted/died/restarted unexpectedly."
)
BARRIER = (
    "jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: {}::0. This usually happens because a task"
    " triggered the barrier too early or too slowly.\n# of tasks that reached the barrier: {}.\nThe first task at the"
    " barrier: {}. Some timed out task names:\n{}"
)
STEPS = ["step 0 loss 2", "step 1 loss 2", "step 2 loss 2"]


def logs_of(case):
    """Return the lines of each rank of a case."""
    return [
        path.read_text(encoding="utf-8").splitlines() for path in sorted((FOLDER / "ranks" / case).iterdir())
    ]


def merged(logs, prefix):
    """Return the logs as one, line by line in turn, with the rank before each line."""
    longest = max(map(len, logs))
    return [
        prefix.format(rank) + log[place]
        for place in range(longest)
        for rank, log in enumerate(logs)
        if place < len(log)
    ]


def in_folder(folder, logs, name="rank{}.log"):
    """Write a log of each rank, and return the folder."""
    ranks = logs.items() if isinstance(logs, dict) else enumerate(logs)
    for rank, lines in ranks:
        text = "\n".join(lines if isinstance(lines, list | tuple) else [lines])
        (folder / name.format(rank)).write_text(f"{text}\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("case", HEADLINES)
def test_a_folder_of_real_logs_names_the_rank(case):
    report = log_report(FOLDER / "ranks" / case)
    assert report.headline == HEADLINES[case]
    assert [(one.rank, one.end) for one in report.ranks] == list(zip("012", ENDS[case], strict=True))
    assert report.is_fatal


@pytest.mark.parametrize("case", HEADLINES)
@pytest.mark.parametrize(
    "prefix", ["[{}]: ", "{}: ", "[{}] ", "[rank{}]: ", "worker-{}: ", "(worker pid=7{}) "]
)
def test_one_log_of_all_ranks_names_the_rank(case, prefix):
    report = log_report(merged(logs_of(case), prefix))
    if "pid" in prefix:  # no rank, but the failure
        assert report.is_fatal
        return
    assert report.headline == HEADLINES[case]
    assert [(one.rank, one.end) for one in report.ranks] == list(zip("012", ENDS[case], strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "r{}.log",
        "rank{}.log",
        "rank-{}.log",
        "rank_{}.out",
        "worker-{}.log",
        "job-77_{}.log",
        "train.log.{}",
        "train.{}",
        "train_{}.err",
        "host{}.out",
        "process-000{}.txt",
    ],
)
def test_ranks_are_in_the_names_of_files(tmp_path, name):
    report = log_report(in_folder(tmp_path, logs_of("raise"), name))
    assert report.headline == RAISED


def test_two_streams_of_a_rank_are_one_rank(tmp_path):
    """Slurm writes a file for each."""
    in_folder(tmp_path, [STEPS] * 2, "job_{}.out")
    in_folder(tmp_path, {1: TRACEBACK, 0: GLOO}, "job_{}.err")
    report = log_report(tmp_path)
    assert report.headline == (
        "rank 1 failed first: ValueError: bad batch (train.py:88); 1 other rank ended in consequence"
    )
    assert [(one.rank, one.end, one.step) for one in report.ranks] == [
        ("0", "in consequence", 2),
        ("1", "failed", 2),
    ]


def test_without_a_number_the_name_is_the_rank(tmp_path):
    in_folder(tmp_path, {"main": TRACEBACK, "eval": GLOO}, "{}.log")
    assert log_report(tmp_path).headline == (
        "rank main failed first: ValueError: bad batch (train.py:88); 1 other rank ended in consequence"
    )


def test_one_file_in_a_folder_is_one_log(tmp_path):
    report = log_report(in_folder(tmp_path, [TRACEBACK]))
    assert (report.headline, report.ranks) == (
        "fatal, not interpreted: ValueError: bad batch (train.py:88)",
        (),
    )


def test_a_folder_without_logs_has_no_answer(tmp_path):
    with pytest.raises(FileFormatError, match="a folder without logs"):
        log_report(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"\0")
    with pytest.raises(FileFormatError, match="a folder without logs"):
        log_report(tmp_path)


def test_the_first_line_of_a_failure(tmp_path):
    report = log_report(in_folder(tmp_path, [[*STEPS, GLOO], [*STEPS, *TRACEBACK], [*STEPS, GLOO]]))
    assert report.headline == (
        "rank 1 failed first: ValueError: bad batch (train.py:88); 2 other ranks ended in consequence"
    )
    assert [(one.kind, one.rank, one.role) for one in report.findings] == [
        ("not interpreted", "1", "root"),
        ("peer closed", "0", "consequence"),
    ]


def test_a_kind_is_stronger_than_a_time(tmp_path):
    """The consequence was written first."""
    consequence = [f"2026-09-20 09:00:00 {line}" for line in (*STEPS, GLOO)]
    root = [f"2026-09-20 09:01:00 {line}" for line in (*STEPS, "ValueError: bad batch")]
    report = log_report(in_folder(tmp_path, [consequence, root]))
    assert report.headline.startswith("rank 1 failed first: ValueError: bad batch; 1 other rank ended")


def test_of_two_roots_the_earlier_one_is_first(tmp_path):
    late = [f"2026-09-20 09:01:00 {line}" for line in (*STEPS, "KeyError: 'x'")]
    early = [f"2026-09-20 09:00:59 {line}" for line in (*STEPS, "ValueError: bad batch")]
    report = log_report(in_folder(tmp_path, [late, early, late]))
    assert report.headline == "rank 1 failed first: ValueError: bad batch; 2 other ranks failed too"
    report = log_report(
        in_folder(tmp_path, [[*STEPS, "KeyError: 'x'"], [*STEPS, "ValueError: bad batch"], STEPS])
    )
    assert report.headline.startswith("ranks 0, 1 failed: KeyError: 'x'; the logs do not tell which")


def test_equal_roots_of_all_ranks_are_an_error_of_the_program(tmp_path):
    report = log_report(in_folder(tmp_path, [TRACEBACK] * 4))
    assert report.headline == "all 4 ranks: ValueError: bad batch (train.py:88)"
    [found] = report.findings
    assert "line 4 and 3 more in 4 ranks" in found.problem
    numbers = [f"OSError: [Errno 28] No space left on device: '/ckpt/{rank}'" for rank in range(4)]
    assert log_report(in_folder(tmp_path, numbers)).headline.startswith("all 4 ranks: OSError: [Errno 28]")


def test_missing_ranks_are_reported(tmp_path):
    logs = {rank: GLOO for rank in range(8) if rank not in (2, 5)}
    report = log_report(in_folder(tmp_path, logs | {7: TRACEBACK}))
    assert report.headline == (
        "rank 7 failed first: ValueError: bad batch (train.py:88); 5 other ranks ended in consequence; no log of ranks"
        " 2, 5"
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (HEARTBEAT.format(2), "missed heartbeats"),
        (HEARTBEAT.format("/job:jax_worker/replica:0/task:2"), "missed heartbeats"),
        (
            "E1126 12:18:16.466070    4182 agent.cc:288] INTERNAL: The following tasks are unhealthy (stopped sending"
            " heartbeats):\n2\nThe tasks have crashed.",
            "listed as unhealthy",
        ),
        (
            "E1126 12:18:16.466070    4182 agent.cc:288] INTERNAL: The following tasks are unhealthy (stopped sending"
            " heartbeats):\n/job:jax_worker/replica:0/task:2",
            "listed as unhealthy",
        ),
        (BARRIER.format("restore", "3/4", 0, 2), "never reached the barrier restore::0"),
        (BARRIER.format("Shutdown::77", "1/4", 2, "0\n1\n3"), "first at the Shutdown barrier"),
        (
            BARRIER.format("Shutdown::77", "1/4", "/job:jax_worker/replica:0/task:2", "0"),
            "first at the Shutdown barrier",
        ),
    ],
)
def test_without_a_root_it_is_the_rank_that_the_others_name(tmp_path, line, reason):
    lines = [*STEPS, *line.splitlines()]
    report = log_report(in_folder(tmp_path, [lines, lines, STEPS, lines]))
    assert report.headline == (
        f"rank 2 has no error: killed from outside, or ended early (3 ranks: {reason}); 3 other ranks ended in"
        " consequence"
    )
    assert [one.end for one in report.ranks] == [*["in consequence"] * 2, "no error", "in consequence"]
    (tmp_path / "rank2.log").unlink()
    report = log_report(tmp_path)
    assert report.headline == (
        f"rank 2 failed first: its log is not here (3 ranks: {reason}); 3 other ranks ended in consequence; no log of"
        " rank 2"
    )


def test_if_the_coordinator_is_gone_it_is_rank_0(tmp_path):
    report = log_report(in_folder(tmp_path, [STEPS, [*STEPS, POLLED], [*STEPS, POLLED]]))
    assert report.headline == (
        "rank 0 has no error: killed from outside, or ended early; 2 other ranks ended in consequence"
    )
    (tmp_path / "rank0.log").unlink()
    assert log_report(tmp_path).headline == (
        "rank 0 failed first: its log is not here (2 ranks: the coordinator); 2 other ranks ended in consequence; no"
        " log of rank 0"
    )


def test_the_first_at_the_shutdown_barrier_is_not_the_root_if_its_own_end_is_a_consequence(tmp_path):
    """Both ranks that lost their peer reach the barrier, and the one that was killed does not."""
    barrier = BARRIER.format("Shutdown::77", "2/3", 0, "1").splitlines()
    report = log_report(in_folder(tmp_path, [[*STEPS, GLOO, *barrier], STEPS, [*STEPS, GLOO, *barrier]]))
    assert report.headline == (
        "rank 1 has no error: killed from outside, or ended early; 2 other ranks ended in consequence"
    )


def test_a_rank_without_an_error_is_only_said_if_another_failed(tmp_path):
    report = log_report(in_folder(tmp_path, [STEPS, STEPS]))
    assert (report.headline, [one.end for one in report.ranks]) == ("", ["ended", "ended"])


@pytest.mark.parametrize("code", [134, 139, 143])
def test_the_code_of_a_shell_is_a_consequence(tmp_path, code):
    """134 proves nothing alone."""
    line = f"command terminated with exit code {code}"
    report = log_report(in_folder(tmp_path, [[*STEPS, line], [*STEPS, *TRACEBACK]]))
    assert report.headline.startswith(
        "rank 1 failed first: ValueError: bad batch (train.py:88); 1 other rank"
    )
    [ended] = [one for one in report.findings if one.kind == "scheduler"]
    assert (ended.role, ended.numbers["exit_code"]) == ("consequence", code)


def test_a_killed_rank_is_the_root(tmp_path):
    line = "run.sh: line 3:  4123 Killed                  python train.py"
    report = log_report(in_folder(tmp_path, [[*STEPS, GLOO], [*STEPS, line]]))
    assert report.headline.startswith("rank 1 failed first: run.sh: line 3:  4123 Killed")
    assert [one.kind for one in report.findings] == ["host memory", "peer closed"]


def test_sigterm_in_all_ranks_is_external(tmp_path):
    line = "W0920 09:00:00.000001     700 preemption_notifier.cc:100] SIGTERM caught at 2026-09-20T09:00:00Z"
    report = log_report(in_folder(tmp_path, [[*STEPS, line]] * 3))
    assert report.headline == "all 3 ranks: SIGTERM caught at 2026-09-20T09:00:00Z"
    report = log_report(in_folder(tmp_path, [[*STEPS, line], [*STEPS, *TRACEBACK, line], [*STEPS, line]]))
    assert report.headline.startswith("rank 1 failed first: ValueError: bad batch (train.py:88)")


def many(rank):
    """Return the log of one of 704 ranks: rank 417 failed."""
    return [*STEPS, *(TRACEBACK if rank == 417 else [GLOO])]


MANY = "rank 417 failed first: ValueError: bad batch (train.py:88); 703 other ranks ended in consequence"


def test_one_of_704_ranks_in_one_log():
    report = log_report(merged([many(rank) for rank in range(704)], "[{}]: "))
    assert report.headline == MANY
    assert [one.rank for one in report.ranks] == [str(rank) for rank in range(704)]
    assert [(one.kind, one.rank) for one in report.findings] == [
        ("not interpreted", "417"),
        ("peer closed", "0"),
    ]


def test_one_of_704_ranks_in_a_folder(tmp_path):
    report = log_report(in_folder(tmp_path, [many(rank) for rank in range(704)]))
    assert report.headline == MANY
    assert [one.rank for one in report.ranks] == [str(rank) for rank in range(704)]


def test_a_copy_of_the_folder_has_the_same_answer(tmp_path):
    shutil.copytree(FOLDER / "ranks" / "raise", tmp_path / "copy")
    one, other = log_report(FOLDER / "ranks" / "raise"), log_report(tmp_path / "copy")
    assert (one.events, one.ranks) == (other.events, other.ranks)


SRUN = "srun: error: node2: task 3: Exited with exit code 3"


def test_a_line_of_the_launcher_belongs_to_no_rank_and_names_the_one_that_ended():
    lines = [f"{rank}: step {step}" for step in range(3) for rank in range(4)]
    report = log_report([*lines, SRUN])
    assert report.headline == "rank 3 failed first: exit code 3; 3 other ranks have no error"
    assert [one.rank for one in report.ranks] == ["0", "1", "2", "3"]
    raised = log_report([*lines, *TRACEBACK])
    assert raised.headline == "fatal, not interpreted: ValueError: bad batch (train.py:88)"


def test_numbers_of_steps_before_lines_are_no_ranks():
    report = log_report([*(f"{step}: loss 2" for step in range(9)), *TRACEBACK])
    assert (report.ranks, report.headline) == (
        (),
        "fatal, not interpreted: ValueError: bad batch (train.py:88)",
    )


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,{}]<stderr>: ",
        "[default{}]: ",
        "train-{}  | ",
        "[pod/train-{}/main] ",
        "[pod/train-{}-x7k2p/main] ",
        "[{}]: ",
    ],
)
def test_prefixes_of_launchers_have_the_rank(prefix):
    lines = [prefix.format(rank) + f"step {step}" for step in range(3) for rank in range(3)]
    report = log_report([*lines, *(prefix.format(1) + line for line in TRACEBACK)])
    assert report.headline.startswith("rank 1 failed first: ValueError: bad batch (train.py:88)")


@pytest.mark.parametrize(
    "prefix",
    ["2026-03-01T10:00:00.123456789Z stderr F ", "Mar  1 10:00:00 gpu01 train[123]: ", "(Worker pid=7) "],
)
def test_prefixes_without_a_rank_hide_nothing(prefix):
    report = log_report([prefix + line for line in TRACEBACK])
    assert report.headline == "fatal, not interpreted: ValueError: bad batch (train.py:88)"


def test_the_plainest_word_in_a_name_is_the_rank(tmp_path):
    for rank, host in ((0, 3), (1, 4)):
        lines = TRACEBACK if rank else (GLOO,)
        (tmp_path / f"rank{rank}-host{host}.log").write_text("\n".join(lines) + "\n")
    (tmp_path / "requirements.txt").write_text("jax\n")
    report = log_report(tmp_path)
    assert [one.rank for one in report.ranks] == ["0", "1"]
    assert report.headline.startswith("rank 1 failed first: ")


def test_several_silent_ranks_are_all_named(tmp_path):
    report = log_report(in_folder(tmp_path, ["step 1\n", "step 1\n", GLOO]))
    assert report.headline.startswith("ranks 0, 1 have no error: killed from outside, or ended early")


def test_the_words_on_one_silent_rank_among_missing_ones_are_singular():
    report = log_report(["[0]: step 1", "[0]: step 2", f"[2]: {GLOO}", "[2]: step 1"])
    words = "rank 0 has no error: killed from outside, or ended early; no evidence of who was first; "
    assert report.headline == f"{words}1 other rank ended in consequence; no log of rank 1"


def test_what_follows_a_death_is_no_progress():
    for line in ("wandb: epoch 3", "Crash report saved to /tmp/x", "  step 3 expected"):
        assert log_report([*TRACEBACK, line]).is_fatal, line
    assert log_report(["step 1", "ERROR:root:it broke"]).headline == "fatal, not interpreted: root:it broke"


def refused(size, file, shape, prefix=""):
    """Return the lines of an allocation that failed, with a table of one buffer."""
    lines = [
        f"jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {size} bytes.",
        "Peak buffers:",
        "\t1. Size: 16.00GiB",
        f'\t\tOperator: op_name="jit(f)/dot_general" source_file="/home/user/{file}" source_line=9',
        f"\t\tShape: {shape}",
        "\t\t==========================",
    ]
    return [prefix + line for line in lines]


def tables_of(report):
    """Return line, rank and buffers of each finding."""
    return [(one.line, one.rank, [leaf.shape for leaf in one.leaves]) for one in report.findings]


FIRST, SECOND = ("loss.py", "f32[65536,65536]"), ("decode.py", "bf16[65536,131072]")
TABLES = [[(65536, 65536)], [(65536, 131072)]]


@pytest.mark.parametrize("size", [17179869600, 17179869100])
def test_each_failure_has_its_own_table(size):
    """Of two programs that fail with nearly or exactly as many bytes."""
    failures = [refused(17179869100, *FIRST, "[0]: "), refused(size, *SECOND, "[1]: ")]
    assert tables_of(log_report([*failures[0], *failures[1]])) == [(1, "0", TABLES[0]), (7, "1", TABLES[1])]
    interleaved = [line for pair in zip(*failures, strict=True) for line in pair]
    assert tables_of(log_report(interleaved)) == [(1, "0", TABLES[0]), (2, "1", TABLES[1])]


def test_each_failure_of_a_rank_has_its_own_table():
    lines = [*refused(17179869100, *FIRST), "cleaning up", *refused(17179869100, *SECOND)]
    report = log_report(lines)
    assert tables_of(report) == [(1, None, TABLES[0]), (8, None, TABLES[1])]
    assert [(event.row, event.count) for event in report.events] == [(0, 1), (1, 1)]


def test_a_table_is_that_of_the_line_in_its_own_file(tmp_path):
    for rank, failure in enumerate((FIRST, SECOND)):
        (tmp_path / f"rank{rank}.log").write_text("\n".join(refused(17179869100, *failure)))
    assert tables_of(log_report(tmp_path)) == [(1, "0", TABLES[0]), (1, "1", TABLES[1])]


def test_equal_failures_of_ranks_are_one_with_the_table_of_either():
    ranks = [refused(17179869100, *FIRST, f"[{rank}]: ") for rank in range(3)]
    report = log_report([*ranks[0][:1], "[0]: step", *ranks[1], *ranks[2]])
    assert tables_of(report) == [(1, "0", TABLES[0])]
    assert report.events[0].ranks == ("0", "1", "2")
