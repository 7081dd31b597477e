"""Hosts of a job: 8 real processes, one that is killed, and 1,000 clients of a real coordinator."""

import json
from pathlib import Path

import pytest

from jax_array_info_core import from_json
from jax_array_info_core.jobs.hosts.files import hosts_in_folder
from tests.cli.launching import run, write_program
from tests.documents import run_python
from tests.multiprocess.programs import PRELUDE
from tests.processes import run_processes

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]

EVERYWHERE = """
kept = [jnp.zeros((256, 4), jnp.float32), jnp.zeros((3,), jnp.int8)]
if me == 5:
    kept.append(jnp.ones((1024,), jnp.float32))
report = live_array_report()
save_report(report, FOLDER)
hosts = hosts_report(report, timeout=120)
print("hosts", to_json(hosts))
config.process = 0
print_hosts(report, timeout=120)
"""


def test_eight_processes_get_the_same_report_and_process_0_prints_it(tmp_path):
    folder = tmp_path / "reports"
    folder.mkdir()
    code = PRELUDE + EVERYWHERE.replace("FOLDER", repr(str(folder)))
    options = ("--processes", 8, "--devices", 1, "--timeout", 400)
    done = run(*options, write_program(tmp_path, code, "everywhere.py"), timeout=500)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    texts = [line.partition("hosts ")[2] for line in lines if "hosts {" in line]
    assert len(texts) == 8
    assert len(set(texts)) == 1
    report = from_json(texts[0])
    assert [host.process for host in report.hosts] == list(range(8))
    [difference] = report.differences
    assert (difference.process, difference.words) == (5, "1 array more")
    assert difference.extra[0].type == "float32[1024]"
    assert report.fullest_nbytes - report.emptiest_nbytes == 4096
    [first] = [line for line in lines if "8 processes on 1 host: " in line]
    assert first.startswith("[0] ")
    assert len(list(folder.glob("process-?.json"))) == 8
    stored = hosts_in_folder(folder)
    assert stored.hosts == report.hosts
    assert stored.differences == report.differences


KILLED = """
from jax_array_info_core import hosts_report, live_array_report
from jax_array_info_core.compat import processes
report = live_array_report()
assert hosts_report(report, timeout=120).missing == ()
client = processes.peers().client
if process == 1:
    client.key_value_set("test/dies", "yes")
    leave()
client.blocking_key_value_get("test/dies", 120_000)
found = hosts_report(report, timeout=5)
send(found.missing, [host.process for host in found.hosts])
# Process 0 exits last: JAX aborts the others without it.
if process == 2:
    client.key_value_set("test/last", str(os.getpid()))
else:
    import select
    last = int(client.blocking_key_value_get("test/last", 120_000))
    try:
        select.select([os.pidfd_open(last)], [], [], 120)
    except ProcessLookupError:
        pass  # it has exited
leave()
"""


def test_a_process_that_has_died_is_missing_and_the_others_stand():
    assert run_processes(KILLED, processes=3, devices=1) == [["(1,) [0, 2]"], [], ["(1,) [0, 2]"]]


CLIENTS = """
import contextlib, functools, json, threading
import jax
from jax._src import distributed
from jax_array_info_cli.launch import held_port
from jax_array_info_core.compat import processes
from jax_array_info_core.jobs.hosts import gather as room
from tests.core.jobs.hosts.samples import OTHER, USUAL

reserved = contextlib.ExitStack()  # while this program runs
here = f"127.0.0.1:{reserved.enter_context(held_port())}"
jax.distributed.initialize(here, 1, 0, coordinator_bind_address=here)
client = distributed.global_state.client
COUNT, ABSENT, ODD = 1000, 17, 5
current = threading.local()
processes.process_index = lambda: current.process
processes.process_count = lambda: COUNT
processes.peers = lambda: processes.Peers(client, current.process, COUNT)
room.from_json = functools.cache(room.from_json)  # all share one interpreter
reports = []

def call(process, timeout=200):
    current.process = process
    reports.append(room.hosts_report(OTHER if process == ODD else USUAL, timeout=timeout))

threading.stack_size(2**18)
others = [process for process in range(1, COUNT) if process != ABSENT]
threads = [threading.Thread(target=call, args=(process,)) for process in others]
for one in threads:
    one.start()
for process in others:
    client.blocking_key_value_get(f"jax_array_info/hosts_report/waiting/{process}", 200_000)
call(0, timeout=1)
for one in threads:
    one.join()
found = reports[0]
print(json.dumps({
    "answers": len(reports),
    "equal": all(report == found for report in reports),
    "hosts": len(found.hosts),
    "missing": found.missing,
    "differences": [[one.process, one.words] for one in found.differences],
}))
"""


@pytest.mark.newest
def test_a_thousand_clients_of_a_real_coordinator_get_one_report_without_the_missing_process():
    facts = json.loads(run_python(CLIENTS, PYTHONPATH=str(Path(__file__).parents[2])))
    assert facts == {
        "answers": 999,
        "equal": True,
        "hosts": 999,
        "missing": [17],
        "differences": [[5, "1 array more, 2 fewer"]],
    }
