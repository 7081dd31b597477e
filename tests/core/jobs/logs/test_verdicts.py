"""Verdicts of launchers on ranks come first; the ends that follow from another one blame no rank."""

import textwrap

import pytest

from jax_array_info_core import log_report
from tests.core.jobs.logs.test_ranks import BARRIER, GLOO, HEARTBEAT, POLLED, SRUN, TRACEBACK, in_folder

pytestmark = pytest.mark.newest

STEPS = [f"[{rank}] step {step} 2048.0" for step in (1, 2, 3) for rank in range(4)]
ABORTED = ["*** Check failure stack trace: ***", "Fatal Python error: Aborted"]
SIGTERM = "W1128 19:47:54.300311   20000 preemption_notifier.cc:94] SIGTERM caught at 2026-11-28T19:47:54Z"
LIMIT = "slurmstepd: error: *** STEP 4412.0 ON n01 CANCELLED AT 2026-06-16T14:00:00 DUE TO TIME LIMIT ***"
MISMATCH = [
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    "  what():  [enforce fail at pair.cc:459] op.preamble.length <= op.nbytes. 2048 vs 4. Received data size doesn't"
    " match expected size. Is there a distributed collective mismatch in your code?",
    "Fatal Python error: Aborted",
]
VERDICTS = {
    "jai-cli run: process 2 of 4 was killed by SIGKILL": "killed by SIGKILL",
    "jai-cli run: process 2 of 4 was killed by SIGSEGV": "killed by SIGSEGV (segmentation fault)",
    "jai-cli run: process 2 of 4 was killed by signal 99": "killed by signal 99",
    "jai-cli run: process 2 of 4 failed with exit code 3": "exit code 3",
    "mpirun noticed that process rank 2 with PID 0 on node n01 exited on signal 9 (Killed).": "killed by SIGKILL",
    "prterun noticed that process rank 2 with PID 0 on node n01 exited on signal 11 (Segmentation fault).": (
        "killed by SIGSEGV (segmentation fault)"
    ),
    "prterun noticed that process rank 2 with PID 0 on node n01 exited on\nsignal 9 (Killed).": "killed by SIGKILL",
    "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 17.": "exit code 17",
    "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n  Proc: [[1,1],2]\n  Errorcode: 17": (
        "exit code 17"
    ),
    "  Process name: [[57402,1],2]\n  Exit code:    3": "exit code 3",
    "  Process name: [prterun-n01-57402@1,2]\n  Exit code:    139": "killed by SIGSEGV (segmentation fault)",
    "=   RANK 2 PID 4174 RUNNING AT n01\n=   EXIT CODE: 9": "exit code 9",
    "=   RANK 2 PID 4174 RUNNING AT n01\n=   KILLED BY SIGNAL: 9 (Killed)": "killed by SIGKILL",
    "srun: error: node7: task 2: Out Of Memory": "killed: out of memory",
    "srun: error: node7: task 2: Killed": "killed by SIGKILL",
    "srun: error: node7: task 2: Segmentation fault (core dumped)": "killed by SIGSEGV (segmentation fault)",
    "srun: error: node7: task 2: Bus error": "killed by SIGBUS",
    "srun: error: node7: task 2: Exited with exit code 3": "exit code 3",
    "Root Cause (first observed failure):\n[0]:\n  rank      : 2 (local_rank: 0)\n  exitcode  : -9 (pid: 4)": (
        "killed by SIGKILL"
    ),
}


@pytest.mark.parametrize(("line", "words"), VERDICTS.items(), ids=VERDICTS)
@pytest.mark.parametrize("before", [STEPS, STEPS[:1], []], ids=["ranks", "one rank", "nothing"])
def test_a_verdict_names_the_rank(before, line, words):
    report = log_report([*before, *line.split("\n")])
    assert report.headline.startswith(f"rank 2 failed first: {words}")
    assert report.root_ranks == ("2",)
    assert report.findings[0].rank == "2"


def test_the_summary_of_torchrun_is_one_verdict_with_its_signal():
    """Its exception and the cause below it are two lines on one end."""
    summary = """\
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
        ============================================================
        train.py FAILED
        ------------------------------------------------------------
        Failures:
          <NO_OTHER_FAILURES>
        ------------------------------------------------------------
        Root Cause (first observed failure):
        [0]:
          time      : 2026-10-02_11:05:31
          rank      : 3 (local_rank: 3)
          exitcode  : -9 (pid: 4174)
          traceback : Signal 9 (SIGKILL) received by PID 4174
        ============================================================"""
    report = log_report([*STEPS, *textwrap.dedent(summary).splitlines()])
    assert report.headline == "rank 3 failed first: killed by SIGKILL"
    assert [event.rank for event in report.events] == ["3"]


