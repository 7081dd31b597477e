"""A law: of random logs of ranks with a planted root, the rank that has it is named, or none is."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info_core import log_report
from tests.core.jobs.logs.test_ranks import BARRIER, GLOO, HEARTBEAT, POLLED, TRACEBACK, in_folder
from tests.core.jobs.logs.test_verdicts import ABORTED, MISMATCH, SIGTERM

pytestmark = pytest.mark.newest

IS_LONG = "JAI_FUZZ" in os.environ
CANCEL = (
    "E1127 09:14:31.163903   18967 preemption_sync_manager.cc:159] Failed to cancel preemption barrier:"
    " FAILED_PRECONDITION: Tried to cancel non-existent barrier PREEMPTION_SYNC_BARRIER."
)
LEADER = POLLED
DETECTED = POLLED.partition(" absl::Status")[0]
ROOTS = {
    "an exception": list(TRACEBACK),
    "a crash": [
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x00007f (most recent call first):",
    ],
    "no memory": ["run.sh: line 3:  4123 Killed                  python train.py"],
    "a thread": ["Exception in thread loader:", *TRACEBACK, "waiting for the data loader"],
    "nothing": [],
    "a last word": ["config has no field lr"],
}
"""What the rank that fails first writes."""
VERDICTS = [
    "srun: error: node2: task {}: Killed",
    "srun: error: node2: task {}: Exited with exit code 3",
    "jai-cli run: process {} of 9 was killed by SIGKILL",
    "mpirun noticed that process rank {} with PID 7 on node n01 exited on signal 11 (Segmentation fault).",
]
AFTER = ["srun: error: node1: task {}: Terminated", "srun: error: node1: task {}: Aborted (core dumped)"]


def victim(data, root):
    """Return what a rank writes that ends after the root: consequences, signals, or nothing while it waits."""
    naming = [HEARTBEAT.format(root), *BARRIER.format("ckpt_5", "2/3", 9, root).split("\n")]
    leader = [LEADER] if root == "0" else [DETECTED]
    ends = [
        [GLOO, *leader, *ABORTED],
        [CANCEL, *leader, *MISMATCH],
        [*naming, DETECTED, *ABORTED],
        [GLOO],
        [SIGTERM],
        [GLOO, SIGTERM],
        [*leader, "KeyboardInterrupt"],
        [],
        ["still waiting"],
    ]
    return data.draw(st.sampled_from(ends))


def logs(data):
    """Return the planted root, and the log of each rank."""
    count = data.draw(st.integers(2, 5))
    root = data.draw(st.integers(0, count - 1))
    end = ROOTS[data.draw(st.sampled_from([*ROOTS]))]
    steps = data.draw(st.integers(0, 3))
    written = {
        rank: [
            *(f"step {step} loss 2.1" for step in range(steps)),
            *(end if rank == root else victim(data, str(root))),
        ]
        for rank in range(count)
    }
    return str(root), written


def assert_planted(report, root):
    """Assert that no other rank than the root is named, neither in the report nor in its first line."""
    assert set(report.root_ranks) <= {root}, report.headline
    words = report.headline
    if not report.root_ranks:
        assert not words.startswith("rank "), words


@settings(max_examples=1000 if IS_LONG else 50, derandomize=not IS_LONG, deadline=None)
@given(data=st.data())
def test_no_victim_is_named_in_a_log_of_all_ranks(data):
    root, written = logs(data)
    order = data.draw(st.permutations([rank for rank, lines in written.items() for _ in lines]))
    left = {rank: iter(lines) for rank, lines in written.items()}
    lines = [f"[{rank}] {next(left[rank])}" for rank in order]
    verdict = data.draw(st.sampled_from(["", *VERDICTS]))
    others = [str(rank) for rank in written if str(rank) != root]
    if verdict:
        lines.append(verdict.format(root))
        lines += [data.draw(st.sampled_from(AFTER)).format(rank) for rank in others[:2]]
    report = log_report(lines)
    assert_planted(report, root)
    if verdict:
        assert report.root_ranks == (root,), report.headline


@settings(max_examples=300 if IS_LONG else 25, derandomize=not IS_LONG, deadline=None)
@given(data=st.data())
def test_no_victim_is_named_in_a_folder(tmp_path_factory, data):
    root, written = logs(data)
    missing = data.draw(st.sampled_from([None, *written]))
    last = max(written)
    if missing is not None and missing != last:
        del written[missing]
    report = log_report(in_folder(tmp_path_factory.mktemp("logs"), written))
    assert_planted(report, root)


@pytest.mark.parametrize("end", ["an exception", "a crash", "no memory", "a thread"])
def test_a_root_with_an_error_of_its_own_is_named(tmp_path, end):
    lost = [GLOO, DETECTED, *ABORTED]
    ranks = [["step 1", *lost], ["step 1", *ROOTS[end]], ["step 1", *lost], ["step 1", SIGTERM]]
    assert log_report(in_folder(tmp_path, ranks)).root_ranks == ("1",)
