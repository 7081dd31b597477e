"""Each kind of line is read with its role and its numbers, in the wordings of all versions."""

import string
from collections import Counter

import pytest

from jax_array_info_core import log_report
from jax_array_info_core.jobs.logs import log_report as log_report_module
from jax_array_info_core.jobs.logs.events import KINDS, WORDS
from jax_array_info_core.jobs.logs.log_report import ABOUT_SHARDINGS
from jax_array_info_core.programs.log_kinds.kinds import compiled, words_of
from jax_array_info_core.programs.raised.kinds import KINDS as RAISED
from tests.core.jobs.logs.sample import FOLDER, GIB
from tests.core.jobs.logs.samples import SAMPLES
from tests.logs import ALLOCATOR, FAILED_ON_GPU, FAILED_ON_TPU, REFUSED

pytestmark = pytest.mark.newest


def finding_of(sample, report):
    """Return the finding of the kind of a sample."""
    return next((one for one in report.findings if one.kind == sample.kind), None)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: f"{one.kind}: {one.text[:40]}")
def test_a_sample_is_read(sample):
    report = log_report(sample.log.splitlines())
    found = finding_of(sample, report)
    assert found is not None, [one.kind for one in report.findings]
    assert (found.role, found.line, found.numbers) == (sample.role, sample.line, sample.numbers)
    assert report.is_fatal == sample.is_fatal
    assert (report.unread, report.survived_count) == ((), 0)
    assert found.problem
    assert found.remedy


def test_each_kind_has_a_sample():
    assert {kind.name for kind in KINDS} - {sample.kind for sample in SAMPLES} == set()
    assert {kind.name: kind.role for kind in KINDS} == {sample.kind: sample.role for sample in SAMPLES}


def test_each_file_is_a_sample():
    files = {path.name for path in (FOLDER / "kinds").iterdir()}
    assert files == {sample.text for sample in SAMPLES if sample.text.endswith(".log")}


def test_kinds_have_their_own_names_and_sentences():
    assert [name for name, count in Counter(kind.name for kind in KINDS).items() if count > 1] == []
    for kind in KINDS:
        assert kind.cause.endswith("."), kind.name
        assert kind.remedy.endswith("."), kind.name
        for wording in (*kind.wordings, *kind.details):
            compiled(wording)


def test_one_failure_is_one_finding():
    """The allocator's warning, its error and the exception."""
    for name in (
        "gpu-allocation.log",
        "gpu-allocation-2.log",
        "gpu-allocation-3.log",
        "hbm-at-compilation-3.log",
    ):
        sample = next(one for one in SAMPLES if one.text == name)
        assert [one.kind for one in log_report(sample.log.splitlines()).findings] == [sample.kind], name


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("hbm-at-compilation", "does not fit: needs 20.0 GiB, has 15.8 GiB per device"),
        (
            "hbm-at-compilation-2",
            "does not fit: needs 18.2 GiB (arguments 12.0 GiB, program 6.2 GiB), has 15.5 GiB per"
            " device; padding makes 6.0 GiB of 384.0 MiB",
        ),
        ("kernel-memory", "does not fit: needs 33.6 MiB, has 32.0 MiB of VMEM"),
        (
            "sparsecore-memory",
            "does not fit: needs 208.9 GiB (TensorCore 34.8 GiB, SparseCore 174.1 GiB), has 95.7 GiB per device",
        ),
        ("pinned-host-memory", "allocation failed: 8.0 GiB requested of pinned host memory"),
        (
            "tpu-allocation-2",
            "allocation failed: 31.1 MiB requested per device, 58.6 MiB free, but fragmented",
        ),
        (
            "gpu-allocation-2",
            "allocation failed: 26.8 GiB requested per device; the program needs at least 90.7 GiB",
        ),
        (
            "gpu-allocation-3",
            "allocation failed: 16.0 GiB requested per device; the program needs 64.2 GiB (arguments 24.2 GiB,"
            " temporary values 16.0 GiB) (train.py:120)",
        ),
        (
            "arguments-exceed-limit-2",
            "does not fit: needs 2.5 TiB (arguments 1.3 TiB, temporary values 1.3 TiB), has 23.8 GiB per device",
        ),
        (
            "cuda-async-allocation-2",
            "allocation failed: 117.6 GiB requested per device, 17.5 GiB free; 148.7 GiB taken by other processes",
        ),
        ("compilation-given-up", "does not fit: needs 3.5 EiB, has 14.5 GiB per device"),
        ("storage-2", "failed: OSError: [Errno 28] No space left on device: '/ckpt/step-1200/d/abc'"),
        ("never-registered", "never all connected: DEADLINE_EXCEEDED: Deadline Exceeded"),
        ("callback", "ValueError: bad batch"),
    ],
)
def test_the_first_line_names_the_memory_and_the_decisive_numbers(name, headline):
    assert log_report(FOLDER / "kinds" / f"{name}.log").headline == headline


