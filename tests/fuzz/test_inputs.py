"""Mutated files, logs, programs and names: none breaks a reader, takes much or writes to standard error."""

import json
import os
import pickle
import subprocess
import sys

import pytest

from tests.fuzz.__main__ import inputs
from tests.fuzz.corpus import CORPORA

FILES = ("report", "maxtext", "safetensors", "npz", "orbax", "profile", "refusal", "hosts")
IS_LONG = "JAI_FUZZ" in os.environ
GATE = {"report": 1500, "maxtext": 300, "safetensors": 1500, "npz": 1500, "orbax": 60, "profile": 800}
GATE |= {"refusal": 100, "hosts": 200, "record": 60, "log": 800, "notation": 800, "pattern": 200, "name": 100}
"""Numbers of inputs that take about 50 s of a processor."""
LONG = {kind: 20_000 if kind in FILES else 1000 for kind in CORPORA} | {"record": 5000}
BATCHES = [{kind: count} for kind, count in LONG.items()] if IS_LONG else [GATE]
MOST_DEATHS = 10


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A file with the unchanged inputs of each format."""
    path = tmp_path_factory.mktemp("corpus") / "corpus.pickle"
    path.write_bytes(pickle.dumps({kind: make() for kind, make in CORPORA.items()}))
    return path


@pytest.mark.parametrize("counts", BATCHES, ids=" ".join)
def test_every_input_is_a_report_or_one_clear_error(counts, corpus, tmp_path):
    words = [f"{kind}={count}" for kind, count in counts.items()]
    errors = tmp_path / "stderr"
    broken, first, deaths = [], 0, 0
    while first < len(inputs(words)) and deaths < MOST_DEATHS:
        with errors.open("wb") as file:
            command = [sys.executable, "-m", "tests.fuzz", corpus, str(first), *words]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=file, check=False)
        *lines, last = done.stdout.decode().replace("\r", "\n").splitlines()
        broken += [line for line in (*lines, last) if line.startswith("{")]
        if not done.returncode:
            break
        _, kind, seed = inputs(words)[int(last)]
        text = errors.read_text("utf-8", "replace")[-2000:]
        broken.append(
            json.dumps(
                {"kind": kind, "seed": seed, "problem": f"the process ended: {done.returncode}\n{text}"}
            )
        )
        first, deaths = int(last) + 1, deaths + 1
    assert not broken, f"{len(broken)} inputs of {corpus}:\n" + "\n".join(broken).replace("\\n", "\n")
