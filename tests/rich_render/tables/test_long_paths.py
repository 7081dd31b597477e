"""Paths and labels that are too long to draw."""

import numpy as np
import pytest

from jax_array_info import check_report, tree_diff_report, tree_report
from jax_array_info.engine.render import to_text
from jax_array_info.export.formats import to_svg
from jax_array_info.style import wrapped

pytestmark = pytest.mark.oldest_and_newest


@pytest.mark.parametrize("key", ["a", "0/", "a/0_", "é", "['x']"])
def test_a_path_of_any_length_is_clipped_before_it_is_laid_out(key):
    path = key * (80_000 // len(key))
    report = tree_report({path: np.zeros(4), f"{path}1": np.zeros(8)})
    for shown in (report, tree_diff_report(tree_report({path: np.zeros(8)}), report), check_report(report)):
        assert len(to_text(shown, width=80)) < 30_000
        assert len(to_svg(shown, width=80)) < 200_000


def test_a_label_of_any_length_is_clipped_before_it_is_wrapped():
    assert sum(map(len, wrapped("a b " * 20_000, 10))) < 2_000
