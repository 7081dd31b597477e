"""The line of the user among the frames of a stack, wherever its code is installed."""

import sys

import numpy
import pytest

from jax_array_info_core import config
from jax_array_info_core.origins.origins import Owner, UserLines
from jax_array_info_core.reports.origin import MOST_CALLERS

pytestmark = pytest.mark.oldest_and_newest

SITE = "/home/me/.venv/lib/python3.12/site-packages"


@pytest.fixture
def settings():
    """Restore the settings after the test."""
    yield config
    config.hidden_modules, config.user_packages, config.show_frames = (), (), 0


def chain(*frames):
    """Return the user's line of a stack and its callers as ``name:line``."""
    found = UserLines().origin([(file, line, "f") for file, line in frames])
    return [str(one).removesuffix(" f") for one in (found, *found.callers)]


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("/home/me/train.py", Owner.USER),
        ("/home/me/src/maxtext/layers.py", Owner.USER),  # an editable install
        ("/home/me/.venv/train.py", Owner.USER),
        ("/home/me/.venv/bin/train.py", Owner.USER),
        ("/home/me/app.zip/train.py", Owner.USER),
        ("<string>", Owner.USER),
        ("<stdin>", Owner.USER),
        ("<ipython-input-3-0123456789ab>", Owner.USER),
        ("/tmp/ipykernel_12/3456.py", Owner.USER),
        (r"C:\Users\me\train.py", Owner.USER),
        (__file__, Owner.USER),
        (f"{SITE}/haliax/nn/linear.py", Owner.PACKAGE),
        ("/usr/lib/python3/dist-packages/haliax/core.py", Owner.PACKAGE),
        ("/usr/local/lib/python3.12/dist-packages/haliax/core.py", Owner.PACKAGE),
        ("/home/me/.local/lib/python3.12/site-packages/one_file.py", Owner.PACKAGE),
        (f"{SITE}/packed.egg/module.py", Owner.PACKAGE),
        (f"{SITE}/IPython/core/interactiveshell.py", Owner.PACKAGE),
        (f"{SITE}/_pytest/python.py", Owner.PACKAGE),
        (r"C:\venv\Lib\site-packages\haliax\core.py", Owner.PACKAGE),
        (r"C:\venv\Scripts\train.exe\__main__.py", Owner.PACKAGE),
        ("/home/me/.venv/bin/train", Owner.PACKAGE),
        (f"{SITE}/flax/linen/linear.py", Owner.LIBRARY),
        ("/usr/lib/python3.12/contextlib.py", Owner.LIBRARY),
        ("/usr/lib/python312.zip/contextlib.py", Owner.LIBRARY),
        (r"C:\Python312\Lib\contextlib.py", Owner.LIBRARY),
        ("<frozen runpy>", Owner.LIBRARY),
        ("<attrs generated init model.Block>", Owner.LIBRARY),
        ("<@beartype(haliax.core.dot) at 0x7f00>", Owner.LIBRARY),
        (f"{SITE}/jax/_src/pjit.py", Owner.MACHINERY),
        (sys.modules[UserLines.__module__].__file__, Owner.MACHINERY),
        (numpy.__file__, Owner.PACKAGE),
    ],
)
def test_the_owner_of_a_file(file, owner):
    assert UserLines().owner(file) is owner


def test_lines_of_packages_are_skipped_below_a_line_of_the_user():
    inside = [(f"{SITE}/jax/a.py", 1), (f"{SITE}/flax/b.py", 2), (f"{SITE}/haliax/c.py", 3)]
    assert chain(*inside, ("model.py", 4), (f"{SITE}/haliax/d.py", 5), ("train.py", 6)) == [
        "model.py:4",
        "train.py:6",
    ]


def test_without_a_line_of_the_user_the_nearest_other_line_stands_in():
    assert chain((f"{SITE}/jax/a.py", 1), (f"{SITE}/flax/b.py", 2), (f"{SITE}/haliax/c.py", 3)) == ["c.py:3"]
    assert chain((f"{SITE}/jax/a.py", 1), (f"{SITE}/flax/b.py", 2)) == ["b.py:2"]
    assert chain((f"{SITE}/jax/a.py", 1)) == ["a.py:1"]
    assert UserLines().origin([]) is None


def test_packages_can_count_as_the_user_s(settings):
    frames = [(f"{SITE}/flax/a.py", 1), (f"{SITE}/maxtext/b.py", 2), ("train.py", 3)]
    assert chain(*frames) == ["train.py:3"]
    settings.user_packages = ("maxtext",)
    assert chain(*frames) == ["b.py:2", "train.py:3"]
    settings.user_packages = ("maxtext", "flax")
    assert chain(*frames) == ["a.py:1", "b.py:2", "train.py:3"]
    settings.hidden_modules = ("maxtext.b",)
    assert chain(*frames) == ["a.py:1", "train.py:3"]


def test_skipped_lines_are_kept_on_request(settings):
    frames = [(f"{SITE}/jax/a.py", 1, "f"), (f"{SITE}/flax/b.py", 2, "f"), (f"{SITE}/haliax/c.py", 3, "f")]
    frames.append(("train.py", 4, "main"))
    assert UserLines().origin(frames).skipped == ()
    settings.show_frames = 1
    assert [*map(str, UserLines().origin(frames).skipped)] == ["b.py:2 f"]
    settings.show_frames = 3
    assert [*map(str, UserLines().origin(frames).skipped)] == ["b.py:2 f", "c.py:3 f"]


def test_a_generated_method_is_skipped_and_typed_code_is_not():
    frames = [("<string>", 3, "__create_fn__.<locals>.__init__"), ("train.py", 4, "main")]
    assert str(UserLines().origin(frames)) == "train.py:4 main"
    assert str(UserLines().origin([("<string>", 3, "<module>")])) == "<string>:3 <module>"


def test_a_chain_has_no_repeated_parts_and_a_bounded_length():
    assert chain(("a.py", 1), *[("b.py", 2), ("c.py", 3)] * 3, ("d.py", 4)) == [
        "a.py:1",
        "b.py:2",
        "c.py:3",
        "d.py:4",
    ]
    assert len(chain(*[(f"{number}.py", 1) for number in range(40)])) == 1 + MOST_CALLERS


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
