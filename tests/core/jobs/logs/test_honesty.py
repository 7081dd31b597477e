"""No alarm on healthy logs, and no silence on a fatal line that no kind explains."""

import json

import pytest

from jax_array_info_core import log_report
from tests.core.jobs.logs.sample import FOLDER

pytestmark = pytest.mark.newest

HEALTHY = {
    "a start of JAX on a GPU": """
2025-09-01 09:00:00.000001: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:467] Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT when one has already been registered
E0000 00:00:1725181200.000001    1201 cuda_dnn.cc:8579] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered
E0000 00:00:1725181200.000002    1201 cuda_blas.cc:1407] Unable to register cuBLAS factory: Attempting to register factory for plugin cuBLAS when one has already been registered
W0000 00:00:1725181200.000003    1201 computation_placer.cc:177] computation placer already registered. Please check linkage and avoid linking the same target more than once.
step 0 loss 2.1
step 1 loss 2.0
""",
    "a run of pytest": """
============================= test session starts ==============================
tests/test_a.py::test_raises FAILED                                       [ 33%]
E       ValueError: bad batch
tests/test_a.py::test_raises PASSED                                       [ 66%]
tests/test_a.py::test_error_is_said PASSED                                [100%]
========================= 3 passed, 1 rerun in 1.20s ===========================
""",
    "progress bars and an uploader": """
wandb: Tracking run with wandb version 0.21.0
wandb: WARNING Symlinked 3 files into the W&B run directory, call wandb.save again to sync new files.
train:  10%|#         | 10/100 [00:10<01:30,  1.00it/s, loss=2.1, errors=0]
train: 100%|##########| 100/100 [01:40<00:00,  1.00it/s, loss=1.1, errors=0]
wandb: Run history:
wandb:       loss_error 0.01
wandb: Synced 5 W&B file(s), 0 media file(s), 0 artifact file(s) and 0 other file(s)
""",
    "a prolog of slurm": """
slurmstepd: info: Setting TmpFS to /local
prolog: checking GPUs: 8 found, Xid errors: 0, ECC errors: 0
prolog: memory limit 1000G, oom_score_adj 0
JobId=77 JobState=RUNNING ExitCode=0:0 TimeLimit=04:00:00
step 0 loss 2.1
JobId=77 JobState=COMPLETED ExitCode=0:0
""",
    "quoted tracebacks": """
step 1200 loss 2.31
sample: Traceback (most recent call last):
sample:   File "main.py", line 3, in <module>
sample: ValueError: bad batch
sample: Killed
step 1300 loss 2.30
""",
    "absl's warnings": """
W0920 09:00:00.000001  140 model.py:55] RESOURCE_EXHAUSTED is retried up to 3 times
W0920 09:00:00.000002  140 model.py:56] ValueError: the batch is skipped
I0920 09:00:00.000003  140 model.py:57] Error rate: 0.01
W0920 09:00:01.000001  140 summary.py:12] Out of memory budget for images: keeping 8 of 64
I0920 09:00:02.000001  140 main.py:33] step 1 loss 2.1
""",
    "an uninterrupted end": """
I0920 09:00:00.000001  140 main.py:33] step 100 loss 2.1
I0920 09:00:01.000001  140 main.py:40] training finished
I0920 09:00:02.000001  140 main.py:41] Exiting with exit code 0
""",
    "names of files and metrics": """
loading /data/errors/Killed/barrier_timeout.parquet
eval/exception_rate 0.00
no errors found in 12 shards
segfault_handler: installed
preempt_count 0, oom_count 0, nan_count 0
step 3 loss 1.2
""",
}
SAVED = """
I0920 09:00:00.000001  700 main.py:33] step 1200 loss 2.31
W0920 09:00:01.000001  700 preemption_notifier.cc:100] SIGTERM caught at 2026-09-20T09:00:01Z
I0920 09:00:05.000001  700 main.py:40] saved checkpoint at step 1200
"""


