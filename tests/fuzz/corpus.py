"""Small inputs of each format, written by the project's own writers and by the libraries of the formats."""

import gzip
import io
import itertools
import json
import tempfile
from pathlib import Path

import jax
import ml_dtypes
import numpy as np

from jax_array_info_core import devices_report, json_schema, to_json, tree_report
from jax_array_info_core.facts.reports.record import RecordEnd, RecordOutOfMemory
from jax_array_info_core.jobs.timeline.segments import encoded
from tests.arrays import mesh_of, sharded
from tests.core.facts.reports.test_json import every_report
from tests.core.jobs.hosts import samples
from tests.core.jobs.timeline import samples as timelines
from tests.hlo_texts import FOLDER
from tests.logs import ALLOCATOR, DONATIONS, FAILED_ON_GPU, FAILED_ON_TPU, REFUSED, WORDINGS
from tests.maxtext import DUMPS, dump
from tests.schemas import covering

ARRAYS = {
    "params/layers/0/w": np.zeros((8, 4), np.float32),
    "params/layers/0/b": np.zeros(4, ml_dtypes.bfloat16),
    "step": np.zeros((), np.int64),
    "mask": np.zeros((3, 0), bool),
}


def reports():
    schema = json_schema()
    names = [choice["$ref"].rpartition("/")[2] for choice in schema["oneOf"]]
    whole = [
        {"report": name, "schema_version": 3, **made}
        for name in names
        for made in covering(schema, name, lambda _, field: field, 12)[0][:3]
    ]
    texts = [*map(to_json, every_report()), *map(json.dumps, whole)]
    return [{"report.json": text.encode()} for text in texts]


def hosts():
    reports = (samples.USUAL, samples.OTHER, tree_report(ARRAYS), devices_report())
    with tempfile.TemporaryDirectory() as name:
        files = [samples.write(Path(name), one, number, 5) for number, one in enumerate(reports)]
        texts = [file.read_bytes() for file in files]
    return [
        {f"hosts/process-{number}.json": texts[one] for number, one in enumerate(chosen)}
        for chosen in ((0, 0, 1), (2, 2), (3,), (1, 0, 2, 3))
    ]


def record():
    groups = [timelines.record_group(0, 7), timelines.record_group(1, 9, mib=3)]
    counts = {0: lambda number: number % 7, 1: lambda number: 2 if number > 20 else 0}
    samples_of_run = timelines.samples_of(groups, counts, 40)
    marks = [
        timelines.record_mark(3.5, "eval", in_use=(5,)),
        timelines.record_mark(9.5, "eval", is_end=True, in_use=(7,), peak=(9,)),
    ]
    failed = RecordOutOfMemory(time=timelines.START + 39.5, message="RESOURCE_EXHAUSTED", requested_nbytes=7)
    stall = timelines.record_stall(39.6, 39)
    end = RecordEnd(time=timelines.START + 40.0, reason="raised", message="KeyError: 'x'")

    def segment(**fields):
        lines = [timelines.record_start(**fields), *groups, *marks, *samples_of_run, failed, stall, end]
        return b"".join(map(encoded, lines))

    one = segment()
    again = segment(started=timelines.START + 60, time=timelines.START + 60, job="7", rank=0)
    other = segment(process=1, process_count=2, host_name="other")
    names = [f"record/process-{number}-20260101T00000{number}-000.jsonl" for number in range(3)]
    return [{names[0]: one}, {names[0]: one, names[1]: again, names[2]: other}, {names[1]: other}]


def maxtext():
    whole = [dump(name, logical=logical) for name in DUMPS for logical in (False, True)]
    few = [dict(itertools.islice(one.items(), 12)) for one in whole]
    return [{"named_shardings.json": json.dumps(one).encode()} for one in few]


def safetensors():
    from safetensors.numpy import save

    arrays = {name: array for name, array in ARRAYS.items() if array.dtype.kind != "V"}
    file = save(arrays, {"format": "pt"})
    dotted = save({name.replace("/", "."): array for name, array in arrays.items()})
    index = {"metadata": {"total_size": 200}, "weight_map": dict.fromkeys(arrays, "1.safetensors")}
    return [
        {"model.safetensors": file},
        {"model.safetensors": dotted},
        {"model.safetensors.index.json": json.dumps(index).encode(), "1.safetensors": file},
    ]


