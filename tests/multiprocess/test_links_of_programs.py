"""Links that the collectives of a program over several processes cross."""

import pytest

from tests.multiprocess.programs import DEVICES, PROCESSES, output_of, run_everywhere

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]

PROGRAM = """
def summed(axis, mesh):
    x = jax.ShapeDtypeStruct((64 * count * len(here), 8), jnp.float32, sharding=NamedSharding(mesh, P(axis)))
    replicated = NamedSharding(mesh, P())
    return program_report(jax.jit(lambda x: x.reshape(-1, 64, 8).sum(0), out_shardings=replicated), x)

# The devices of a row belong to different processes.
turned = Mesh(np.array(jax.devices()).reshape(count, -1).T, ("device", "process"))
for name, of in (("usual", mesh), ("turned", turned)):
    fact(**{f"{name} {axis}": [[one.link, one.axes] for one in summed(axis, of).collectives]
            for axis in ("process", "device")})
    fact(**{f"links of {name}": {one.axis: [one.leaves_process, one.process_count, one.leaves_host] for one in mesh_report(of).links}})
mixed = Mesh(np.array(jax.devices()).reshape(count, -1).T.reshape(count, -1), ("process", "device"))
fact(mixed=[[one.code, *one.mesh_axes] for one in mesh_report(mixed).findings])
report = summed("process", mesh)
fact(answer=report.answer, sent=report.sent.nbytes)
config.process = "all"
for number, device in enumerate(jax.local_devices()[:2]):
    sharding_info(jax.device_put(jnp.ones(4), device), f"local {number}")
fact(here=here)
"""


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory):
    """The finished run, and the facts of each process."""
    done, facts = run_everywhere(tmp_path_factory.mktemp("links"), PROGRAM)
    assert done.returncode == 0, done.stderr
    return done, facts


def test_a_collective_over_processes_leaves_the_process_whatever_the_mesh(everywhere):
    for each in everywhere[1]:
        for mesh in ("usual", "turned"):
            assert each[f"{mesh} device"] == ([["same-host", ["device"]]] if DEVICES > 1 else [])
            assert each[f"{mesh} process"] == [["other-process", ["process"]]]
            links = {"process": ["always", PROCESSES, None], "device": ["never", 1, "never"]}
            assert each[f"links of {mesh}"] == links
        has_both = DEVICES > 1 and PROCESSES > 1
        assert each["mixed"] == ([["JAI401", "device"]] if has_both else [])
        sent = 2 * 64 * 8 * 4 * (PROCESSES - 1) // PROCESSES
        assert each["sent"] == sent
        assert each["answer"].startswith(f"other process {sent / 1024:.1f} KiB per call; ")


def test_the_panel_of_a_local_array_names_every_device_but_the_first_of_all(everywhere):
    done, facts = everywhere
    for process, each in enumerate(facts):
        text = output_of(done, process)
        for number, device in enumerate(each["here"][:2]):
            panel = text.split(f" local {number} ")[1].split("╯")[0]
            assert (f"device: cpu:{device} " in panel) == (device != facts[0]["here"][0])
