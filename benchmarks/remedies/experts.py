"""Changes that ``jai-cli advise`` finds in programs with a planted mistake, compared with an expert's.

Without arguments, it runs on the programs of this folder, which takes minutes; otherwise on those named,
also those of the tests. Options are those of the command, such as ``--trades``.
"""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
WRONG = Path(__file__).parents[2] / "tests" / "data" / "advise" / "wrong.py"
TESTED = re.findall(r"def (\w+)_args\(", WRONG.read_text(encoding="utf-8"))
"""Programs of the tests."""
MIB = 2**20
FIGURES = ("sent_nbytes", "memory_nbytes", "flops", "xla_flops")
Replaced = tuple[tuple[str, str], ...]


class Program(NamedTuple):
    """A program with a mistake. The mistake, and what an expert writes, are texts that are replaced."""

    path: Path
    function: str
    mesh: str
    mistake: Replaced = ()
    right: Replaced = ()
    """What an expert writes into the program without the mistake."""
    arguments: str = "args"


def transformer(*mistake: tuple[str, str]) -> Program:
    return Program(HERE / "transformer.py", "step", "fsdp=4,tensor=2", mistake)


def planted(function: str, mesh: str, old: str, new: str) -> Program:
    return Program(HERE / "planted.py", function, mesh, (), ((old, new),), f"{function}_args")


def tested(function: str) -> Program:
    mesh = "data=2,model=4" if function == "heads_uneven" else "data=4,model=2"
    return Program(WRONG, function, mesh, arguments=f"{function}_args")


def constrained(expression: str, spec: str) -> str:
    return f"jax.lax.with_sharding_constraint({expression}, {spec})"


ATTENDED, INNER = 'x + attended @ layer["out"]', 'x + inner @ layer["down"]'
CARRY = f'con(mesh, {INNER}, "fsdp", None, None)'
MIXED = "mean + (weights[:, None] + spread).T @ (ensemble - mean)"
PROGRAMS = {
    "right": transformer(),
    "unconstrained": transformer(
        (f'con(mesh, {ATTENDED}, "fsdp", None, None)', ATTENDED),
        (CARRY, INNER),
        ('    x = con(mesh, x, "fsdp", None, None)\n', ""),
    ),
    "table": transformer(('"down": P(None, "tensor", "fsdp")', '"down": P(None, "fsdp", "tensor")')),
    "moments": transformer(("= SPECS\n", "= jax.tree.map(lambda spec: P(), SPECS)\n")),
    "logits": transformer(('.float32), "fsdp", None, "tensor")', '.float32), "fsdp", None, None)')),
    "lookup": transformer(('params["embed"].', 'con(mesh, params["embed"], None, None).')),
    "carry": transformer((CARRY, CARRY.replace('"fsdp"', "None"))),
    "gradient": transformer(('(grads, shardings(mesh)["params"])', "(grads, NamedSharding(mesh, P()))")),
    "decode": planted("decode", "data=4,tensor=2", "CACHE = P()", 'CACHE = P(None, "data", None, "tensor")'),
    "head_step": planted(
        "head_step", "fsdp=4,tensor=2", 'LOGITS = P("fsdp")', 'LOGITS = P("fsdp", "tensor")'
    ),
    "adam": planted("adam", "fsdp=4,tensor=2", '"tensor"), P()', '"tensor"), P("fsdp", "tensor")'),
    "embedding": planted("embedding", "data=4,tensor=2", "P(None, None))", 'P("data", None))'),
    "train": planted(
        "train",
        "fsdp=4,tensor=2",
        'h = params["embed"][words]',
        "h = " + constrained('params["embed"][words]', 'P("fsdp")'),
    ),
    "paths": planted(
        "paths",
        "path=8",
        "jax.random.normal(key, (65536, 252))",
        constrained("jax.random.normal(key, (65536, 252))", 'P("path")'),
    ),
    "kalman": planted("kalman", "member=8", MIXED, constrained(MIXED, 'P(None, "member")')),
}
PROGRAMS |= {name: tested(name) for name in TESTED}


def written(folder: Path, name: str, program: Program, replaced: Replaced) -> Path:
    """Write a program with replaced texts, and return its path."""
    text = program.path.read_text(encoding="utf-8")
    for old, new in replaced:
        if text.count(old) != 1:
            raise SystemExit(f"{name}: {old!r} stands there {text.count(old)} times")
        text = text.replace(old, new)
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    return path


def advice(path: Path, program: Program, *options: str) -> tuple[dict[str, Any], float]:
    """Return the report on a program, and the seconds of the CPUs that it took."""
    before = _cpu()
    report = path.with_suffix(".json")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "jax_array_info_cli", "advise", f"{path.name}:{program.function}"),
            *("--mesh", program.mesh, "--args-from", f"{path.name}:{program.arguments}"),
            *("--output", report.name, *options),
        ],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if not report.exists():
        raise SystemExit(f"{path.stem}: {done.stderr}")
    return json.loads(report.read_text(encoding="utf-8")), _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def words(figures: dict[str, Any]) -> str:
    """Return the figures of a program: MiB sent, MiB of memory, GFLOP, and GFLOP that XLA counts."""
    sent, memory, flops, xla = (figures.get(name) or 0 for name in FIGURES)
    return f"{sent / MIB:9.3f} {memory / MIB:8.2f} {flops / 1e9:8.3f} {xla / 1e9:8.3f}"


def show(folder: Path, name: str, options: list[str]) -> None:
    """Print the figures of a program before and after the first change, and with an expert's."""
    program = PROGRAMS[name]
    report, seconds = advice(written(folder, name, program, program.mistake), program, *options)
    counts = f"{report['tried']} of {report.get('candidates', '?')} tried, {seconds:.0f} CPU s"
    print(f"\n{name}: {counts}, {len(report['remedies'])} help, {len(report['trades'])} trades")
    print(f"  {'before':10}{words(report['base'])}")
    for kind in ("remedies", "trades"):
        for remedy in report[kind][:3]:
            place = remedy["place"]
            where = place["path"] or f"line {place['line']}"
            change = f"{where}: {remedy['expression']} -> {remedy['code']}"
            print(f"  {kind:10}{words(remedy['after'])}  {change}  # {remedy['because']}")
    if program.right or program.mistake:
        path = written(folder, f"{name}_right", program, program.right)
        print(f"  {'expert':10}{words(advice(path, program, '--budget', '0.1s')[0]['base'])}", flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    asked = [name for name in given if name in PROGRAMS]
    print(f"{'':12}{'sent':>9} {'memory':>8} {'GFLOP':>8} {'by XLA':>8}", flush=True)
    with tempfile.TemporaryDirectory() as made:
        for name in asked or [name for name in PROGRAMS if name not in TESTED]:
            show(Path(made), name, [option for option in given if option not in asked])