def npz():
    others = {
        "record": np.zeros(3, [("a", "i4"), ("b", "f8", (2,))]),
        "text": np.array(["x"]),
        "date": np.array(["2026"], "M8[Y]"),
        "columns": np.zeros((2, 3), order="F"),
    }
    one_each = [{name: array} for name, array in others.items()]
    arrays = [(np.savez, ARRAYS), (np.savez_compressed, ARRAYS), *((np.savez, one) for one in one_each)]
    made = []
    for save, named in arrays:
        file = io.BytesIO()
        save(file, **named)
        made.append({"model.npz": file.getvalue()})
    return made


def orbax():
    from orbax import checkpoint

    mesh = mesh_of((4, 2), ("fsdp", "tensor"))
    tree = {"w": sharded((16, 8), mesh, "fsdp", "tensor"), "b": [sharded((8,), mesh)], "step": 7}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for directory, options in (
            ("ocdbt", {}),
            ("zarr", {"use_ocdbt": False}),
            ("zarr3", {"use_zarr3": True}),
        ):
            handler = checkpoint.PyTreeCheckpointHandler(**options)
            checkpoint.Checkpointer(handler).save(folder / directory, args=checkpoint.args.PyTreeSave(tree))
        with checkpoint.CheckpointManager(folder / "manager") as saver:
            items = {
                "state": checkpoint.args.StandardSave(tree),
                "config": checkpoint.args.JsonSave({"lr": 1}),
            }
            saver.save(3, args=checkpoint.args.Composite(**items))
        return [_files(directory) for directory in sorted(folder.iterdir())]


def _files(directory):
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return {f"{directory.name}/{path.relative_to(directory)}": path.read_bytes() for path in paths}


def logs():
    lines = [*WORDINGS.values(), *DONATIONS.values(), REFUSED, ALLOCATOR + FAILED_ON_GPU, FAILED_ON_TPU]
    wrapped = [line[:90] + "\n" + line[90:] for line in lines]
    return [{"run.log": f"step 1\n{line}\nstep 2\n".encode()} for line in (*lines, *wrapped)] + [
        {"run.log": "\n".join(lines).encode()}
    ]


def profiles():
    kept = np.zeros(3), jax.numpy.zeros((64, 8))
    profile = jax.profiler.device_memory_profile()
    del kept
    return [{"memory.prof": profile}, {"memory.prof": gzip.decompress(profile)}]


def refusals():
    return [{"refusal.txt": path.read_bytes()} for path in sorted(FOLDER.glob("oom_*.txt"))]


def patterns():
    paths = "params/layers/0/w\nparams/layers/1/w\nb\na[0].c\n'a/b'/c"
    found = ("*", "params/*/w", "*" * 20 + "b", "?*?*?*", "layers/[0]", "'a/b'/*", "", "*a*b*c*", "(a+)+$")
    return [{"pattern.txt": f"{pattern}\n{paths}".encode()} for pattern in found]


def names():
    found = (
        "w\nmodel",
        "größe\n[/red]",
        "a b\n'x'",
        "layer_0\nlayer_1\nlayer_2",
        "x" * 300,
        "a/b\n.c[0]\n{}",
        "\n",
    )
    return [{"names.txt": name.encode()} for name in found]


def notations():
    found = (
        "x=4,y=2", "8,16,4", "fsdp,(tensor,data),-", "P('x', None, ('y', 'z'))", "f32[8,4]:x,y", "*/w=fsdp,tensor",
        "embed=fsdp mlp=tensor,data", "v5p:2x2x2", "h100:8", "{devices=[2,1,4]<=[4,2]T(1,0)}", "{replicated}",
        "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", "{maximal device=3}", "{manual}",
        "{mesh['x'=4,'y'=2], [{'y'}, {}, {'x'}]}", "{devices=[2,2]0,1,2,3}", "w:8x4@x,y:bf16",
        "{{devices=[2,1]0,1}, {replicated}}", "{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}",
    )  # fmt: skip
    return [{"notation.txt": one.encode()} for one in found]


CORPORA = {
    "report": reports,
    "hosts": hosts,
    "record": record,
    "maxtext": maxtext,
    "safetensors": safetensors,
    "npz": npz,
    "orbax": orbax,
    "log": logs,
    "profile": profiles,
    "refusal": refusals,
    "pattern": patterns,
    "name": names,
    "notation": notations,
}
