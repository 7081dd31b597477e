import contextlib
import os
import signal
import sys
import threading

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import to_text
from jax_array_info_core import propagation_report
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.programs.propagation.helper import NoAnswerError, Worker
from jax_array_info_core.programs.propagation.wire import Reply, read_reply
from tests.core.programs.propagation.helpers import has_ended, on_linux, worker_of
from tests.core.programs.propagation.programs import needs_shardy, struct
from tests.threads import in_threads

pytestmark = needs_shardy


@pytest.fixture(scope="module")
def bytecode():
    from jax_array_info_core.compat.programs import module_bytecode

    lowered = (
        jax.jit(lambda x, w: x @ w)
        .trace(struct((32, 64), "data"), struct((64, 8)))
        .lower(lowering_platforms=("tpu",))
    )
    return module_bytecode(lowered)


@pytest.fixture
def worker():
    worker = Worker()
    yield worker
    worker.close()


def test_one_process_answers_many_questions_of_many_threads(worker, bytecode):
    first = worker.ask(bytecode)
    helper = worker._helper
    found = in_threads(lambda _: [worker.ask(bytecode) == first for _ in range(13)], range(8))
    assert found == [[True] * 13] * 8
    assert worker._helper is helper


@on_linux
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGALRM"])
def test_a_helper_that_ends_while_idle_or_stopped_or_asked_costs_no_answer(worker, bytecode, name):
    first = worker.ask(bytecode)
    os.kill(worker_of(worker._helper), signal.Signals[name])
    assert worker.ask(bytecode) == first
    passes = worker_of(worker._helper)
    os.kill(passes, signal.SIGSTOP)
    killer = threading.Timer(0.2, end_stopped, (passes, signal.Signals[name]))
    killer.start()
    assert worker.ask(bytecode) == first
    killer.join()
    os.kill(worker._helper.watcher, signal.Signals[name])
    assert worker.ask(bytecode) == first


def end_stopped(process, number):
    """End a process that is stopped."""
    os.kill(process, number)
    with contextlib.suppress(ProcessLookupError):  # it may be dead by now
        os.kill(process, signal.SIGCONT)


CRASHES = {
    "SIGSEGV": "import os\nos.kill(os.getpid(), 11)",
    "SIGABRT": "import os\nos.abort()",
    "SIGKILL": "import os\nos.kill(os.getpid(), 9)",
    "exit code 1": "raise SystemExit(1)",
}


@pytest.mark.parametrize("name", CRASHES)
def test_a_crash_for_a_question_is_a_reason_and_the_next_one_starts_another(
    worker, bytecode, tmp_path, monkeypatch, name
):
    (tmp_path / "jaxlib").mkdir()
    (tmp_path / "jaxlib" / "__init__.py").write_text(CRASHES[name])
    with monkeypatch.context() as changed:
        changed.setattr(sys, "path", [str(tmp_path), *sys.path])
        with pytest.raises(NoAnswerError) as caught:
            worker.ask(bytecode)
    assert (
        str(caught.value) == f"the helper process that ran Shardy ended with {name}, and your program is safe"
    )
    assert worker.ask(bytecode).answer.meshes


@pytest.mark.parametrize("data", [b"", b"[]", b'{"ended": 3}', b'{"answer": {"meshes": []}}'])
def test_what_is_no_reply_is_refused(data):
    with pytest.raises(ValueError, match=r"JSON|Expected|Object|Input"):
        read_reply(data)
    assert read_reply(b'{"ended": " with SIGSEGV"}') == Reply(ended=" with SIGSEGV")


@on_linux
def test_a_helper_that_is_stopped_is_ended(worker, bytecode):
    worker.ask(bytecode)
    passes = worker_of(worker._helper)
    os.kill(passes, signal.SIGSTOP)
    with pytest.raises(NoAnswerError, match=r"no answer within 0\.5 s"):
        worker.ask(bytecode, 0.5)
    assert has_ended(passes)
    assert worker.ask(bytecode).answer.meshes


@pytest.mark.parametrize("damaged", [b"", b"garbage", b"ML\xefR\x01"], ids=["empty", "text", "header"])
def test_a_damaged_module_is_a_reason(worker, bytecode, damaged):
    with pytest.raises(NoAnswerError):
        worker.ask(damaged)
    with pytest.raises(NoAnswerError):
        worker.ask(bytecode[: len(bytecode) // 2])
    assert worker.ask(bytecode).answer.meshes


def test_a_process_without_a_python_has_a_reason_with_its_name(monkeypatch, bytecode):
    monkeypatch.setattr(sys, "executable", None)
    with pytest.raises(NoAnswerError, match=r"sys\.executable names none"):
        Worker().ask(bytecode)


def test_a_crash_leaves_the_rest_of_a_report_of_a_program(tmp_path, monkeypatch):
    monkeypatch.setattr("jax_array_info_core.programs.propagation.helper._WORKERS", {})
    (tmp_path / "jaxlib").mkdir()
    (tmp_path / "jaxlib" / "__init__.py").write_text(CRASHES["SIGSEGV"])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    report = propagation_report(lambda x, w: x @ w, struct((32, 64), "data"), struct((64, 8), "data"))
    text = to_text(report)
    assert report.answer.startswith(
        "unknown: Shardy gave no answer: the helper process that ran Shardy ended"
    )
    assert "with SIGSEGV, and your program is safe" in " ".join(text.split())
    assert [str(one.spec) for one in report.arguments] == ["P('data',)"] * 2


@pytest.mark.parametrize("version", [(0, 9, 2), (0, 10, 0)])
def test_a_version_that_lacks_a_pass_is_named(monkeypatch, version):
    monkeypatch.setattr(jax, "__version_info__", version)
    with pytest.raises(UnsupportedValueError, match=r"needs JAX 0\.10\.1 or later"):
        propagation_report(jnp.sin, struct((8,), "data"))


def test_a_report_without_an_answer_has_what_was_requested(monkeypatch):
    monkeypatch.setattr("jax_array_info_core.programs.propagation.helper._WORKERS", {})
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    report = propagation_report(jnp.sin, struct((8,), "data"))
    assert "/nowhere/python" in report.reason
    assert report.answer.startswith("unknown: Shardy gave no answer: ")
    assert report.findings == ()
    assert (report.mesh.shape, report.device_count) == ({"data": 4, "model": 2}, 8)
    [argument], [output] = report.arguments, report.outputs
    assert (argument.path, str(argument.spec), argument.nbytes) == ("x", "P('data',)", 8)
    assert [str(one) for one in argument.axes] == ["argument x"]
    assert (output.path, output.spec, output.axes) == ("outputs", None, ())
    assert "8 devices: data=4, model=2" in to_text(report)
