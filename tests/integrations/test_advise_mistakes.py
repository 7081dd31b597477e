"""``jai-cli advise`` on programs of users' kinds: each has a mistake, and what an expert would change is known."""

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import jax
import pytest

from jax_array_info_cli.user_code.compiling import report_on
from jax_array_info_core import program_report
from jax_array_info_core.programs.advice.search import figures_of
from tests.cli.advised import advice_on, hooked, mesh_of, request_for

for library in ("equinox", "flax", "optax"):
    pytest.importorskip(
        library, reason=f"the programs use {library}, which the session integrations installs"
    )

IS_LONG = "JAI_FUZZ" in os.environ
FOLDER = Path(__file__).parents[1] / "data" / "advise" / "mistakes"


class Mistake(NamedTuple):
    """A program with a mistake."""

    file: str
    sizes: dict[str, int]
    """Sizes of its mesh."""
    edits: tuple[tuple[str, str, str], ...]
    """What an expert changes: files, the text there, and what it becomes."""


TRAINING, GRID, TWO = {"fsdp": 4, "tensor": 2}, {"x": 4, "y": 2}, {"data": 4, "model": 2}
_AVERAGES = "averages = jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, AVERAGED), averages)"
MISTAKES = {
    mistake.file.removesuffix(".py"): mistake
    for mistake in (
        Mistake("shallow_water.py", GRID, (("shallow_water.py", 'struct("y", "x")', 'struct("x", "y")'),)),
        Mistake("lattice_flow.py", GRID, (("lattice/record.py", 'P(None, "y")', 'P("x", "y")'),)),
        Mistake(
            "turbulence.py",
            {"x": 8},
            (
                (
                    "turbulence.py",
                    "fft.ifft(jnp.fft.ifft(modes, axis=0), axis=1)",
                    "fft.ifft(jax.lax.with_sharding_constraint("
                    'jnp.fft.ifft(modes, axis=0), P(None, "x")), axis=1)',
                ),
            ),
        ),
        Mistake("plasma.py", {"i": 8}, (("plasma.py", "P(None, None)", 'P("i", None)'),)),
        Mistake("implicit.py", GRID, (("implicit.py", 'P(None, "y")', 'P("x", "y")'),)),
        Mistake("nnx_mlp.py", TWO, (("nnx_mlp.py", 'P("data", None)', 'P("data", "model")'),)),
        Mistake(
            "nnx_decode.py",
            TWO,
            (("nnx_decode.py", 'struct(leaf, None, "data")', 'struct(leaf, "data", None, "model")'),),
        ),
        Mistake(
            "eqx_transformer.py",
            TWO,
            (("eqx_transformer.py", "filter_shard(x, P())", 'filter_shard(x, P(("data", "model")))'),),
        ),
        Mistake(
            "diffusion.py",
            TWO,
            (("diffusion.py", "P()))\n    noisy", 'P(("data", "model"))))\n    noisy'),),
        ),
        Mistake(
            "linen_lm.py",
            TRAINING,
            (
                ("linen_lm.py", 'P("fsdp", None, None)', 'P("fsdp", None, "tensor")'),
                (
                    "linen_lm.py",
                    _AVERAGES,
                    "averages = jax.lax.with_sharding_constraint(averages, specs_of(averages))",
                ),
                (
                    "linen_lm.py",
                    "jax.tree.map(lambda leaf: struct(leaf, AVERAGED), params)",
                    "jax.tree.map(struct, params, specs_of(params))",
                ),
            ),
        ),
        Mistake(
            "modular_train.py",
            TRAINING,
            (
                (
                    "modular/shardings.py",
                    '"down": P(None, "fsdp", "tensor")',
                    '"down": P(None, "tensor", "fsdp")',
                ),
            ),
        ),
    )
}
QUICK = ("lattice_flow", "implicit")


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    """The devices of the tests stand for those of the command."""
    monkeypatch.setattr("jax_array_info_cli.user_code.compiling._prepare_jax", lambda count: None)


def figures(name, folder, edits=()):
    """Return the figures of a program whose files are copied into a folder and edited."""
    shutil.copytree(FOLDER, folder)
    for file, text, changed in edits:
        path = folder / file
        assert path.read_text(encoding="utf-8").count(text) == 1, (file, text)
        path.write_text(path.read_text(encoding="utf-8").replace(text, changed), encoding="utf-8")
    mistake = MISTAKES[name]
    with hooked():
        return figures_of(
            report_on(request_for(folder / mistake.file, "step", mistake.sizes), program_report)
        )


def sent(figures):
    """Return the bytes that are sent in a call and in one iteration of each loop of unknown length."""
    return figures.sent_nbytes + sum(loop.sent_nbytes for loop in figures.loops)


@pytest.mark.parametrize("name", [name for name in MISTAKES if IS_LONG or name in QUICK])
def test_the_change_of_an_expert_is_better(name, tmp_path):
    before = figures(name, tmp_path / "before")
    after = figures(name, tmp_path / "after", MISTAKES[name].edits)
    assert sent(after) < 0.9 * sent(before)
    assert after.memory_nbytes <= 1.01 * before.memory_nbytes
    assert after.xla_flops <= 1.01 * before.xla_flops


@pytest.mark.parametrize("name", [name for name in MISTAKES if IS_LONG or name in QUICK])
def test_the_first_change_is_that_of_an_expert_or_as_good(name, tmp_path):
    expert = figures(name, tmp_path / "expert", MISTAKES[name].edits)
    before = figures(name, tmp_path / "before")
    mistake = MISTAKES[name]
    with jax.set_mesh(mesh_of(mistake.sizes)):  # the tries are outside of the command's
        best = advice_on(tmp_path / "before" / mistake.file, "step", mistake.sizes).remedies[0]
    assert best.before == before
    for figure in ("sent_nbytes", "memory_nbytes", "flops", "xla_flops"):
        if getattr(expert, figure) is not None:
            assert getattr(best.after, figure) <= 1.05 * getattr(expert, figure), figure
