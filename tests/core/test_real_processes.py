"""Reports in real processes that ``jax.distributed`` connects."""

import ast

import pytest

from tests.processes import run_processes

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]

GLOBAL_ARRAYS = """
import dataclasses
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_array_info_core import (
    array_report,
    gather_reports,
    live_array_report,
    mesh_report,
    planned_report,
)
from jax_array_info_core.compat import processes
from jax_array_info_core.errors import ProcessTimeoutError

ids = [device.id for device in jax.devices()]
mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("a", "b"))
zeros = np.zeros((8, 16), np.float32)

def put(mesh, *spec):
    return jax.make_array_from_callback(zeros.shape, NamedSharding(mesh, P(*spec)), lambda index: zeros[index])

in_turns = Mesh(np.array(jax.devices()).reshape(2, 4).T.reshape(8), ("c",))
arrays = {
    "blocks": put(mesh, "a", "b"), "columns": put(mesh, None, "b"), "replicated": put(mesh), "in turns": put(in_turns, "c")
}

def parts(reports):
    # Positions among all devices, as the ids differ between versions of JAX.
    return [
        (part.process, [ids.index(device) for device in part.devices], part.shard_count, part.index, part.device_nbytes)
        for part in (report.local_part for report in reports)
    ]

if process == 0:
    # The other process only waits for the reports, so a collective here would hang.
    array_report(arrays["blocks"]), live_array_report(), mesh_report(mesh)
    scalar = jax.device_put(np.float32(3), NamedSharding(Mesh(np.array(jax.local_devices()), ("l",)), P()))
    assert array_report(scalar).value == "3.0"
    assert array_report(scalar).local_part is None
    del scalar

send({name: parts(gather_reports(array_report(array))) for name, array in arrays.items()})

live = gather_reports(live_array_report())
send([[(ids.index(device), nbytes) for device, nbytes in report.device_nbytes] for report in live])
send([[[ids.index(device) for device, _ in group.device_counts] for group in report.groups] for report in live])

large = dataclasses.replace(planned_report((2**20,), {"a": 2**18}, ("a",)), name=str(process))
gathered = gather_reports(large)
send([report.name for report in gathered])
send(gathered[0] == dataclasses.replace(large, name="0"))

if process == 0:
    try:
        gather_reports(live[0], timeout=0.5)
    except ProcessTimeoutError as error:
        send(error)
    processes.peers().client.key_value_set("test/failed", "yes")
else:
    processes.peers().client.blocking_key_value_get("test/failed", 120_000)
send(gather_reports(live[process]) == live)
"""


def test_gathered_reports_of_global_arrays_have_the_part_of_each_process():
    first, second = run_processes(GLOBAL_ARRAYS)
    assert (
        first.pop(5) == "process 1 of 2 did not call gather_reports within 0.5 s: every process must call it"
    )
    assert first == second
    results = list(map(ast.literal_eval, first))
    own = [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert results[0] == {
        "blocks": [(0, own[0], 4, ((0, 4), (0, 16)), 256), (1, own[1], 4, ((4, 8), (0, 16)), 256)],
        "columns": [(process, own[process], 4, ((0, 8), (0, 16)), 512) for process in (0, 1)],
        "replicated": [(process, own[process], 1, ((0, 8), (0, 16)), 2048) for process in (0, 1)],
        "in turns": [(process, own[process], 4, None, 256) for process in (0, 1)],
    }
    # Per device: two arrays of 64 bytes, one of 128 and one of 512.
    assert results[1] == [[(device, 768) for device in devices] for devices in own]
    assert results[2] == [[devices] * 4 for devices in own]
    assert results[3] == ["0", "1"]
    assert results[4] is True
    assert results[5] is True


WORKER_DIES = """
from jax_array_info_core import gather_reports, planned_mesh_report
from jax_array_info_core.compat import processes
from jax_array_info_core.errors import ProcessTimeoutError
assert len(gather_reports(planned_mesh_report({"a": process + 1}))) == 3
if process == 1:
    leave()
# The live processes call at the same time, even on a busy machine.
client = processes.peers().client
client.key_value_set(f"test/here/{process}", "yes")
client.blocking_key_value_get(f"test/here/{2 - process}", 120_000)
try:
    gather_reports(planned_mesh_report({"a": 1}), timeout=10)
except ProcessTimeoutError as error:
    send(error.missing)
# Process 0 exits last: JAX aborts the others without it.
if process == 2:
    processes.peers().client.key_value_set("test/last", str(os.getpid()))
else:
    import select
    last = int(processes.peers().client.blocking_key_value_get("test/last", 120_000))
    try:
        select.select([os.pidfd_open(last)], [], [], 120)
    except ProcessLookupError:
        pass  # it has exited
leave()
"""


def test_a_dead_process_is_named_and_no_process_hangs():
    assert run_processes(WORKER_DIES, processes=3, devices=1) == [["(1,)"], [], ["(1,)"]]
