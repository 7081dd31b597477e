"""Readers of inputs by format: each returns reports, which are used as their users do."""

import os
import stat
from functools import cache
from random import Random

import jax
import numpy as np

from jax_array_info_core import (
    PathRules,
    array_report,
    check_report,
    load_report,
    log_report,
    memory_profile_report,
    planned_report,
    program_diff_report,
    reshard_report,
    timeline_report,
    tree_diff_report,
    tree_report,
    xla_report,
)
from jax_array_info_core.compat.topology_names import parse_topology
from jax_array_info_core.geometry.layouts import notation
from jax_array_info_core.jobs.hosts.files import hosts_in_folder
from jax_array_info_core.jobs.timeline.recording import Recording
from jax_array_info_core.layouts import parse_mesh, parse_shape, parse_spec
from jax_array_info_core.reports import ProgramReport, TreeReport
from jax_array_info_core.trees.files import read_report


def of_path(path):
    """Yield what the commands make of a file."""
    report = read_report(path)
    yield report
    if isinstance(report, TreeReport):
        yield check_report(report, hbm_nbytes=2**34)
        yield tree_diff_report(report, report)
        yield lambda: tree_report(report, mesh={"fsdp": 4, "tensor": 2}, specs=PathRules({"*": ("fsdp",)}))
        yield lambda: tree_report(report, mesh={"x": 3}, logical_axes={"embed": "x", "mlp": None})
        yield lambda: reshard_report(report, PathRules({"*": ()}))
    if isinstance(report, ProgramReport):
        yield program_diff_report(report, report)


def of_hosts(path):
    """Yield what the files of a folder say about the processes of a job, and the report of each file."""
    yield lambda: hosts_in_folder(path)
    yield lambda: hosts_in_folder(path, rows=True)
    for file in sorted(path.iterdir()):
        yield lambda file=file: load_report(file)


def of_record(path):
    """Yield what a folder of records shows, among links, pipes and other files, also while it is recorded to."""
    random = Random(b"".join(file.read_bytes() for file in sorted(path.iterdir())))
    outside = path.parent / "outside"
    outside.write_bytes(b'{"line":"start"}\n' * 100)
    for number in range(random.randrange(4)):
        place = path / f"process-{number}-2020010{number + 1}T000000-000.jsonl"
        random.choice(
            [
                lambda place: place.symlink_to(outside),
                lambda place: place.symlink_to("/dev/zero"),
                lambda place: os.link(outside, place),
                os.mkfifo,
                os.mkdir,
                lambda place: place.write_bytes(random.randbytes(1000)),
                lambda place: (place.write_bytes(b'{"line":"start"}\n'), place.chmod(0)),
            ]
        )(place)
    yield lambda: timeline_report(path)
    yield lambda: _recorded_next_to(path, outside)
    yield lambda: timeline_report(path)


def _recorded_next_to(path, outside):
    """Take samples and remove old ones in a folder. Only closed segments may change."""
    kept = {file: _content(file) for file in (*path.iterdir(), outside) if not _may_be_thinned(file)}
    record = Recording(path, 1e-9, 2**12, lambda: None)
    for _ in range(3):
        record.sample()
        for _ in record._thinning:
            pass
    record._close()
    assert {file: _content(file) for file in kept} == kept, "a file that is not the recorder's has changed"
    assert not [*path.glob(".jai-*")], "an unfinished file"


def _may_be_thinned(file):
    is_plain = not file.is_symlink() and file.is_file() and file.stat().st_nlink == 1
    return is_plain and file.read_bytes()[:20].find(b"start") > 0


def _content(file):
    found = file.lstat()
    is_plain = stat.S_ISREG(found.st_mode)
    return found.st_mode, found.st_ino, found.st_nlink, file.read_bytes() if is_plain else b""


def of_log(path):
    """Yield the report on a log, with a mesh and without one."""
    yield log_report(path)
    yield log_report(path, mesh={"x": 4, "y": 2})


def of_profile(path):
    """Yield the report on a memory profile."""
    yield memory_profile_report(path.read_bytes())


def of_pattern(path):
    """Yield trees whose leaves are chosen by a pattern: the first line of the file; the others are paths."""
    pattern, *paths = _text(path).split("\n")
    tree = {"w": {key: np.zeros((8, 4), np.int8) for key in paths}}
    yield tree_report(tree)
    yield lambda: tree_report(tree, mesh={"a": 2}, specs=PathRules({pattern: ("a",), "*": ()}))
    yield lambda: check_report(tree, mesh={"a": 2}, ignore=pattern, allow_empty=True)


def of_name(path):
    """Yield reports with the lines of a file as names."""
    names = _text(path).split("\n")
    array = np.zeros((8, 4), np.int8)
    nested = array
    for name in names:
        nested = {name: nested}
    yield array_report(array, names[0])
    yield tree_report(nested, names[-1])
    yield tree_report(dict.fromkeys(names, array))
    yield lambda: planned_report((8, 4), dict.fromkeys(names, 2), tuple(names[:2]), name=names[0])
    yield lambda: tree_report(nested, mesh={names[0]: 2}, specs=PathRules({"*": (names[-1],)}))


def of_notation(path):
    """Yield the reports that options in a file describe; all other notations are only parsed."""
    text = _text(path)
    yield lambda: xla_report(text)
    yield lambda: xla_report(text, {"x": 4, "y": 2}, (8, 16, 4))
    for parse in (parse_mesh, parse_shape, parse_spec, parse_topology, notation.parse_array):
        yield lambda parse=parse: parse(text) and None
    for parse in (notation.parse_rule, notation.parse_logical_axes, notation.parse_names):
        yield lambda parse=parse: parse(text) and None
    yield lambda: planned_report((8, 6), {"x": 4, "y": 2}, parse_spec(text))
    yield lambda: planned_report((8, 6), parse_mesh(text), ())


def of_refusal(path):
    """Yield the report on a program that XLA refuses with the text of a file."""
    from jax_array_info_core import program_report
    from jax_array_info_core.programs import compiled as stages

    text = path.read_text("utf-8", "surrogateescape")
    compiled, traced = _compiled()
    refused = compiled._replace(refusal=text)
    original, stages.compiled_stages = stages.compiled_stages, lambda *args, **options: refused
    try:
        made = program_report(traced)
    finally:
        stages.compiled_stages = original
    yield made
    yield program_diff_report(made, made)


@cache
def _compiled():
    """Return the compilation of a program, and its trace."""
    from jax_array_info_core.compat.stages import stages_of
    from jax_array_info_core.programs.compiled import compiled_stages
    from tests.programs import cube, step, step_arguments

    traced = jax.jit(step).trace(*step_arguments(cube()))
    return compiled_stages(stages_of(traced, (), {}), None), traced


def _text(path):
    return path.read_bytes().decode("utf-8", "surrogateescape")


READERS = {
    **dict.fromkeys(("report", "maxtext", "safetensors", "npz", "orbax"), of_path),
    "hosts": of_hosts,
    "record": of_record,
    "log": of_log,
    "profile": of_profile,
    "refusal": of_refusal,
    "pattern": of_pattern,
    "name": of_name,
    "notation": of_notation,
}
