"""Lines of logs: phrases behind any words, configurations, source, long lines and other bytes."""

import lzma
import random
import zlib

import pytest

from jax_array_info_core import log_report
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.jobs.logs.events import KINDS
from jax_array_info_core.programs.log_kinds.kinds import compiled
from jax_array_info_core.xla.logs.lines import read_line
from tests.core.jobs.logs.samples import SAMPLES
from tests.logs import FAILED_ON_GPU, FAILED_ON_TPU

pytestmark = pytest.mark.newest

RAISED = {sample.kind: sample for sample in reversed(SAMPLES) if sample.role in ("root", "consequence")}
LINES = {
    kind: read_line(sample.log.splitlines()[sample.line - 1].encode()).text for kind, sample in RAISED.items()
}
"""A line of each kind that ends a run, without its prefix."""


def phrase_of(line):
    """Return the words of a line that its kind knows; empty if the kind needs the lines after it."""
    matches = (compiled(wording).search(line) for kind in KINDS for wording in kind.wordings)
    return next((match[0] for match in matches if match), "")


PHRASES = {kind: line for kind, line in LINES.items() if len(phrase_of(line).split()) > 2}


def test_most_kinds_have_a_phrase():
    assert len(PHRASES) > 0.6 * len(LINES)


@pytest.mark.parametrize("kind", PHRASES)
@pytest.mark.parametrize("before", ["Compilation failure: ", "the worker said that it ended: ", "xq7> "])
def test_a_phrase_counts_behind_any_words(kind, before):
    plain, report = (log_report(["step 1 loss 2.20", words + PHRASES[kind]]) for words in ("", before))
    assert {one.kind for one in report.findings} == {one.kind for one in plain.findings}
    assert report.is_fatal


CONFIGURATIONS = [
    "config: on_error=[{!r}, 'other'] checkpoint_every=200",
    "config: exit_message={!r}",
    "flags: --abort_on={!r} --seed=3",
    'run(retry={{"when": [{!r}]}}, seed=3)',
    '{{"retry_when": [{!r}], "rank": 0}}',
    '  "retry_when": {!r},',
]
SOURCES = [
    "/home/user/loop.py:40: UserWarning: retries are on\n  raise RuntimeError({!r})",
    "/home/user/loop.py:40: UserWarning: retries are on.\nSee the manual.\n  raise RuntimeError({!r})",
    "step 0\nTraceback (most recent call last):\n"
    '  File "loop.py", line 4, in f\n    raise RuntimeError({!r} + text)\n    ^^^^^^^^^\nRetry: 1\nstep 1 loss 2.3',
    "step 0\nTraceback (most recent call last):\n"
    '  File "loop.py", line 4, in f\n    raise RuntimeError(\n        {!r}\n    )\nRetry: 1\nstep 1 loss 2.3',
]


@pytest.mark.parametrize("text", [*CONFIGURATIONS, *SOURCES], ids=range(len(CONFIGURATIONS) + len(SOURCES)))
def test_words_in_a_configuration_or_in_source_are_no_error(text):
    """Of all kinds, in all forms: nothing is fatal, and no line of a warning is a finding."""
    for kind, line in LINES.items():
        lines = [*text.format(line).split("\n"), "step 2 loss 2.31", "step 3 loss 2.08", "done"]
        report = log_report(lines)
        assert (report.headline, report.findings) == ("", ()), kind
        assert report.survived_count == text.startswith("step 0"), kind  # the exception itself


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            'level=error msg="RESOURCE_EXHAUSTED: Out of memory while trying to allocate 99 bytes."',
            "allocation",
        ),
        ("pod train-3 terminated reason=OOMKilled", "host memory"),
        ('{"level": "error", "reason": "OOMKilled"}', "host memory"),
        (
            "RuntimeError: Mesh('x'=4): Received incompatible devices for jitted computation",
            "incompatible devices",
        ),
    ],
)
def test_the_value_of_a_message_is_what_it_says(line, kind):
    assert [one.kind for one in log_report(["step 1", line]).events] == [kind]


@pytest.mark.parametrize("size", [2500, 3_000_000, 7_000_000])
def test_a_long_line_is_read_at_its_head_and_at_its_end(tmp_path, size):
    lines = ["step 1", "Traceback (most recent call last):", '  File "/home/a.py", line 1, in f', "    x"]
    path = tmp_path / "a.log"
    path.write_text("\n".join([*lines, f"RuntimeError: {'a' * size}"]))
    report = log_report(path)
    assert report.headline.startswith("fatal, not interpreted: RuntimeError: aaa")
    assert report.headline.endswith("… (a.py:1)")
    path.write_text(
        f"E0920 09:00:00.1 7 x.cc:1] {'a' * size}. cuMemAllocAsync failed to allocate 5000000000 bytes"
    )
    assert log_report(path).headline == "allocation failed: 4.7 GiB requested per device"


def test_a_kernel_has_its_sizes_after_all_its_attributes():
    [sample] = [one for one in SAMPLES if one.text == "kernel-memory-5.log"]
    log = sample.log.replace("kernel_metadata={}", f"kernel_metadata={{{'abc ' * 2000}}}")
    assert log_report(log.splitlines()).headline.startswith(
        "does not fit: needs 80.0 MiB, has 16.0 MiB of VMEM"
    )


def test_a_refusal_behind_other_words_has_its_table():
    [sample] = [one for one in SAMPLES if one.text == "hbm-at-compilation-4.log"]
    [finding] = log_report(sample.log.splitlines()).findings
    assert [(leaf.shape, leaf.origin.place) for leaf in finding.leaves] == [
        ((36, 8192, 8192), "train.py:88"),
        ((24, 8192, 8192), "train.py:52"),
    ]
    assert "Shard or recompute bfloat16[36,8192,8192] at train.py:88 first" in finding.remedy


