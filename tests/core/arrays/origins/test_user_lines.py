"""The line of the user among the frames of a stack, wherever its code is installed."""

import sys

import numpy
import pytest

from jax_array_info_core import config
from jax_array_info_core.arrays.origins.origins import Owner, UserLines
from jax_array_info_core.facts.reports.origin import MOST_CALLERS

pytestmark = pytest.mark.newest

SITE = "/home/me/.venv/lib/python3.12/site-packages"
JAX, FLAX, HALIAX = f"{SITE}/jax/a.py", f"{SITE}/flax/b.py", f"{SITE}/haliax/c.py"


@pytest.fixture
def settings():
    """Restore the settings after the test."""
    yield config
    config.hidden_modules, config.user_packages, config.show_frames = (), (), 0


def chain(*files):
    """Return the user's line of a stack and its callers, where each frame has the line 1."""
    found = UserLines().origin([(file, 1, "f") for file in files])
    return [one.file.rpartition("/")[2] for one in (found, *found.callers)]


OWNERS = {
    Owner.USER: [
        "/home/me/train.py",
        "/home/me/src/maxtext/layers.py",  # an editable install
        "/home/me/.venv/train.py",
        "/home/me/.venv/bin/train.py",
        "/home/me/app.zip/train.py",
        "<string>",
        "<stdin>",
        "<ipython-input-3-0123456789ab>",
        "/tmp/ipykernel_12/3456.py",
        r"C:\Users\me\train.py",
        __file__,
    ],
    Owner.PACKAGE: [
        f"{SITE}/haliax/nn/linear.py",
        "/usr/lib/python3/dist-packages/haliax/core.py",
        "/usr/local/lib/python3.12/dist-packages/haliax/core.py",
        "/home/me/.local/lib/python3.12/site-packages/one_file.py",
        f"{SITE}/packed.egg/module.py",
        f"{SITE}/IPython/core/interactiveshell.py",
        f"{SITE}/_pytest/python.py",
        r"C:\venv\Lib\site-packages\haliax\core.py",
        r"C:\venv\Scripts\train.exe\__main__.py",
        "/home/me/.venv/bin/train",
        numpy.__file__,
    ],
    Owner.LIBRARY: [
        f"{SITE}/flax/linen/linear.py",
        "/usr/lib/python3.12/contextlib.py",
        "/usr/lib/python312.zip/contextlib.py",
        r"C:\Python312\Lib\contextlib.py",
        "<frozen runpy>",
        "<attrs generated init model.Block>",
        "<@beartype(haliax.core.dot) at 0x7f00>",
    ],
    Owner.MACHINERY: [f"{SITE}/jax/_src/pjit.py", sys.modules[UserLines.__module__].__file__],
}


@pytest.mark.parametrize(("owner", "file"), [(owner, file) for owner in OWNERS for file in OWNERS[owner]])
def test_the_owner_of_a_file(owner, file):
    assert UserLines().owner(file) is owner


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        # Packages below a line of the user, and above it.
        ([JAX, FLAX, HALIAX, "model.py", f"{SITE}/haliax/d.py", "train.py"], ["model.py", "train.py"]),
        # Without a line of the user, the nearest other one.
        ([JAX, FLAX, HALIAX], ["c.py"]),
        ([JAX, FLAX], ["b.py"]),
        ([JAX], ["a.py"]),
        # No repeated parts.
        (["a.py", *["b.py", "c.py"] * 3, "d.py"], ["a.py", "b.py", "c.py", "d.py"]),
        # A bounded length.
        ([f"{number}.py" for number in range(40)], [f"{number}.py" for number in range(1 + MOST_CALLERS)]),
    ],
)
def test_a_chain_has_the_lines_of_the_user_or_the_nearest_other_line(files, lines):
    assert chain(*files) == lines


def test_packages_can_count_as_the_user_s(settings):
    frames = [f"{SITE}/flax/a.py", f"{SITE}/maxtext/b.py", "train.py"]
    assert chain(*frames) == ["train.py"]
    settings.user_packages = ("maxtext",)
    assert chain(*frames) == ["b.py", "train.py"]
    settings.user_packages = ("maxtext", "flax")
    assert chain(*frames) == ["a.py", "b.py", "train.py"]
    settings.hidden_modules = ("maxtext.b",)
    assert chain(*frames) == ["a.py", "train.py"]


@pytest.mark.parametrize(("count", "lines"), [(0, []), (1, ["b.py:2 f"]), (3, ["b.py:2 f", "c.py:3 f"])])
def test_skipped_lines_are_kept_on_request(settings, count, lines):
    settings.show_frames = count
    found = UserLines().origin([(JAX, 1, "f"), (FLAX, 2, "f"), (HALIAX, 3, "f"), ("train.py", 4, "main")])
    assert [*map(str, found.skipped)] == lines


def test_an_empty_stack_has_no_line_and_a_generated_method_is_skipped_while_typed_code_is_not():
    assert UserLines().origin([]) is None
    frames = [("<string>", 3, "__create_fn__.<locals>.__init__"), ("train.py", 4, "main")]
    assert str(UserLines().origin(frames)) == "train.py:4 main"
    assert str(UserLines().origin([("<string>", 3, "<module>")])) == "<string>:3 <module>"


@pytest.mark.parametrize("value", [-1, 1.5, True, "2", None])
def test_numbers_of_lines_are_checked(settings, value):
    with pytest.raises(ValueError, match=r"config\.show_frames must be an integer of at least 0"):
        settings.show_frames = value
    with pytest.raises(ValueError, match=r"config\.callers must be an integer of at least 1"):
        settings.callers = value
    assert (settings.show_frames, settings.callers) == (0, 1)


def test_what_imports_or_runs_a_module_is_no_caller_of_its_lines():
    stack = [("utils.py", 3, "make"), ("train.py", 9, "<module>"), ("run.py", 5, "main")]
    assert [str(one) for one in UserLines().origin(stack).callers] == ["train.py:9 <module>"]
    assert UserLines().origin(stack[1:]).callers == ()
