"""Views of arrays that orbax creates when it saves them."""

import pytest
from orbax import checkpoint

from jax_array_info_core import live_array_report
from tests.arrays import mesh_of, sharded


@pytest.mark.needs_devices(8)
def test_views_left_by_orbax_take_no_memory(no_arrays, tmp_path):
    tree = {"w": sharded((256, 64), mesh_of((4, 2), ("a", "b")), "a")}
    before = live_array_report()
    with checkpoint.StandardCheckpointer() as saver:
        saver.save(tmp_path / "saved", tree)
    after = live_array_report()
    assert after.array_count > before.array_count
    added = [group for group in after.groups if group not in before.groups]
    assert {group.views_of for group in added} == {"float32[256,64]"}
    assert sum(group.shard_nbytes for group in added) == 0
    assert tree["w"].nbytes == 256 * 64 * 4