def test_the_own_error_of_the_rank_says_more_than_the_verdict():
    error = [f"[2] {line}" for line in TRACEBACK]
    report = log_report([*STEPS, *error, "jai-cli run: process 2 of 4 failed with exit code 1"])
    assert report.headline.startswith(
        "rank 2 failed first: ValueError: bad batch (train.py:88); 3 other ranks"
    )


@pytest.mark.parametrize("end", ["Terminated", "Killed", "Aborted (core dumped)"])
def test_what_a_launcher_does_to_the_others_is_a_consequence(end):
    report = log_report([*STEPS, SRUN, f"srun: error: node1: tasks 0-2: {end}", f"[0] {SIGTERM}"])
    assert report.headline == "rank 3 failed first: exit code 3; 3 other ranks ended in consequence"
    assert {one.role for one in report.findings[1:]} == {"consequence"}


@pytest.mark.parametrize("end", ["Killed", "Segmentation fault", "Exited with exit code 1"])
def test_one_line_of_a_launcher_on_several_ranks_names_them_all(end):
    report = log_report([*STEPS, f"srun: error: node1: tasks 2-3: {end}"])
    assert report.root_ranks == ("2", "3")
    assert report.headline.startswith("ranks 2, 3 failed: ")
    assert "the logs do not tell which of them was first; 2 other ranks have no error" in report.headline


@pytest.mark.parametrize("is_first", [False, True])
def test_each_banner_of_mpich_is_a_verdict(is_first):
    ends = {"2": "11 (Segmentation fault)", "0": "15 (Terminated)"}
    banners = [
        [
            "=   BAD TERMINATION",
            f"=   RANK {rank} PID 4 RUNNING AT n01",
            f"=   KILLED BY SIGNAL: {end}",
            "=" * 40,
        ]
        for rank, end in ends.items()
    ]
    lines = [line for banner in (banners if is_first else banners[::-1]) for line in banner]
    report = log_report([*STEPS, *lines])
    assert report.headline == (
        "rank 2 failed first: killed by SIGSEGV (segmentation fault); 1 other rank ended in consequence;"
        " 2 other ranks have no error"
    )


def test_a_verdict_on_a_victim_blames_nobody():
    lost = [f"[{rank}] {line}" for rank in (0, 1) for line in (GLOO, *ABORTED)]
    verdict = "srun: error: node1: task 0: Aborted (core dumped)"
    error = [f"[3] {line}" for line in TRACEBACK]
    assert log_report([*STEPS, *lost, verdict, *error]).root_ranks == ("3",)
    report = log_report([*STEPS, *lost, verdict, "srun: error: node1: task 1: Exited with exit code 1"])
    assert report.root_ranks == ()
    assert report.headline.endswith("no evidence of who was first; 2 other ranks ended in consequence")


def test_the_time_limit_is_no_end_of_a_rank():
    lines = [*STEPS, LIMIT, "srun: error: node1: tasks 0-3: Killed"]
    report = log_report(lines)
    assert (report.root_ranks, report.is_fatal) == ((), True)
    assert report.headline == f"failed: {LIMIT}"


def test_a_job_that_timed_out_tells_who_wrote_its_stacks():
    stacks = [f"[{rank}] Current thread 0x00007fa02e0f1b80 (most recent call first):" for rank in (0, 1, 3)]
    report = log_report([*STEPS, *stacks, "jai-cli run: timed out after 14 s (--timeout)"])
    words = "timed out after 14 s: ranks 0, 1, 3 wrote where they stood, rank 2 did not"
    assert (report.headline, report.root_ranks) == (words, ())
    assert not log_report([*STEPS, *stacks]).is_fatal


def test_tags_of_mpirun_inside_of_a_line_are_put_together_again():
    tags = [f"[1,{rank}]<stderr>:step {step}" for step in (1, 2) for rank in range(3)]
    split = "[1,2]<stderr>:Fatal Python error: [1,2]<stderr>:Segmentation fault[1,2]<stderr>:"
    report = log_report([*tags, split, "[1,2]<stderr>:", f"[1,0]<stderr>:{SIGTERM}"])
    assert report.headline.startswith("rank 2 failed first: Fatal Python error: Segmentation fault")


