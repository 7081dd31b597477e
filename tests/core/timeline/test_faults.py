"""Whatever the operating system refuses to a recorder, the program goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = '''
import errno, json, os, sys, types, warnings
import jax.numpy as jnp
from jax_array_info_core import record_memory
from jax_array_info_core.files import descriptors
from jax_array_info_core.timeline import recorder, recording, segments

recording._RETRY = 0.0


class Failing(types.ModuleType):
    """The module os, whose n-th call raises an error."""

    def __init__(self, number, error):
        super().__init__("os")
        self.number, self.error, self.calls = number, error, 0

    def __getattr__(self, name):
        found = getattr(os, name)
        if not isinstance(found, (types.FunctionType, types.BuiltinFunctionType)):
            return found

        def call(*args, **kwargs):
            self.calls += 1
            if self.calls == self.number:
                raise self.error
            return found(*args, **kwargs)

        return call


def session(number, name, error):
    """Run a small program with a recorder whose n-th call of the system fails, and return the calls."""
    failing = Failing(number, error)
    running_recorder = record_memory(f"record-{name}", every=0.001, max_nbytes=2**22)
    for module in (descriptors, recorder, recording, segments):
        module.os = failing
    kept = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with running_recorder as one:
            for step in range(5):
                one.step(step)
                with one.mark("part"):
                    kept.append(jnp.ones(step + 1))
                with open(f"own-{name}", "a") as file:
                    print(sum(map(len, kept)), file=file)
    messages = [str(warning.message) for warning in caught]
    for module in (descriptors, recorder, recording, segments):
        module.os = os
    running_recorder.stop()
    return failing.calls, messages


jnp.ones(3)
print(json.dumps([session(*json.loads(one), OSError(errno.EIO, "broken")) for one in sys.argv[1:]]))
'''


@pytest.mark.own_process
@pytest.mark.oldest_and_newest
def test_each_call_of_the_system_may_fail(tmp_path: Path) -> None:
    """The program's output, files and exit code are as without it, but for one warning."""
    numbers = [10**9, *range(1, 21)] if "JAI_FUZZ" not in os.environ else [10**9, *range(1, 200)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *(json.dumps([one, str(one)]) for one in numbers)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found[0][0] > len(numbers)  # the calls of a program to which nothing is refused
    assert found[0][1] == []
    for number, (_, messages) in zip(numbers, found, strict=True):
        assert len(messages) <= 1
        assert all("record" in message for message in messages)
        assert (tmp_path / f"own-{number}").read_text() == "1\n3\n6\n10\n15\n"
