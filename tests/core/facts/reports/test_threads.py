"""Reports that several threads read at once."""

import pytest

from tests.documents import run_python

pytestmark = [pytest.mark.newest, pytest.mark.own_process]

READERS = """
import sys, tempfile, threading
import numpy
from jax_array_info_core import load_tree, planned_mesh_report, planned_report, save_tree
from jax_array_info_core.facts.reports.json import from_json, to_json
file = tempfile.mktemp()
save_tree({"w": numpy.zeros(3)}, file)
texts = [to_json(planned_report((8, 4), {"a": 2}, ("a",))), to_json(planned_mesh_report({"data": 4}))]
barrier = threading.Barrier(4)
sys.setswitchinterval(1e-5)
def read():
    barrier.wait()
    for text in texts:
        from_json(text)
    load_tree(file)
threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("done")
"""


def test_threads_that_read_their_first_reports_at_once_do_not_crash():
    """As processes in a test of ``gather_reports`` do. msgspec 0.22 is not safe for that."""
    assert run_python(READERS) == "done\n"
