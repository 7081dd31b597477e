"""A process that reads mutated inputs: ``python -m tests.fuzz CORPUS FIRST KIND=COUNT …``.

Each input is a report that can be printed, or an error of the project with printable lines. It is read within
20 s and 1 GiB, and nothing is written to standard error. A line of JSON on standard output describes each input
that breaks this. If the process dies, the number of the input is the last output.
"""

import faulthandler
import json
import os
import pickle
import resource
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random

from jax_array_info.engine.render import to_text
from jax_array_info.export.formats import to_html, to_svg
from jax_array_info_core import ArrayInfoError, from_json, to_json
from tests.fuzz.mutations import mutated
from tests.fuzz.readers import READERS
from tests.rendered import harmful, words_of

SECONDS = 20
"""Seconds of a processor for an input."""
HANGS = 100
"""Seconds after which an input hangs, also on a busy machine."""
NBYTES = 2**30
LONGEST = 2000
"""Characters of a line of an error."""
MOST = 20
"""Broken inputs after which the process ends."""


def input_of(corpus, kind, seed):
    """Return the files of an input, by name; the first ones are those of the corpus, unchanged."""
    whole = corpus[kind]
    if seed < len(whole):
        return whole[seed]
    random = Random(f"{kind} {seed}")
    others = [content for files in whole for content in files.values()]
    return mutated(random.choice(whole), random, others)


def written(files, folder):
    """Write an input, and return the path to read: of its first file, or of the folder of all files."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / next(iter(files)).partition("/")[0]


def check(kind, path, seed):
    """Raise an error if an input breaks the contract."""
    steps = READERS[kind](path)
    while True:
        try:
            step = next(steps, None)
            if step is None:
                return
            report = step() if callable(step) else step
        except (ArrayInfoError, FileNotFoundError) as error:
            for line in str(error).split("\n"):
                assert line.isprintable(), f"an error that is not printable: {line!a}"
                assert len(line) <= LONGEST, f"an error of {len(line):,} characters: {line[:200]}"
            continue  # a reader that has raised an error has no further step
        if report is not None:
            assert from_json(to_json(report)) == report, "another report after its JSON was read"
            page = (to_html, to_svg)[seed % 2]
            for text in (to_text(report, width=(20, 80, 200)[seed % 3]), words_of(page(report))):
                assert not harmful(text), f"a report with {harmful(text)[0]!a}"


def main(corpus, first, *counts):
    for category in (UserWarning, RuntimeWarning, SyntaxWarning, FutureWarning):
        warnings.simplefilter("always", category)
    with open(corpus, "rb") as file:
        corpus = pickle.load(file)
    # What is reserved counts here; what is used is counted below.
    resource.setrlimit(resource.RLIMIT_AS, (16 * NBYTES, resource.RLIM_INFINITY))
    most = most_nbytes() + NBYTES
    broken = 0
    for number, kind, seed in inputs(counts, int(first)):
        print(number, end="\r", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            path = written(input_of(corpus, kind, seed), Path(folder))
            before = os.fstat(2).st_size
            faulthandler.dump_traceback_later(HANGS, exit=True)
            start = time.process_time()
            try:
                check(kind, path, seed)
                assert os.fstat(2).st_size == before, "something was written to standard error"
                assert time.process_time() - start < SECONDS, "too slow"
            except Exception as error:
                text = f"{type(error).__name__}: {str(error)[:300]}"
                where = traceback.format_exc()[-1500:]
                print(json.dumps({"kind": kind, "seed": seed, "problem": text, "where": where}), flush=True)
                broken += 1
            finally:
                faulthandler.cancel_dump_traceback_later()
        if most_nbytes() > most:
            sys.exit("more than 1 GiB")
        if broken == MOST:
            return


def most_nbytes():
    """Return the largest memory use of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def inputs(counts, first=0):
    """Return number, kind and seed of each input, from the given number on."""
    every = [(kind, seed) for kind, count in (one.split("=") for one in counts) for seed in range(int(count))]
    return [(number, *one) for number, one in enumerate(every)][first:]


if __name__ == "__main__":
    main(*sys.argv[1:])