def test_a_coordinator_that_is_gone_blames_none_that_says_so(tmp_path):
    cancel = (
        "E1127 09:14:31.163903   18967 preemption_sync_manager.cc:159] Failed to cancel preemption barrier:"
        " FAILED_PRECONDITION: Tried to cancel non-existent barrier PREEMPTION_SYNC_BARRIER."
    )
    steps = ["step 1 loss 2", "step 2 loss 2"]
    report = log_report(in_folder(tmp_path, [steps, [*steps, POLLED], [*steps, cancel, POLLED]]))
    assert report.headline == (
        "rank 0 has no error: killed from outside, or ended early; 2 other ranks ended in consequence"
    )


def test_other_collectives_are_of_no_rank(tmp_path):
    steps = ["step 1 loss 2", "step 2 loss 2"]
    report = log_report(in_folder(tmp_path, [[*steps, POLLED], [*steps, *MISMATCH]]))
    assert report.headline == (
        "ranks ran other collectives, of 2,048 against 4 bytes; 1 other rank ended in consequence"
    )
    assert report.root_ranks == ()
    # After the end of another process, its data is cut off.
    report = log_report(in_folder(tmp_path, [steps, [*steps, POLLED, *MISMATCH]]))
    assert report.root_ranks == ("0",)


def test_a_rank_whose_log_has_only_consequences_is_not_blamed(tmp_path):
    lost = ["step 1", GLOO, HEARTBEAT.format(1)]
    report = log_report(in_folder(tmp_path, [lost, lost, lost]))
    assert report.root_ranks == ()
    assert "no evidence of who was first" in report.headline


def test_the_last_line_of_a_rank_that_ended_early_is_said(tmp_path):
    barrier = BARRIER.format("Shutdown::77", "1/4", 2, "0\n1\n3").split("\n")
    early = ["step 1", "config has no field lr", POLLED, *barrier]
    report = log_report(
        in_folder(tmp_path, [["step 1", *barrier], ["step 1", POLLED], early, ["step 1", POLLED]])
    )
    assert report.headline.startswith(
        "rank 2 ended early (1 rank: first at the Shutdown barrier); its last line: config has no field lr"
    )


def test_a_rank_that_is_late_at_a_barrier_is_named(tmp_path):
    late = [*BARRIER.format("ckpt_5", "2/3", 0, "2").split("\n"), POLLED]
    report = log_report(in_folder(tmp_path, [["step 1", *late], ["step 1", *late], ["step 1", POLLED]]))
    assert report.headline.startswith("rank 2 was late (2 ranks: never reached the barrier ckpt_5::0)")


def test_a_stall_leads_before_the_time_limit_of_hours_later(tmp_path):
    steps = [f"2026-06-16 10:00:0{step}.000 step {step} loss 2.0" for step in range(5)]
    report = log_report(in_folder(tmp_path, [[*steps, LIMIT], steps]))
    assert report.headline == (
        "stalled: no progress for 14,396 seconds after step 4 at 10:00:04, until the time limit; 1 other rank has no"
        " error"
    )
    assert [one.role for one in report.findings] == ["stall", "consequence"]
    assert report.root_ranks == ()


def test_a_step_of_another_rank_in_the_same_log_survives_nothing():
    steps = ["step 3 loss 2", "step 3 loss 2", "step 4 loss 2"]
    report = log_report([*steps, *TRACEBACK, "step 4 loss 2"])
    assert report.headline == "fatal, not interpreted: ValueError: bad batch (train.py:88)"


def test_a_log_without_counters_that_goes_on_tells_nothing_of_its_end():
    report = log_report(["loading", *TRACEBACK, "INFO:main:loading again"])
    assert report.headline == "not known to be survived: ValueError: bad batch (train.py:88)"
    assert log_report(["loading", *TRACEBACK]).headline.startswith("fatal, not interpreted")


def test_the_last_line_of_a_rank_without_an_error_is_said(tmp_path):
    lost = ["step 1", GLOO, HEARTBEAT.format(1)]
    silent = ["step 1", "config has no field lr"]
    words = "; its last line: config has no field lr; 2 other ranks ended in consequence"
    assert log_report(in_folder(tmp_path, [lost, silent, lost])).headline.endswith(words)
    logs = [f"[{rank}] {line}" for rank, log in enumerate([lost, silent, lost]) for line in log]
    assert log_report(logs).headline.endswith(words)


