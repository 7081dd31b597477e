"""Links that the collectives of a program over several processes cross."""

import pytest

from tests.multiprocess.programs import DEVICES, PROCESSES, run_everywhere

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
"""


def test_a_collective_over_processes_leaves_the_process_whatever_the_mesh(tmp_path):
    done, facts = run_everywhere(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stderr
    for each in facts:
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
