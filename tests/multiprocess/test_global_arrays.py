"""Arrays that span processes: what each process reports, against numbers known by construction."""

import itertools

import pytest

from tests.multiprocess.programs import DEVICES, PROCESSES, output_of, run_everywhere

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]

ROWS, COLUMNS = 2 * PROCESSES, 3 * DEVICES
ALL = PROCESSES * DEVICES
SHARD = 2 * 3 * 4
TOUR = """
def put(value, sharding):
    if jax.__version_info__ >= (0, 5):
        return jax.device_put(value, sharding)
    # There device_put starts a collective that cannot be waited for, and Gloo takes it for the next one.
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

sharding = NamedSharding(mesh, P("process", "device"))
whole = np.arange(2 * count * 3 * len(here), dtype=np.float32).reshape(2 * count, -1)

@jax.jit
def total(x):
    body = lambda shard: jax.lax.psum(shard.sum(), ("process", "device"))
    return shard_map(body, mesh=mesh, in_specs=P("process", "device"), out_specs=P())(x)

made = {
    "put": put(whole, sharding),
    "single": jax.make_array_from_single_device_arrays(
        whole.shape,
        sharding,
        [jax.device_put(whole[index], device)
         for device, index in sharding.addressable_devices_indices_map(whole.shape).items()],
    ),
    "local": jax.make_array_from_process_local_data(sharding, whole[2 * me : 2 * me + 2]),
}
made["replicated"] = put(whole, NamedSharding(mesh, P(None, "device")))
made["total"] = total(made["put"])
made["gathered"] = multihost_utils.process_allgather(made["put"], tiled=True)

for name, array in made.items():
    print("<", name)
    sharding_info(array, name)
    sharding_vis(array) if isinstance(array, jax.Array) and array.ndim else None
    print(">")
    report = array_report(array, name)
    assert from_json(to_json(report)) == report
    layout = report.layout
    fact(**{name: {
        "addressable": report.is_fully_addressable,
        "shape": report.shape,
        "nbytes": report.nbytes,
        "shard_nbytes": report.shard_nbytes,
        "devices": report.devices,
        "replicas": layout and layout.replicas,
        "processes": layout and [[owner, list(ids)] for owner, ids in layout.processes],
    }})
assert float(total(made["local"])) == whole.sum()
assert (made["gathered"] == whole).all()
print_mesh(mesh)

del array
made = {name: made[name] for name in ("put", "replicated")}
import gc; gc.collect()
live = live_array_report()
fact(
    here=here,
    everywhere=[[device.id for device in row] for row in mesh.devices],
    device_nbytes=live.device_nbytes,
    visible=live.visible_devices,
    counts=[group.device_counts for group in live.groups],
)
print_array_stats()
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What the processes have told, and printed."""
    done, facts = run_everywhere(tmp_path_factory.mktemp("global"), TOUR)
    assert done.returncode == 0, done.stderr
    return done, facts


@pytest.mark.parametrize("name", ["put", "single", "local"])
def test_an_array_cut_over_all_devices_is_reported_alike_however_it_was_made(told, name):
    _, facts = told
    for fact in facts:
        assert fact[name] == {
            "addressable": False,
            "shape": [ROWS, COLUMNS],
            "nbytes": ROWS * COLUMNS * 4,
            "shard_nbytes": SHARD,
            "devices": sorted(itertools.chain(*fact["everywhere"])),
            "replicas": 1,
            "processes": [[owner, ids] for owner, ids in enumerate(fact["everywhere"])],
        }


def test_replicas_are_counted_over_all_processes(told):
    for fact in told[1]:
        assert fact["replicated"]["replicas"] == PROCESSES
        assert fact["replicated"]["shard_nbytes"] == ROWS * 3 * 4
        assert not fact["replicated"]["addressable"]


def test_a_scalar_that_all_processes_hold_is_not_read(told):
    done, facts = told
    for process, fact in enumerate(facts):
        assert fact["total"]["shape"] == []
        assert len(fact["total"]["devices"]) == ALL
        panel = output_of(done, process).split("< total\n")[1].split(">")[0]
        assert "value" not in panel
        assert "!is_fully_addressable" in panel


def test_what_all_processes_have_gathered_is_each_ones_own(told):
    for fact in told[1]:
        assert fact["gathered"]["addressable"]
        assert fact["gathered"]["shape"] == [ROWS, COLUMNS]


def test_device_ids_are_those_of_jax_and_not_dense(told):
    facts = told[1]
    everywhere = list(itertools.chain(*facts[0]["everywhere"]))
    assert len(set(everywhere)) == ALL
    if DEVICES < 2048 and PROCESSES > 1:
        assert max(everywhere) >= ALL
    assert [fact["here"] for fact in facts] == facts[0]["everywhere"]


def test_live_arrays_count_what_this_process_holds(told):
    for fact in told[1]:
        held = [[device, SHARD + ROWS * 3 * 4] for device in fact["here"]]
        assert fact["device_nbytes"] == held
        assert fact["visible"] == ALL
        assert fact["counts"] == [[[device, 1] for device in fact["here"]]] * 2


def test_pictures_name_every_process(told):
    done, _ = told
    for process in range(PROCESSES):
        text = output_of(done, process)
        picture = text.split("< put\n")[1].split(">")[0]
        for other in range(PROCESSES):
            assert f"process {other}: CPU" in picture
        assert f"mesh process={PROCESSES}, device={DEVICES}" in text
        assert "NamedSharding: P('process', 'device')" in picture


def test_tables_are_printed_at_the_end_without_gloos_chatter(told):
    done, _ = told
    assert "Gloo" not in done.stdout
    for process in range(PROCESSES):
        # Once by the program, once by the command.
        assert output_of(done, process).count("allocated jax arrays") == 2
