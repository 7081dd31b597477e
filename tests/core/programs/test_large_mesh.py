"""A program on 512 simulated devices, in a process of its own."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.own_process

PROGRAM = """
import json, os
os.environ["XLA_FLAGS"] += " --xla_force_host_platform_device_count=512"
os.environ["JAX_PLATFORMS"] = "cpu"
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from jax_array_info_core import program_report
from tests.programs import abstract, loss

mesh = Mesh(np.array(jax.devices()).reshape(8, 32, 2), ("data", "fsdp", "tensor"))
params = {
    "wi": abstract(mesh, P("fsdp", "tensor"), (8192, 28672), "bfloat16"),
    "wo": abstract(mesh, P("tensor", "fsdp"), (28672, 8192), "bfloat16"),
}
x = abstract(mesh, P(("data", "fsdp")), (512, 2048, 8192), "bfloat16")
report = program_report(jax.grad(loss), params, x)
print(json.dumps({
    "sent": [[one.kind, one.axes, one.nbytes] for one in report.sent.by_kind_and_axes],
    "gathered": sorted({one.path for one in report.collectives if one.kind == "all-gather"}),
    "outputs": [[str(value.got.spec), value.lost_axes] for value in report.outputs],
    "caveats": report.caveats,
    "unread": report.unread,
}))
"""


def test_a_gradient_on_512_devices_gathers_its_parameters_and_reduces_over_data_and_fsdp():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(found["sent"]) == [
        ["all-gather", ["fsdp"], 1_365_245_952],
        ["all-reduce", ["data", "fsdp"], 1_871_708_160],
        ["all-reduce", ["tensor"], 134_217_728],
    ]
    assert found["gathered"] == ["params/wi", "params/wo"]
    assert found["outputs"] == [["P(None, 'tensor')", ["fsdp"]], ["P('tensor',)", ["fsdp"]]]
    assert any("bfloat16" in caveat and "float32" in caveat for caveat in found["caveats"])
    assert found["unread"] == []
