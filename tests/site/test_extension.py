"""The IPython extension in a kernel, in a terminal, and its trees in a browser."""

import re
import subprocess
import sys

from docs_hooks.notebooks import run_cells
from jax_array_info import tree_report
from jax_array_info.export.document import html_document
from jax_array_info.export.formats import to_html

TREE = "{'layers': [{'w': jnp.ones((4, 4))}, {'w': jnp.ones((4, 4))}], 'steps': [jnp.ones(3), 4]}"


def test_in_a_notebook_a_tree_folds_while_the_extension_is_loaded():
    cells = ["import jax.numpy as jnp", "%load_ext jax_array_info", TREE, "%unload_ext jax_array_info", TREE]
    _, _, [loaded], _, [unloaded] = run_cells.__wrapped__(cells, None)
    assert "layers/0-1/w ×2" in re.sub("<[^>]*>", "", loaded.html)
    assert not unloaded.html
    assert "Array(" in unloaded.text


def test_in_a_terminal_a_tree_is_a_table():
    code = f"import jax.numpy as jnp\n%load_ext jax_array_info\n{TREE}"
    arguments = [sys.executable, "-m", "IPython", "--colors=NoColor", "--no-banner", "-c", code]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120)
    assert "│ layers/0-1/w ×2 │ float32[4,4] │    128.0 B │" in done.stdout
    assert "<details" not in done.stdout


def test_a_prefix_opens_and_closes_without_a_script(browser):
    import jax
    import jax.numpy as jnp

    def array(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32)

    tree = {
        name: {"w": array(number + 1, 8), "b": array(8)}
        for number, name in enumerate("abcdefghijklmnopqrstuvwxyz")
    }
    page = browser.new_page(java_script_enabled=False)
    page.set_content(html_document([to_html(tree_report(tree, mesh={"data": 2}))], "tree"))
    first = page.locator("details").first
    leaf = first.get_by_text("float32[1,8]")
    assert not leaf.is_visible()
    first.locator("summary").click()
    assert leaf.is_visible()
    first.locator("summary").click()
    assert not leaf.is_visible()
    page.close()
