"""Picture of the README: the source of ``docs/assets/step.py`` with the bytes of each line."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rich.console import Group

from jax_array_info import from_json
from jax_array_info.engine.render import on_console
from jax_array_info.export.document import columns_svg
from jax_array_info.export.source_text import program_margin, source_text
from jax_array_info_core.facts.pages.blocks import Sentence, cut
from jax_array_info_core.facts.pages.program_words import title_words
from jax_array_info_core.facts.pages.programs import sent_blocks
from jax_array_info_core.reports import ProgramReport

from .running import environment

STEP = Path(__file__).parent.parent / "docs/assets/step.py"
PICTURE = STEP.with_suffix(".svg")
WIDTH = 96
LOOKS = (
    "svg{color:#1f2328;background:#fff}@media(prefers-color-scheme:dark){svg{color:#e6edf3;background:#000}}"
)
"""Its own background keeps the picture legible where a page is dark and the reader's system is not."""
COMMAND = (
    "jai-cli",
    "program",
    f"{STEP}:step",
    "--mesh",
    "fsdp=4,tensor=2",
    "--args-from",
    f"{STEP}:arguments",
)


def step_picture() -> str:
    """Compile the step for 8 simulated devices and return its source with notes, as an SVG document.

    Raises:
        subprocess.CalledProcessError: If the step does not compile.
    """
    done = subprocess.run(
        [*COMMAND, "--format", "json"], env=environment(), check=True, stdout=subprocess.PIPE, text=True
    )
    report = from_json(done.stdout)
    assert isinstance(report, ProgramReport)
    sent = on_console(cut([Sentence(title_words(report)), *sent_blocks(report)], None), width=WIDTH)
    source = source_text(program_margin(report), max_rows=None)
    root, content = columns_svg([[Group(sent, source)]], STEP.name, WIDTH).split(">", 1)
    return f"{root}><style>{LOOKS}</style>{content}"
