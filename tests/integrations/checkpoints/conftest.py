"""Checkpoints that tests read."""

import pytest
from orbax import checkpoint

from tests.integrations.checkpoints.states import state


@pytest.fixture(scope="session")
def manager(tmp_path_factory):
    """A manager of three steps with one item."""
    root = tmp_path_factory.mktemp("checkpoints")
    tree = state()
    with checkpoint.CheckpointManager(root) as saver:
        for step in (1, 2, 10):
            saver.save(step, args=checkpoint.args.StandardSave(tree))
    return root
