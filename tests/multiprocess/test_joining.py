"""How processes are joined, and what happens when one of them dies."""

import re
import signal

import pytest

from tests.cli.launching import run, write_program
from tests.multiprocess.programs import DEVICES, PROCESSES, facts_of, run_everywhere

pytestmark = pytest.mark.own_process

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
    assert done.stderr == ""


def test_a_process_that_is_alone_may_initialize_too(tmp_path):
    program = write_program(
        tmp_path,
        """
        import os
        os.environ["JAX_ENABLE_X64"] = "1"
        import jax, jax.numpy as jnp
        jax.distributed.initialize()
        print(jax.process_count(), jax.device_count(), jnp.zeros(2).dtype)
        """,
    )
    done = run("--devices", "3", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "1 3 float64"
    assert "allocated jax arrays" in done.stdout


def test_only_who_used_jax_gets_a_table(tmp_path):
    for code in ("print('no jax')", "import jax", "import jax; jax.numpy.ones(3); raise SystemExit(4)"):
        assert "arrays" not in run(write_program(tmp_path, code)).stdout
    kept = write_program(tmp_path, "import jax\nkept = jax.numpy.ones(1000)\nraise SystemExit")
    assert "(1000,)" in run(kept).stdout
    assert run("--quiet", kept).stdout == ""


DIES = """
jax.block_until_ready(jax.jit(jnp.ones, static_argnums=0)(3))
open(f"here {me}", "w").close()
if me == WHO:
    while not all(os.path.exists(f"here {process}") for process in range(count)):
        time.sleep(0.01)
    fact(dies=me)
    HOW
multihost_utils.process_allgather(jnp.ones(3))  # waits for who is dead
time.sleep(1000)
"""


@pytest.mark.parametrize("who", [0, PROCESSES - 1])
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
        ("raise ValueError('its own')", 1),
    ],
)
def test_whoever_dies_the_run_ends_with_its_code_and_its_words_alone(tmp_path, who, how, code):
    done, facts = run_everywhere(
        tmp_path, f"os.chdir({str(tmp_path)!r})\n" + DIES.replace("WHO", str(who)).replace("HOW", how)
    )
    assert done.returncode == code, done.stderr
    assert facts[who] == {"dies": who}, (done.stdout, done.stderr)
    assert re.search(
        rf"^jai-cli run: process {who} of {PROCESSES} (was killed by SIGKILL|failed with exit code 1)$",
        done.stderr.splitlines()[-1],
    )
    said = [line for line in done.stderr.splitlines() if not line.startswith("jai-cli")]
    assert [line for line in said if not re.match(rf"\[ *{who}\] ", line)] == []
    if code == 1:
        assert said[-1].endswith("ValueError: its own")


def test_each_run_has_a_port_of_its_own(tmp_path):
    """Were the port let go before it is used, two runs at once could meet in one place."""
    import socket

    from jax_array_info_cli.launching.joining import held_port

    with held_port() as port, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with pytest.raises(OSError, match="in use"):
            other.bind(("", port))


def test_facts_are_found_behind_their_prefix():
    assert facts_of(['[0] fact {"a": 1}', "[0] other"])[0] == {"a": 1}
