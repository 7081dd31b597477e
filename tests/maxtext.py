"""Sharding dumps in MaxText's format, written from the tables in ``tests/data``."""

import json
from pathlib import Path

DUMPS = ("qwen3-0.6b fsdp=16", "deepseek2-16b fsdp=16", "deepseek2-16b fsdp=8,expert=2")
"""Model and mesh axes of size 2 or more of each dump."""


def write_dump(folder, name, *, logical=False):
    """Write ``named_shardings.json`` or ``logical_shardings.json`` into a folder, and return its path."""
    path = Path(folder) / f"{'logical' if logical else 'named'}_shardings.json"
    path.write_text(json.dumps(dump(name, logical=logical), indent=2))
    return path


def dump(name, *, logical=False):
    """Return the spec and the shape of each leaf by its key path; unless ``logical``, with the mesh."""
    tables = _tables()
    facts = dict(tables[f"dump {name}"])
    sizes = mesh_of_dump(name)
    mesh = {"axis_names": list(sizes), "shape": sizes}
    rules = [(names.split(), axes.split()) for names, axes in tables[f"rules {facts['rules']}"]]

    def leaf(shape=(), names=()):
        spec = list(names) if logical else _spec(names, rules)
        facts = {"partition_spec": spec, "shape": list(shape)}
        return facts if logical else {"mesh": mesh, **facts}

    parameters = {}
    for shape, fields in tables[f"model {facts['model']}"]:
        names, path = fields.split()
        keys = "/".join(f"['{key}']" for key in ("params", *path.split("/")))
        names = [None if name == "-" else name for name in names.split(",")]
        parameters[keys] = leaf(map(int, shape.split(",")), names)
    return {
        ".step": leaf(),
        **{f".params/{keys}": value for keys, value in parameters.items()},
        ".opt_state/[0]/.count": leaf(),
        **{f".opt_state/[0]/.mu/{keys}": value for keys, value in parameters.items()},
        **{f".opt_state/[0]/.nu/{keys}": value for keys, value in parameters.items()},
        ".opt_state/[2]/.count": leaf(),
    }


def mesh_of_dump(name):
    """Return the size of each mesh axis of a dump."""
    axes = dict(axis.split("=") for axis in dict(_tables()[f"dump {name}"])["mesh"].split())
    return {axis: int(size) for axis, size in axes.items()}


def flax_rules(name):
    """Return the rules of a dump in Flax's form: pairs of a logical axis name and its mesh axes."""
    tables = _tables()
    rules = tables[f"flax {dict(tables[f'dump {name}'])['rules']}"]
    return [[logical, axes.split() if axes.count(" ") or not axes else axes] for logical, axes in rules]


def _spec(names, rules):
    """Return the mesh axes of each array axis. A mesh axis is used once, by the first rule."""
    spec = [None] * len(names)
    used = set()
    for rule, axes in rules:
        for place, name in enumerate(names):
            if name in rule:
                found = [axis for axis in axes if axis not in used]
                used.update(found)
                spec[place] = found[0] if len(found) == 1 else found or None
    return spec


def _tables():
    """Return the lines of each section, divided at the first two spaces."""
    tables = {}
    text = (Path(__file__).parent / "data" / "maxtext.txt").read_text()
    for line in text.splitlines():
        if line.startswith("["):
            table = tables[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            first, _, rest = line.partition("  ")
            table.append((first.strip(), rest.strip()))
    return tables