def test_an_empty_log_is_one_of_a_rank_but_a_verdict_is_none(tmp_path):
    (tmp_path / "rank1.log").write_text("")
    report = log_report(in_folder(tmp_path, {0: ["step 1", GLOO]}))
    assert [(one.rank, one.line_count) for one in report.ranks] == [("0", 2), ("1", 0)]
    assert log_report(["jai-cli run: process 2 of 4 was killed by SIGKILL"]).ranks == ()


def test_an_exception_that_ends_a_thread_is_survived_by_no_step():
    lines = ["step 1", "Exception in thread loader:", *TRACEBACK, "step 2", "step 3"]
    report = log_report(lines)
    assert report.headline == "fatal, not interpreted: ValueError in thread loader: bad batch (train.py:88)"
    assert not log_report([*lines, "done"]).is_fatal


def test_a_signal_after_which_the_job_ended_well_is_survived():
    log = ["step 1", SIGTERM, "step 2"]
    assert log_report(log).is_fatal
    report = log_report([*log, "09:15:00 done"])
    assert (report.headline, report.survived_count, report.findings) == ("", 1, ())


CRASH = [POLLED, *ABORTED]
FIRST = ["step 1 loss 2", "step 2 loss 2", *CRASH]


def test_after_a_restart_the_last_attempt_is_reported():
    ended = log_report([*FIRST, "step 1 loss 2", "step 2 loss 2", "step 3 loss 2", "done"])
    assert ended.answer == "nothing fatal in 9 lines; attempt 2 ended well"
    assert (ended.attempt, ended.is_fatal) == (2, False)
    failed = log_report([*FIRST, "step 1 loss 2", *TRACEBACK])
    assert failed.headline == "attempt 2: fatal, not interpreted: ValueError: bad batch (train.py:88)"
    third = log_report([*FIRST, "step 1 loss 2", "step 2 loss 2", *TRACEBACK, "step 1 loss 2", "done"])
    assert third.answer == "nothing fatal in 13 lines; attempt 3 ended well"


def test_a_verdict_on_an_attempt_without_a_step_is_survived_by_a_good_end_of_all_ranks():
    verdict, good = "jai-cli run: process 1 of 4 failed with exit code 1", "training finished"
    ends = [f"[{rank}] {good}" for rank in range(4)]
    report = log_report([verdict, *STEPS, *ends])
    assert (report.answer, report.root_ranks) == ("nothing fatal in 17 lines; survived: 1", ())
    report = log_report([verdict, *STEPS, *ends[:3]])
    assert report.root_ranks == ("1",)


def test_an_attempt_without_an_end_has_the_error_of_the_one_before():
    report = log_report(["step 1", "step 2", *TRACEBACK, "step 1"])
    assert report.headline == (
        "attempt 2 has neither an error nor an end; attempt 1: fatal, not interpreted: ValueError: bad batch"
        " (train.py:88)"
    )
    assert report.findings[0].code == "JAI504"


def test_ranks_are_restarted_together(tmp_path):
    first = [["step 1", "step 2", GLOO], ["step 1", "step 2", *TRACEBACK]]
    report = log_report(in_folder(tmp_path, [[*log, "step 1", "step 2", "done"] for log in first]))
    assert (report.headline, report.attempt) == ("", 2)
    report = log_report(in_folder(tmp_path, [[*log, "step 1"] for log in first]))
    assert report.headline.startswith(
        "attempt 2 has neither an error nor an end; attempt 1: rank 1 failed first"
    )


def test_steps_of_each_epoch_are_no_attempts():
    epochs = [f"step {step}" for _ in range(3) for step in range(3)]
    caught = [*epochs, *TRACEBACK, *epochs]
    assert log_report(caught).attempt == 1
    assert not log_report([*caught, "step 4"]).is_fatal


@pytest.mark.parametrize(
    "last", ["step 5/5", "iteration 5 of 5", "exited with code 0", "All done.", "training complete"]
)
def test_a_job_that_ran_to_its_end_is_no_failed_one(last):
    assert not log_report(["step 4/5", "Fatal Python error: Segmentation fault", last]).is_fatal


@pytest.mark.parametrize("last", ["step 5/6", "epoch 5/5", "exited with code 1", "loading is done"])
def test_what_is_no_end(last):
    assert log_report(["step 4/5", "Fatal Python error: Segmentation fault", last]).is_fatal