@pytest.mark.parametrize("path", sorted((FOLDER / "healthy").iterdir()), ids=lambda one: one.name)
def test_healthy_logs_have_no_alarm(path):
    report = log_report(path)
    assert (report.headline, report.is_fatal) == ("", False)
    assert [one.kind for one in report.findings] == []


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_other_healthy_logs_have_no_alarm(text):
    report = log_report(text.splitlines())
    assert (report.headline, [one.kind for one in report.findings]) == ("", [])
    lines = len(text.splitlines())
    assert report.answer.startswith(f"nothing fatal in {lines} lines")


@pytest.mark.parametrize("rank", ["", "[0]: ", "worker-1: "])
def test_healthy_logs_of_ranks_have_no_alarm(rank):
    for text in HEALTHY.values():
        lines = [f"{rank}{line}" for line in text.splitlines()]
        assert log_report(lines).headline == ""


@pytest.mark.parametrize(
    ("error", "count"),
    [
        ("Traceback (most recent call last):\n  File 'a.py', line 1, in f\nValueError: bad batch", 1),
        ("E0920 09:00:00.1 700 data.cc:12] INTERNAL: read failed", 1),
        (
            "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 99 bytes.",
            1,
        ),
        ("OSError: [Errno 28] No space left on device", 1),
    ],
)
def test_an_exception_after_which_steps_go_on_was_survived(error, count):
    report = log_report(["step 1 loss 2", *error.splitlines(), "step 2 loss 2"])
    assert (report.headline, report.survived_count, report.findings) == ("", count, ())
    assert report.answer.endswith(f"survived: {count}")
    report = log_report(["step 1 loss 2", "step 2 loss 2", *error.splitlines()])
    assert (report.is_fatal, report.survived_count) == (True, 0)


@pytest.mark.parametrize(
    "progress",
    [
        "epoch 3",
        "iteration 7",
        "job finished",
        "12 passed",
        "done",
        "2026-01-02 09:00:00 Finished.",
        "step 7/7",
    ],
)
def test_progress_has_several_words(progress):
    assert not log_report(["ValueError: bad batch", progress]).is_fatal


@pytest.mark.parametrize(
    "line", ["saved checkpoint", "step 4", "epoch 1 step 3", "loading is done", "exit code 1", "step 3/7"]
)
def test_what_is_not_new_is_no_progress(line):
    """A checkpoint may be saved at the end; a step that is repeated may be that of another rank."""
    log = ["epoch 1 step 3", "epoch 1 step 4", "ValueError: bad batch", line]
    assert log_report(log).is_fatal


def test_a_new_epoch_begins_its_steps_again():
    log = ["epoch 1 step 8", "epoch 1 step 9", "ValueError: bad batch", "epoch 2 step 0"]
    assert not log_report(log).is_fatal


def test_the_progress_of_another_rank_is_not_that_of_the_rank():
    lines = ["[0]: step 1", "[1]: step 1", "[1]: ValueError: bad batch", "[0]: step 2", "[0]: step 3"]
    headline = log_report(lines).headline
    assert headline == "rank 1 failed first: ValueError: bad batch; 1 other rank has no error"


@pytest.mark.parametrize("end", ["saved checkpoint at step 1200", "exited with code 0", "training complete"])
def test_sigterm_is_not_fatal_if_the_rank_saved(end):
    report = log_report([*SAVED.splitlines()[:-1], f"I0920 09:00:05.000001  700 main.py:40] {end}"])
    assert not report.is_fatal
    assert log_report(SAVED.splitlines()[:-1]).headline == "failed: SIGTERM caught at 2026-09-20T09:00:01Z"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("F0920 09:00:00.1 700 x.cc:1] the frobnicator is gone", "the frobnicator is gone"),
        ("2026-09-20 09:00:00.1: F external/xla/x.cc:1] the frobnicator is gone", "the frobnicator is gone"),
        ("CRITICAL:root:the frobnicator is gone", "root:the frobnicator is gone"),
        ("acme.errors.FrobnicatorError: gone", "acme.errors.FrobnicatorError: gone"),
        ("INTERNAL: the frobnicator is gone", "INTERNAL: the frobnicator is gone"),
        ("Fatal Python error: frobnicated", "Fatal Python error: frobnicated"),
        ("*** SIGSYS (@0x1), see go/stacktraces#s15 received by PID 7 ***", "*** SIGSYS"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "terminate called"),
    ],
)
def test_a_fatal_line_that_no_kind_explains_is_printed(line, words):
    report = log_report(["step 1", "step 2", line])
    assert report.headline.startswith("fatal, not interpreted: ")
    assert words in report.headline
    [found] = report.findings
    assert (found.kind, found.code, found.line) == ("not interpreted", "JAI504", 3)


