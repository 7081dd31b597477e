"""Reports of moves, compared with the buffers that ``jax.device_put`` makes in several processes."""

import pytest

from tests.multiprocess.programs import DEVICES, PROCESSES, run_everywhere

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]

PROGRAM = """
import re

def bytes_here(*arrays):
    # Bytes on each device; buffers that two arrays share count once.
    buffers = {
        (shard.device.id, shard.data.unsafe_buffer_pointer(), shard.data.nbytes)
        for array in arrays
        for shard in getattr(array, "addressable_shards", ())
    }
    return [sum(nbytes for owner, _, nbytes in buffers if owner == device) for device in here]

def expected_here(report):
    # Of each device: before, after, and while all leaves move at once.
    figures = {}
    for alike in report.peaks:
        for piece in alike.devices.split(","):
            first, last, step = re.fullmatch(r"(\\d+)(?:-(\\d+))?(?::(\\d+))?", piece).groups()
            for device in range(int(first), int(last or first) + 1, int(step or 1)):
                figures[device] = alike.before_nbytes, alike.after_nbytes, alike.peaks[0]
    return [list(column) for column in zip(*(figures.get(device, (0, 0, 0)) for device in here))]

def from_others(before, target):
    # Elements of each new shard that its process does not hold.
    held = {process: np.zeros(before.shape, bool) for process in range(count)}
    for device, index in before.sharding.devices_indices_map(before.shape).items():
        held[device.process_index][index] = True
    wanted = target.devices_indices_map(before.shape).items()
    return 4 * sum(int((~held[device.process_index][index]).sum()) for device, index in wanted)

def on(spec, devices=mesh.devices):
    return NamedSharding(Mesh(devices, ("process", "device")), spec)

side = count * len(here)
data = np.arange(side * side, dtype=np.float32).reshape(side, side)

def made(sharding):
    return jax.make_array_from_callback(data.shape, sharding, lambda index: data[index].copy())

whole = on(P("process", "device"))
mine = jax.device_put(data, jax.local_devices()[0])
moves = {
    "values of the host": (data, whole),
    "uncommitted": (jnp.ones(data.shape), whole),
    "other spec": (made(whole), on(P("device", "process"))),
    "other order": (made(whole), on(P(None, "device"), mesh.devices[::-1, ::-1])),
    "same": (made(whole), on(P("process", "device"))),
    "written otherwise": (made(on(P("process"))), on(P("process", None))),
    "fewer devices": (made(whole), on(P("process", "device"), mesh.devices[-1:])),
    "committed": (mine, whole),
    "in one process": (mine, jax.sharding.SingleDeviceSharding(jax.local_devices()[-1])),
}
if jax.__version_info__ < (0, 5):  # as in test_global_arrays.py
    del moves["values of the host"], moves["uncommitted"]
for name, (before, target) in moves.items():
    report = reshard_report({"w": before}, {"w": target})
    try:
        after, error = jax.block_until_ready(jax.device_put(before, target)), None
    except (ValueError, NotImplementedError) as refusal:
        after, error = None, str(refusal)
    fact(**{name: {
        "error": error,
        "reasons": [way.reason for way in report.ways],
        "expected": expected_here(report),
        "held": [bytes_here(before), bytes_here(after), bytes_here(before, after)],
        "process_nbytes": report.process_nbytes,
        "from others": from_others(before, target) if hasattr(before, "sharding") else 0,
    }})
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """The facts of each process about each move."""
    done, facts = run_everywhere(tmp_path_factory.mktemp("moves"), PROGRAM)
    assert done.returncode == 0, done.stderr
    return facts


@pytest.mark.parametrize("name", ["other spec", "other order", "written otherwise", "in one process"])
def test_moved_arrays_have_the_buffers_of_the_report(facts, name):
    """The old and the new array share no buffer, except on devices that keep their only shard."""
    for fact in (process[name] for process in facts):
        if fact["reasons"]:
            assert fact["expected"] == fact["held"]
        else:
            assert (name, DEVICES) == ("in one process", 1)
            assert fact["held"][0] == fact["held"][2]


def test_the_same_spec_on_an_equal_mesh_keeps_the_buffers(facts):
    for fact in (process["same"] for process in facts):
        assert fact["reasons"] == []
        assert fact["held"][0] == fact["held"][1] == fact["held"][2]


@pytest.mark.parametrize("name", ["values of the host", "uncommitted"])
def test_values_that_all_processes_have_are_compared_on_each_device(facts, name):
    """The copies that are compared are gone after the move, so that only more bytes than the rest are certain."""
    if name not in facts[0]:
        pytest.skip(
            "on JAX 0.4, device_put of a value that all processes have starts a collective for which "
            "block_until_ready does not wait: a process may end in the midst of it"
        )
    whole = (PROCESSES * DEVICES) ** 2 * 4
    for fact in (process[name] for process in facts):
        assert fact["error"] is None
        assert fact["expected"][:2] == fact["held"][:2]
        for expected, held in zip(fact["expected"][2], fact["held"][2], strict=True):
            assert expected >= held + whole
        assert fact["process_nbytes"] == 0


@pytest.mark.parametrize("name", ["fewer devices", "committed"])
def test_moves_that_jax_refuses_have_a_reason_instead_of_figures(facts, name):
    for fact in (process[name] for process in facts):
        assert fact["error"]
        assert all("in several processes" in reason for reason in fact["reasons"][:2])
        assert fact["expected"][2] == [None] * DEVICES


def test_bytes_from_other_processes_are_those_of_no_shard_of_the_process(facts):
    for process in facts:
        for name, fact in process.items():
            if name != "uncommitted":
                assert fact["process_nbytes"] == fact["from others"], name
    assert facts[0]["other spec"]["process_nbytes"] > 0
