"""Reports of arrays that span processes, compared with numbers known by construction."""

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
    # Before 0.5, device_put starts a collective that cannot be waited for, and Gloo confuses it with the next.
    return jax.make_array_from_callback(value.shape, sharding, lambda index: value[index])

sharding = NamedSharding(mesh, P("process", "device"))
data = np.arange(2 * count * 3 * len(here), dtype=np.float32).reshape(2 * count, -1)

@jax.jit
def total(x):
    body = lambda shard: jax.lax.psum(shard.sum(), ("process", "device"))
    return shard_map(body, mesh=mesh, in_specs=P("process", "device"), out_specs=P())(x)

made = {
    "put": put(data, sharding),
    "single": jax.make_array_from_single_device_arrays(
        data.shape,
        sharding,
        [jax.device_put(data[index], device)
         for device, index in sharding.addressable_devices_indices_map(data.shape).items()],
    ),
    "local": jax.make_array_from_process_local_data(sharding, data[2 * me : 2 * me + 2]),
}
made["replicated"] = put(data, NamedSharding(mesh, P(None, "device")))
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
assert float(total(made["local"])) == data.sum()
assert (made["gathered"] == data).all()
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

made["nan"] = jax.jit(lambda x: jnp.where(x == 7, jnp.nan, x))(made["put"])
made["copies"] = jax.jit(lambda x: x + 0, out_shardings=NamedSharding(mesh, P()))(made["put"])
made["mine"] = jnp.full(3, me)
rows = tree_report(made, statistics=True).rows
fact(statistics={row.path: [getattr(row.statistics, name) for name in row.statistics.__slots__] for row in rows})
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The finished run, and the facts of each process."""
    done, facts = run_everywhere(tmp_path_factory.mktemp("global"), TOUR)
    assert done.returncode == 0, done.stderr
    return done, facts


@pytest.mark.parametrize("name", ["put", "single", "local"])
def test_the_report_of_a_fully_sharded_array_does_not_depend_on_its_constructor(results, name):
    _, facts = results
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


def test_replicas_are_counted_over_all_processes_and_a_gathered_array_is_here(results):
    for fact in results[1]:
        replicated, gathered = fact["replicated"], fact["gathered"]
        assert (replicated["replicas"], replicated["shard_nbytes"]) == (PROCESSES, ROWS * 3 * 4)
        assert (replicated["addressable"], gathered["addressable"]) == (False, True)
        assert gathered["shape"] == [ROWS, COLUMNS]


def test_the_value_of_a_global_scalar_is_not_read(results):
    done, facts = results
    for process, fact in enumerate(facts):
        assert fact["total"]["shape"] == []
        assert len(fact["total"]["devices"]) == ALL
        panel = output_of(done, process).split("< total\n")[1].split(">")[0]
        assert "value" not in panel
        assert "!is_fully_addressable" in panel


def test_device_ids_are_the_ids_of_jax_and_not_dense(results):
    facts = results[1]
    everywhere = list(itertools.chain(*facts[0]["everywhere"]))
    assert len(set(everywhere)) == ALL
    if DEVICES < 2048 and PROCESSES > 1:
        assert max(everywhere) >= ALL
    assert [fact["here"] for fact in facts] == facts[0]["everywhere"]


def test_live_arrays_count_only_the_devices_of_this_process(results):
    for fact in results[1]:
        expected = [[device, SHARD + ROWS * 3 * 4] for device in fact["here"]]
        assert fact["device_nbytes"] == expected
        assert fact["visible"] == ALL
        assert fact["counts"] == [[[device, 1] for device in fact["here"]]] * 2


def test_statistics_are_those_of_all_shards(results):
    count = ROWS * COLUMNS
    mean, std = (count - 1) / 2, ((count**2 - 1) / 12) ** 0.5
    for process, fact in enumerate(results[1]):
        found = fact["statistics"]
        for name in ("put", "replicated", "copies"):
            assert found[name] == [pytest.approx(mean), pytest.approx(std), 0, count - 1, 1, 0, 0]
        assert found["nan"][2:] == [0, count - 1, 1, 1, 0]
        assert found["mine"] == [process, 0, process, process, 3 * (process == 0), 0, 0]


def test_pictures_name_every_process(results):
    done, _ = results
    for process in range(PROCESSES):
        text = output_of(done, process)
        picture = text.split("< put\n")[1].split(">")[0]
        for other in range(PROCESSES):
            assert f"process {other}: CPU" in picture
        assert f"mesh process={PROCESSES}, device={DEVICES}" in text
        assert "NamedSharding: P('process', 'device')" in picture


def test_tables_are_printed_at_the_end_without_messages_of_gloo(results):
    done, _ = results
    assert "Gloo" not in done.stdout
    for process in range(PROCESSES):
        # Once by the program, once by the command.
        assert output_of(done, process).count("allocated jax arrays") == 2