def test_the_numbers_of_a_failure_are_not_those_of_the_next_one():
    report = log_report([*FAILED_ON_TPU.splitlines(), *ALLOCATOR.splitlines(), *FAILED_ON_GPU.splitlines()])
    tpu, gpu = report.findings
    assert (tpu.kind, set(tpu.numbers)) == ("tpu allocation", {"requested_nbytes", "free_nbytes"})
    assert (gpu.kind, gpu.numbers["needed_nbytes"], gpu.numbers["free_nbytes"]) == (
        "allocation",
        21 * GIB,
        10 * GIB,
    )


def test_failures_of_two_programs_are_two_findings():
    """Of a TPU's compiler and of a GPU's allocator, which share no size but the need."""
    report = log_report([*REFUSED.splitlines(), *ALLOCATOR.splitlines(), *FAILED_ON_GPU.splitlines()])
    assert [one.kind for one in report.findings] == ["hbm at compilation", "allocation"]
    assert "free_nbytes" not in report.findings[0].numbers


def test_a_need_below_what_there_is_was_not_understood():
    line = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 10.00G of 15.75G hbm."
    words = "refused, but needs 10.0 GiB of 15.8 GiB per device: the line was not understood"
    assert log_report([line]).headline == words


def test_storage_is_not_memory():
    """The words RESOURCE_EXHAUSTED of a storage are not those of a device."""
    [found] = log_report(FOLDER / "kinds" / "storage.log").findings
    assert found.full_code.code == "JAI501"
    assert log_report(FOLDER / "kinds" / "storage.log").out_of_memory == ()


EVERY_LOG = [*(sample.log for sample in SAMPLES), ALLOCATOR, FAILED_ON_GPU, FAILED_ON_TPU, REFUSED]


def test_no_event_is_lost_by_the_words(monkeypatch):
    """As if each line might be an event."""
    found = [log_report(text.splitlines()).events for text in EVERY_LOG]
    monkeypatch.setattr(log_report_module, "WORDS", tuple(letter.encode() for letter in string.ascii_letters))
    assert found == [log_report(text.splitlines()).events for text in EVERY_LOG]


def test_each_kind_has_a_word_in_its_wordings():
    for kind in KINDS:
        for wording in kind.wordings:
            matches = [match[0] for text in EVERY_LOG if (match := compiled(wording).search(text))]
            assert all(any(word.decode() in text for word in WORDS) for text in matches), wording


@pytest.mark.parametrize(
    ("wording", "word"),
    [
        ("[Oo]ut of memory", b"ut of memory"),
        (r"(?:a|bcdef) halted", b" halted"),
        (r"Used <needed_nbytes> of x", b" of x"),
        (r"halted?\.", b"halte"),
        (r"ended {4,}at \(\d\)", b"ended"),
        (r"in \[(?P<name>[^]]+(?:abcdef)+)\] here", b"] here"),
    ],
)
def test_a_word_is_in_each_text_of_a_wording(wording, word):
    assert words_of([wording]) == (word,)


def test_each_error_on_shardings_has_a_word_before_its_rules_are_imported():
    assert [kind.name for kind in RAISED if not kind.facts and not ABOUT_SHARDINGS.search(kind.pattern)] == []