@pytest.mark.parametrize(
    ("needed", "words"),
    [
        ("8.00MiB", "; the memory was full before"),
        ("255.00MiB", "; the memory was full before"),
        ("1.00GiB", ""),
    ],
)
def test_a_small_allocation_that_fails_has_its_cause_before_it(needed, words):
    log = FAILED_ON_GPU.replace("17179869100", "8388608").replace("21.00GiB", needed)
    report = log_report(["XlaRuntimeError: " + log.split("\n")[0], *log.split("\n")[1:]])
    assert ("; the memory was full before" if words else "MiB requested") in report.headline
    assert report.headline.endswith(words)
    assert report.findings[0].remedy.startswith(
        "Look at what was there before" if words else "Shard or recompute"
    )


def test_a_large_or_a_fragmented_memory_was_not_full_before():
    assert "full" not in log_report([FAILED_ON_TPU]).headline
    tiny = FAILED_ON_TPU.replace("2.00G", "2.00M")
    assert log_report([tiny]).headline.endswith("2.0 MiB requested per device, 1.1 GiB free, but fragmented")


def test_one_cause_in_many_paths_is_one_finding(tmp_path):
    for rank in range(3):
        path = f"'ckpt/{'abc'[rank]}/state.w'" if rank else "/ckpt/state.w: write"
        (tmp_path / f"rank{rank}.log").write_text(
            f"step 1\nOSError: [Errno 28] No space left on device: {path}\n"
        )
    report = log_report(tmp_path)
    assert report.headline.startswith("ranks 0, 1, 2 failed") or report.headline.startswith("all 3 ranks")
    lines = [f"OSError: [Errno 28] No space left on device: '/ckpt/{name}/w.zarr'" for name in "abcd"]
    [finding] = log_report(["step 1", *lines]).findings
    assert "and 3 more" in finding.problem


TEXT = b"".join(b"step %d\n" % step for step in range(90_000)) + b"RuntimeError: boom\n"


@pytest.mark.parametrize(
    "data",
    [
        lzma.compress(TEXT, format=lzma.FORMAT_ALONE),
        zlib.compress(TEXT),
        random.Random(1).randbytes(100_000),
        bytes(5000),
        b"step 1\n" + bytes(range(128, 256)),
    ],
    ids=["lzma", "zlib", "random", "zeros", "another encoding"],
)
def test_bytes_that_are_no_text_are_refused(tmp_path, data):
    path = tmp_path / "a.log"
    path.write_bytes(data)
    with pytest.raises(
        FileFormatError, match=r"^no text in UTF-8: \d+% of its first [\d.]+ \w+ are other bytes"
    ):
        log_report(path)


@pytest.mark.parametrize("part", [0.05, 0.2])
@pytest.mark.parametrize("others", [b"\xff", b"\x01", "é".encode("latin-1")])
def test_some_other_bytes_do_not_matter(tmp_path, part, others):
    path = tmp_path / "a.log"
    path.write_bytes(
        bytes(4000) + b"\x1b[31mloss \xc3\xa9\x1b[0m\n" * 100 + others * int(1700 * part) + b"\n" + TEXT
    )
    assert log_report(path).headline == "fatal, not interpreted: RuntimeError: boom"


def hosted(name, line=294):
    return (
        f'W1106 22:40:22.641304   74111 host_offloader.cc:{line}] Found an instruction ("{name}") which does device'
        " compute in host memory space."
    )


@pytest.mark.parametrize("prefix", ["", "[3]: "])
def test_warnings_of_xla_that_repeat_are_counted_with_what_they_name(prefix):
    lines = [hosted("add.4"), "step 1 loss 3.1", hosted("multiply.9"), hosted("add.4"), hosted("x.1", 17)]
    report = log_report([prefix + line for line in lines])
    [event] = report.events
    assert (event.line, event.count, event.role, event.kind) == (1, 3, "warning", "not interpreted")
    assert event.numbers == {"source": "host_offloader.cc:294"}
    assert event.text.startswith('Found an instruction ("add.4", "multiply.9") which does device compute')
    assert (report.headline, report.survived_count, report.unlisted_count) == ("", 0, 0)
    assert report.answer == f"nothing fatal in {len(lines)} lines; 1 finding: JAI505 log-warning"


def test_a_warning_of_each_rank_counts_but_once_in_one_is_none(tmp_path):
    for rank in range(3):
        (tmp_path / f"rank{rank}.log").write_text("\n".join([hosted("a.1")] * (rank + 1)))
    [event] = log_report(tmp_path).events
    assert (event.count, event.ranks) == (5, ("1", "2"))


@pytest.mark.parametrize(
    "text",
    [
        "W1106 22:40:22.6 7 computation_placer.cc:177] computation placer already registered.",
        "W1106 22:40:22.6 7 model.py:177] the batch is short",
        "I1106 22:40:22.6 7 host_offloader.cc:294] done",
        "WARNING:root:slow (host.cc:3] )",
    ],
)
def test_other_lines_that_repeat_are_no_warnings_of_xla(text):
    assert log_report([text] * 30).findings == ()


def test_a_warning_that_a_kind_explains_is_not_counted_twice():
    line = "W1106 22:40:22.6 7 slow.cc:1] Very slow compile? If you want to file a bug, run with envvar"
    [finding] = log_report([line] * 3).findings
    assert (finding.kind, "and 2 more" in finding.problem) == ("slow compilation", True)


def test_a_flood_of_different_warnings_is_bounded():
    report = log_report([hosted(f"a.{number}", number % 3000) for number in range(30_000)])
    assert 100 < len(report.events) <= 200
    assert {event.count for event in report.events} == {10}
