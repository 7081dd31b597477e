"""Runs a page's blocks: Python in one process for each number of devices, commands in a shell."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType

from .blocks import Block, BlockError, Shown, names_of
from .environment import HOOKS, environment
from .lifelines import Lifeline

SECONDS = 180.0
"""How long a block may take."""


def run_blocks(blocks: Sequence[Block]) -> list[tuple[Shown, ...]]:
    """Return what each block of a page leaves to show.

    Raises:
        BlockError: A block fails, takes too long, or does not do what its options say.
    """
    with tempfile.TemporaryDirectory(prefix="page") as temporary, ExitStack() as processes:
        folder = Path(temporary).resolve()
        pythons: dict[int, Python] = {}
        results = []
        for block, name in zip(blocks, names_of(blocks), strict=True):
            if block.kind == "python":
                if block.fresh and block.devices in pythons:
                    pythons.pop(block.devices).close()
                if block.devices not in pythons:
                    pythons[block.devices] = processes.enter_context(Python(folder, block))
                shown = pythons[block.devices].run(block, name)
            elif block.kind == "file":
                shown = _write(folder, block)
            else:
                shown = tuple(_run_command(folder, block, command) for command in commands(block))
            results.append(shown)
        return results


def commands(block: Block) -> list[str]:
    """Return the commands of a block: each begins with ``$ ``, and goes on in the lines that do not.

    Raises:
        BlockError: The first line does not begin so.
    """
    found: list[str] = []
    for line in block.source.splitlines():
        if line.startswith("$ "):
            found.append(line.removeprefix("$ "))
        elif found:
            found[-1] += f"\n{line}"
        elif line.strip():
            raise BlockError(block, f"the line {line!r} does not begin with '$ '")
    return found


class Python:
    """A process that runs a page's blocks one after the other."""

    def __init__(self, folder: Path, block: Block) -> None:
        """Start it, with the devices of the first of its blocks."""
        self._folder = folder
        self._lifeline = Lifeline()
        self._process = subprocess.Popen(
            [*self._lifeline.words, sys.executable, str(HOOKS / "worker.py")],
            cwd=folder,
            env=environment(block.devices, block.width),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            pass_fds=self._lifeline.descriptors,
            start_new_session=True,
        )

    def __enter__(self) -> Python:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it, and all that it started."""
        self._lifeline.cut()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def run(self, block: Block, name: str) -> tuple[Shown, ...]:
        """Return what a block prints, and the picture of its last expression.

        Args:
            block: The block.
            name: Of the file that its lines are in, for origins and tracebacks.

        Raises:
            BlockError: It fails, takes too long or ends the process.
        """
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        with tempfile.NamedTemporaryFile("r", encoding="utf-8", errors="replace") as output:
            request = {
                "source": block.source.rstrip("\n") + "\n",
                "name": name,
                "width": block.width,
                "raises": block.raises,
                "output": output.name,
            }
            with suppress(BrokenPipeError):  # it has ended: so its answer says
                print(json.dumps(request), file=requests, flush=True)
            timer = threading.Timer(SECONDS, self._lifeline.cut)
            timer.start()
            line = answers.readline()
            timer.cancel()
            printed = _tidy(output.read(), self._folder)
        if not line:
            code = self._process.wait()
            reason = f"its process ended with {code} (a block may take {SECONDS:.0f} s)"
            raise BlockError(block, f"{reason}\n{printed}")
        answer = json.loads(line)
        if answer["error"]:
            raise BlockError(block, f"{printed}{_tidy(answer['error'], self._folder)}")
        return tuple(piece for piece in (Shown(printed), Shown(html=answer["html"])) if piece != Shown())


def _write(folder: Path, block: Block) -> tuple[Shown, ...]:
    path = (folder / block.name).resolve()
    if not path.is_relative_to(folder):
        raise BlockError(block, f"the file {block.name!r} is not in the page's folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.source.rstrip("\n") + "\n", encoding="utf-8")
    return ()


def _run_command(folder: Path, block: Block, command: str) -> Shown:
    with (
        Lifeline() as lifeline,
        subprocess.Popen(
            [*lifeline.words, "bash", "-o", "pipefail", "-c", command],
            cwd=folder,
            env=environment(block.devices, block.width),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            pass_fds=lifeline.descriptors,
            start_new_session=True,
        ) as process,
    ):
        try:
            printed = _tidy(process.communicate(timeout=SECONDS)[0], folder)
        except subprocess.TimeoutExpired:
            lifeline.cut()
            printed = _tidy(process.communicate()[0], folder)
            raise BlockError(block, f"{command!r} takes more than {SECONDS:.0f} s\n{printed}") from None
    if process.returncode != block.exit:
        reason = f"{command!r} exits with {process.returncode}, not with {block.exit}"
        raise BlockError(block, f"{reason}\n{printed}")
    return Shown(printed, command=command)


def _tidy(printed: str, folder: Path) -> str:
    """Return the text without the name of the folder, which is another one each time."""
    return printed.replace(f"{folder}/", "").replace(str(folder), ".")
