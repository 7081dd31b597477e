import pytest

from tests.rich_render.export.test_program_html import TRAIN


@pytest.fixture
def train(tmp_path):
    """Return the path of a source file."""
    path = tmp_path / "train.py"
    path.write_text(TRAIN, "utf-8")
    return path
