"""Runs of programs in several processes. ``JAI_TEST_PROCESSES=2x4``: 2 processes with 4 devices each."""

import json
import os
import re

from tests.cli.launching import run, write_program

PROCESSES, DEVICES = map(int, os.environ.get("JAI_TEST_PROCESSES", "2x4").split("x"))

PRELUDE = '''
import json, os, signal, sys, threading, time
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map
from jax_array_info import *

def fact(**facts):
    """Report facts of this process to the test."""
    print("fact", json.dumps(facts))

me, count = jax.process_index(), jax.process_count()
mesh = Mesh(np.array(jax.devices()).reshape(count, -1), ("process", "device"))
here = [device.id for device in jax.local_devices()]

'''


def run_everywhere(folder, code, *options):
    """Run a program in all processes. Return the finished process of ``jai-cli run`` and the facts of each process."""
    options = (*options, "--processes", PROCESSES, "--devices", DEVICES, "--timeout", 400)
    done = run(*options, write_program(folder, PRELUDE + code, "everywhere.py"), timeout=500)
    return done, facts_of(done.stdout.splitlines())


def facts_of(lines):
    """Return the facts that each process has reported."""
    facts = [{} for _ in range(PROCESSES)]
    for line in lines:
        if found := re.fullmatch(r"\[ *(\d+)\] fact (.*)", line):
            facts[int(found[1])].update(json.loads(found[2]))
    return facts


def output_of(done, process):
    """Return the output of one process, without the prefix."""
    prefix = f"[{process:>{len(str(PROCESSES - 1))}}] "
    lines = done.stdout.splitlines()
    return "".join(line.removeprefix(prefix) + "\n" for line in lines if line.startswith(prefix))
