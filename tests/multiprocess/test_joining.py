"""Joining of processes, and the death of one of them."""

import re
import signal

import pytest

from tests.multiprocess.programs import DEVICES, PROCESSES, facts_of, run_everywhere

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]

INITIALIZES = """
jax.distributed.initialize()
jax.distributed.initialize("nowhere.invalid:1", num_processes=77, process_id=5)
from jax.distributed import initialize
initialize(coordinator_address="nowhere.invalid:1")
multihost_utils.process_allgather(jnp.ones(3))

import glob
sockets = {os.readlink(path) for path in glob.glob("/proc/self/fd/*") if os.path.islink(path)}
listening = []
for path in ("/proc/net/tcp", "/proc/net/tcp6"):
    for line in open(path).readlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            listening.append(words[1].split(":")[0])
fact(
    me=me,
    count=count,
    devices=jax.device_count(),
    local=jax.local_device_count(),
    platform=jax.devices()[0].platform,
    flags=os.environ["XLA_FLAGS"],
    listening=listening,
)
"""


def test_processes_are_joined_on_the_loopback_device_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    monkeypatch.setenv("JAX_PLATFORMS", "nonsense")
    done, facts = run_everywhere(tmp_path, INITIALIZES)
    assert done.returncode == 0, done.stderr
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    for process, fact in enumerate(facts):
        assert fact["me"] == process
        assert fact["count"] == PROCESSES
        assert fact["devices"] == PROCESSES * DEVICES
        assert fact["local"] == DEVICES
        assert fact["platform"] == "cpu"
        assert fact["flags"].startswith("--xla_cpu_enable_fast_math=false ")
        assert set(fact["listening"]) <= loopback
    assert facts[0]["listening"], "the coordinator listens"
    assert done.stderr == "jai-cli run: simulated CPU devices replace JAX_PLATFORMS=nonsense\n"


DIES = """
jax.block_until_ready(jax.jit(jnp.ones, static_argnums=0)(3))
open(f"here {me}", "w").close()
if me == FAILING:
    while not all(os.path.exists(f"here {process}") for process in range(count)):
        time.sleep(0.01)
    fact(dies=me)
    FAIL
multihost_utils.process_allgather(jnp.ones(3))  # waits for the dead process
time.sleep(1000)
"""


KILLED = ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL)
RAISED = ("raise ValueError('its own')", 1)


@pytest.mark.parametrize(
    ("failing", "fail", "code"),
    [(0, *KILLED), (PROCESSES - 1, *KILLED), (0, *RAISED)],
    ids=["coordinator killed", "worker killed", "coordinator raises"],
)
def test_a_run_ends_with_the_exit_code_and_only_the_output_of_the_process_that_died(
    tmp_path, failing, fail, code
):
    done, facts = run_everywhere(
        tmp_path,
        f"os.chdir({str(tmp_path)!r})\n" + DIES.replace("FAILING", str(failing)).replace("FAIL", fail),
    )
    assert done.returncode == code, done.stderr
    assert facts[failing] == {"dies": failing}, (done.stdout, done.stderr)
    assert re.search(
        rf"^jai-cli run: process {failing} of {PROCESSES} (was killed by SIGKILL|failed with exit code 1)$",
        done.stderr.splitlines()[-1],
    )
    logged = [line for line in done.stderr.splitlines() if not line.startswith("jai-cli")]
    assert [line for line in logged if not re.match(rf"\[ *{failing}\] ", line)] == []
    if code == 1:
        assert logged[-1].endswith("ValueError: its own")


def test_facts_are_read_after_the_prefix():
    assert facts_of(['[0] fact {"a": 1}', "[0] other"])[0] == {"a": 1}
