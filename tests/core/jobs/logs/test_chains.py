"""Chains of exceptions as Python prints them: the one that counts, its causes, and what was handled."""

import json
import traceback

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info_core import log_report
from tests.core.jobs.logs.sample import FOLDER

pytestmark = pytest.mark.newest

FULL = "[Errno 28] No space left on device"
PEER = "UNAVAILABLE: Task 3 heartbeat timeout. This indicates that the remote task has failed."


def printed(error, *links):
    """Return what Python prints of a chain: of each link, the next error and whether the last one is its cause."""
    source = "def first(error, *_):\n    raise error\n"
    for place in range(len(links)):
        before = f"f{place - 1}" if place else "first"
        source += (
            f"def f{place}(error, *links):\n    try:\n        {before}(error, *links)\n    except Exception as e:\n"
            f"        raise links[{place}][0] {{}}\n"
        ).format("from e" if links[place][1] else "")
    last = f"f{len(links) - 1}" if links else "first"
    names = {}
    exec(compile(source, "/home/user/train.py", "exec"), names)
    try:
        names[last](error, *links)
    except Exception as raised:
        return "".join(traceback.format_exception(raised)).splitlines()


@pytest.mark.parametrize("wrap", ["{}", "[3]: {}", "2026-09-20T09:00:00.123Z {}", "\x1b[31m{}\x1b[0m"])
@pytest.mark.parametrize(
    ("chain", "headline", "kinds"),
    [
        (
            [KeyError("w3"), (ValueError("bad"), True)],
            "fatal, not interpreted: ValueError: bad (train.py:7), because KeyError: 'w3' (train.py:2)",
            ["not interpreted"],
        ),
        (
            [KeyError("w3"), (ValueError("bad"), False)],
            "fatal, not interpreted: ValueError: bad (train.py:7), while handling KeyError: 'w3' (train.py:2)",
            ["not interpreted"],
        ),
        (
            [OSError(FULL), (ValueError("bad"), True)],
            f"failed: ValueError: bad (train.py:7), because OSError: {FULL} (train.py:2)",
            ["storage"],
        ),
        (
            [OSError(FULL), (ValueError("bad"), False)],
            f"failed: OSError: {FULL} (train.py:2), and ValueError: bad (train.py:7) while handling it",
            ["storage"],
        ),
        (
            [ValueError("bad"), (OSError(FULL), False)],
            f"failed: OSError: {FULL} (train.py:7), while handling ValueError: bad (train.py:2)",
            ["storage"],
        ),
        (
            [RuntimeError(PEER), (ValueError("bad"), True)],
            f"ended in consequence of another failure: ValueError: bad (train.py:7), because RuntimeError: {PEER[:-1]}"
            " (train.py:2); rank 3: missed heartbeats",
            ["missed heartbeats"],
        ),
        (
            [ValueError("bad"), (RuntimeError(PEER), False)],
            "fatal, not interpreted: ValueError: bad (train.py:2)",
            ["not interpreted", "missed heartbeats"],
        ),
        (
            [KeyError("a"), (TypeError("b"), True), (ValueError("c"), False)],
            "fatal, not interpreted: ValueError: c (train.py:12), while handling TypeError: b (train.py:7), because"
            " KeyError: 'a' (train.py:2)",
            ["not interpreted"],
        ),
        (
            [ValueError("INTERNAL: lost"), (RuntimeError("ValueError: INTERNAL: lost"), True)],
            "fatal, not interpreted: RuntimeError: ValueError: INTERNAL: lost (train.py:7)",
            ["not interpreted"],
        ),
    ],
)
def test_of_a_chain_one_leads_and_the_others_are_said(wrap, chain, headline, kinds):
    lines = ["step 1", *printed(*chain)]
    report = log_report([wrap.format(line) for line in lines])
    assert report.headline == headline
    assert [event.kind for event in report.events] == kinds
    assert report.survived_count == 0
    whole = log_report(["step 1", json.dumps({"severity": "ERROR", "message": "\n".join(lines)})])
    if len(kinds) == 1:
        assert whole.headline == headline


ERRORS = st.sampled_from([KeyError, TypeError, ValueError, RuntimeError, OSError])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(ERRORS, st.booleans()), min_size=1, max_size=4), st.integers(0, 1))
def test_a_chain_is_one_error_with_its_last_first(parts, is_survived):
    """Of errors that no kind explains: all are said, from the last to the first, and they count once."""
    errors = [kind(f"number {place}") for place, (kind, _) in enumerate(parts)]
    links = [(error, is_cause) for error, (_, is_cause) in zip(errors[1:], parts[1:], strict=True)]
    after = ["step 2 loss 1"] * is_survived
    report = log_report(["step 1 loss 2", *printed(errors[0], *links), *after])
    if is_survived:
        assert (report.headline, report.survived_count) == ("", 1)
        return
    words = report.headline.split("number ")
    assert [int(word[0]) for word in words[1:]] == [*reversed(range(len(errors)))]
    assert [", because" in word for word in words[1:]] == [
        *(is_cause for _, is_cause in reversed(links)),
        False,
    ]
    [event] = report.events
    assert event.text.startswith(f"{type(errors[-1]).__name__}: ")


def test_a_chain_is_that_of_its_rank():
    """Two processes write their chains between each other's lines."""
    lines = (FOLDER / "kinds" / "closed-over-array.log").read_text().splitlines()
    report = log_report([f"[{rank}] {line}" for line in lines for rank in (1, 0)])
    assert report.headline.startswith(
        "all 2 ranks: RuntimeError: Closing over jax.Array that spans non-addressable (non process local) devices is"
        " not allowed (closure.py:13), because RuntimeError: Fetching value for `jax.Array`"
    )
    assert [event.kind for event in report.events if event.role == "root"] == ["closed-over array"]


@pytest.mark.parametrize("size", [80, 400])
def test_a_deep_traceback_is_still_one_of_its_chain(size):
    """More lines than those that are kept around an exception are between the two."""
    lines = printed(KeyError("w3"), (ValueError("bad"), True))
    place = len(lines) - 1
    frames = [
        '  File "/home/user/venv/lib/python3.12/site-packages/jax/x.py", line 3, in call',
        "    call()",
    ] * size
    headline = log_report([*lines[:place], *frames, *lines[place:]]).headline
    assert headline == log_report(lines).headline.replace("bad (train.py:7)", "bad (x.py:3)")


def test_many_causes_are_cut():
    links = [(ValueError(f"{place} {'a' * 110}"), True) for place in range(8)]
    report = log_report(printed(KeyError("w"), *links))
    assert len(report.events[0].chain) == 401
    assert report.headline.endswith("…")