@pytest.mark.parametrize(
    "line",
    [
        "F0920 09:00:00.1 700 x.cc:1] the frobnicator is gone",
        "Fatal Python error: frobnicated",
        "Check failed: a == b",
        "command terminated with exit code 139",
        "Killed",
        "*** SIGSEGV received by PID 7 ***",
    ],
)
def test_no_process_survives_some_lines(line):
    """Lines of other processes may follow in the same file."""
    assert log_report(["step 1", line, "step 2"]).is_fatal


def test_a_traceback_at_the_end_without_its_exception_is_fatal():
    lines = ["step 1", "Traceback (most recent call last):", '  File "train.py", line 88, in step']
    report = log_report(lines)
    assert report.headline.startswith("fatal, not interpreted: Traceback (most recent call last)")


def test_chained_tracebacks_end_in_the_last_exception():
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/u/train.py", line 80, in load',
        "KeyError: 'x'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "/home/u/train.py", line 88, in <module>',
        "ValueError: bad batch",
    ]
    report = log_report(lines)
    assert report.is_fatal
    assert "not interpreted" in {one.kind for one in report.findings}
    assert any("train.py:8" in one.problem for one in report.findings)


def test_codes_can_be_ignored_but_not_the_end():
    report = log_report(["ValueError: bad batch"], ignore_codes="JAI504")
    assert (report.findings, report.is_fatal, report.ignored_codes) == ((), True, ("JAI504",))


def test_thousands_of_lines_have_commas():
    assert log_report(["step 1"] * 12_345).answer == "nothing fatal in 12,345 lines"


@pytest.mark.parametrize("last", ["KeyError: 'step'", "Killed"])
def test_the_end_of_a_log_is_read_after_thousands_of_different_errors(last):
    lines = ["ValueError: the first"] * 3 + [f"worker-{place}: KeyError: 'x'" for place in range(9000)]
    report = log_report([*lines, "step 1", last])
    assert last in report.headline
    assert report.survived_count + report.unlisted_count == 9003


TRACEBACK = """Traceback (most recent call last):
  File "/home/u/train.py", line 12, in main
    step(x)
Stop: bad batch"""


@pytest.mark.parametrize(
    "fields",
    [
        {"message": TRACEBACK},
        {"severity": "ERROR", "message": f"training failed\n{TRACEBACK}"},
        {"level": "error", "message": "training failed", "exc_info": TRACEBACK},
        {"event": "training failed", "exception": TRACEBACK, "level": "error"},
        {"message": f"{'x' * 3000}\n{TRACEBACK}\n", "severity": "ERROR"},
        {"message": TRACEBACK.replace("    step(x)", f"    step({'x' * 3000})"), "severity": "ERROR"},
    ],
)
@pytest.mark.parametrize("after", [[], ['{"message": "closed"}']])
def test_a_traceback_in_a_line_of_json_is_one(fields, after):
    plain = log_report(TRACEBACK.split("\n"))
    report = log_report(["step 1", json.dumps(fields), *after])
    assert report.headline == plain.headline == "fatal, not interpreted: Stop: bad batch (train.py:12)"
    [event] = report.events
    assert (event.line, event.place, event.text) == (2, "train.py:12", "Stop: bad batch")


def test_a_traceback_in_json_has_the_time_of_its_line(tmp_path):
    for rank, second, problem in ((0, 5, "bad"), (1, 4, "empty")):
        line = json.dumps({"time": f"10:00:0{second}", "message": TRACEBACK.replace("bad", problem)})
        (tmp_path / f"rank{rank}.log").write_text(line + "\n")
    assert log_report(tmp_path).headline.startswith("rank 1 failed first")
