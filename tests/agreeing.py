"""Values of a JSON schema whose parts agree, as the checks of reports require."""

from typing import get_args

import numpy as np

from jax_array_info_core.facts.reports.moves import WayName


def _agreeing_layout(layout):
    """Return a layout whose device ids match its shape, each with a process."""
    counts = [1 + abs(length) % 3 for length in layout["shape"]] + [1 + len(layout["shape"]) % 2]
    ids = np.arange(np.prod(counts))
    processes = [[number, part.tolist()] for number, part in enumerate(np.array_split(ids, 2))]
    return {
        **layout,
        "shape": list(map(abs, layout["shape"])),
        "device_ids": ids.reshape(counts).tolist(),
        "processes": processes if layout.get("processes") else [],
        "partial_sums": counts[-1] if layout.get("unreduced") else 1,
    }


def _agreeing_mesh(mesh):
    """Return a mesh with one size and one type per name."""
    names = list(dict.fromkeys(mesh["names"]))
    types = [mesh["types"][0] for _ in names] if mesh.get("types") else []
    return {"names": names, "sizes": [1 + len(name) % 4 for name in names], "types": types}


def _agreeing_mesh_report(report):
    """Return a mesh report whose layout has the sizes of its axes."""
    axes = _agreeing_mesh(report["axes"])
    layout = {**report["layout"], "shape": axes["sizes"]}
    ids = np.arange(np.prod(axes["sizes"], dtype=int)).reshape([*axes["sizes"], 1])
    owners = [[number, part.tolist()] for number, part in enumerate(np.array_split(ids.ravel(), 2))]
    return {
        **report,
        "axes": axes,
        "layout": {**layout, "device_ids": ids.tolist(), "processes": [], "partial_sums": 1},
        **{name: owners for name in ("hosts", "slices") if report.get(name)},
    }


def _agreeing_sharding(sharding):
    """Return a sharding whose mesh also has the axes that its spec names."""
    spec, mesh = sharding.get("spec"), sharding.get("mesh")
    if not spec or not mesh:
        return sharding
    named = [name for entry in (*spec["axes"], spec.get("unreduced", ())) for name in entry]
    return {**sharding, "mesh": _agreeing_mesh({**mesh, "names": [*named, *mesh["names"]]})}


def _agreeing_array(array):
    """Return an array report that has a local part only if it has a layout."""
    return array if array.get("layout") else {**array, "local_part": None}


def _agreeing_count(value, fields, least):
    """Return an object whose numbers in some fields are not below a limit."""
    return {
        name: max(abs(entry), least) if name in fields and isinstance(entry, int) else entry
        for name, entry in value.items()
    }


def _agreeing_uneven(axis):
    """Return an uneven axis of its shape."""
    shape = [abs(dim) for dim in axis["shape"]] or [3]
    return {**axis, "shape": shape, "axis": 0, "count": 2, "fitting_count": 1}


def _agreeing_tree_mesh(mesh):
    """Return a mesh or a device set with as many devices as its axes have."""
    count = int(np.prod(mesh["axes"]["sizes"])) if mesh.get("axes") else 3
    devices = list(range(count)) if mesh.get("devices") and count < 1000 else None
    return {**mesh, "device_count": count, "process_count": 1, "devices": devices}


def _agreeing_group(group):
    """Return a group of live arrays that is on several devices if it is unreduced."""
    return {**group, "partial_sums": 2, "device_count": 2} if group.get("unreduced") else group


def _agreeing_row(row):
    """Return a leaf with numbers in their ranges. A symbolic shape has no size."""
    row = _agreeing_count(row, ("nbytes", "shard_nbytes", "avoidable_nbytes"), 0)
    if not all(isinstance(dim, int) for dim in row["shape"]):
        row = {**row, "nbytes": None}
    shape = _lengths(row["shape"])
    row = {**row, "replicas": 1, "partial_sums": 1, "shape": shape, "batched_axes": []}
    if row.get("shard_shape") is not None:
        shards = _lengths(row["shard_shape"])
        row["shard_shape"] = shards if list(map(type, shards)) == list(map(type, shape)) else shape
    if row.get("spec"):
        names = iter(dict.fromkeys(name for entry in row["spec"]["axes"] for name in entry))
        axes = [[next(names, None)] for _ in shape]
        axes = [[name for name in entry if name is not None] for entry in axes]
        row["spec"] = _agreeing_spec({**row["spec"], "axes": axes, "unreduced": []})
    if row.get("uneven"):
        is_known = shape and all(isinstance(dim, int) for dim in shape)
        row["uneven"] = [{**axis, "shape": shape} for axis in row["uneven"]] if is_known else []
    return row


def _agreeing_spec(spec):
    """Return a spec that leaves at most its first axis to XLA."""
    return {**spec, "unconstrained": [0] if spec.get("unconstrained") and spec["axes"] else []}


def _lengths(shape):
    return [abs(dim) % 10**9 if isinstance(dim, int) else dim for dim in shape]


def _placed(rows, meshes):
    """Return leaves with different paths, each on one of the meshes or on none, whose axes its spec names."""
    placed = []
    for number, row in enumerate(rows):
        index = number % len(meshes) if row.get("mesh") is not None and meshes else None
        axes = None if index is None else meshes[index].get("axes")
        same_as = placed[0]["path"] if row.get("same_as") and placed else None
        row = {**row, "mesh": index, "same_as": same_as, "path": f"{row['path']}{number or ''}"}
        if row.get("unreduced") and (index is None or meshes[index]["device_count"] > 1):
            row["partial_sums"] = 2
        if row.get("spec") and axes:
            names = set(axes["names"])
            named = [[name for name in entry if name in names] for entry in row["spec"]["axes"]]
            row["spec"] = {**row["spec"], "axes": named, "unreduced": []}
        placed.append(row)
    return placed


def _counts_of(value):
    """Return the fields of a report that count bytes or leaves."""
    return [name for name in value if name != "name" and not isinstance(value[name], (bool, str, list, dict))]


def _agreeing_bytes(report):
    """Return a report on a tree with numbers in their ranges."""
    report = _agreeing_count(report, _counts_of(report), 1)
    avoidable = min(report.get("avoidable_nbytes", 0), report.get("fullest_device_nbytes", 0))
    small = min(report.get("small_shard_nbytes", 0), avoidable)
    return {
        **report,
        "avoidable_nbytes": avoidable,
        **({"small_shard_nbytes": small} if "small_shard_nbytes" in report else {}),
    }


def _agreeing_tree(tree):
    """Return a tree whose leaves are on its meshes."""
    tree = _agreeing_bytes(tree)
    return {**tree, "rows": _placed(tree["rows"], tree.get("meshes", []))}


def _agreeing_diff(diff):
    """Return the differences of two trees whose leaves are on their meshes."""
    before, after = diff.get("meshes_before", []), diff.get("meshes_after", [])
    diff = _agreeing_count(diff, _counts_of(diff), 0)
    parts = {
        "removed": _placed([{**row, "path": f"{row['path']}-"} for row in diff.get("removed", [])], before),
        "added": _placed([{**row, "path": f"{row['path']}+"} for row in diff.get("added", [])], after),
    }
    changed = []
    for number, change in enumerate(diff.get("changed", [])):
        path = f"{change['before']['path']}={number}"
        [old], [new] = (
            _placed([{**change[side], "path": path}], meshes)
            for side, meshes in (("before", before), ("after", after))
        )
        changed.append({**change, "before": old, "after": new, "fields": change["fields"] or ["spec"]})
    return {**diff, **parts, "changed": changed}


def _agreeing_leaf(leaf):
    """Return the leaf of a finding or of a resharding with numbers in their ranges."""
    leaf = _agreeing_count(leaf, ("device_nbytes", "nbytes", "process_nbytes"), 0)
    if leaf.get("spec"):
        leaf.pop("type_name", None)  # the class of an object, which has no spec
    return {**leaf, "shape": _lengths(leaf["shape"])}


def _agreeing_reshard(report):
    """Return a resharding whose leaves have different paths."""
    report = _agreeing_count(report, _counts_of(report), 1)
    rows = [{**row, "path": f"{row['path']}{number or ''}"} for number, row in enumerate(report["rows"])]
    ways = [{**report["ways"][0], "name": name} for name in get_args(WayName)] if report.get("ways") else []
    peaks = [{**alike, "peaks": [None] * len(ways)} for alike in report.get("peaks", ())]
    return {**report, "rows": rows, "ways": ways, "peaks": peaks}


def _agreeing_shaped(*fields):
    """Return a function that returns a part with a shape and with numbers in their ranges."""

    def agreeing(part):
        part = _agreeing_count(part, ("count", "group_size"), 1)
        part = {**_agreeing_count(part, fields, 0), "shape": _lengths(part["shape"])}
        if "group_size" in part and part.get("times", 1) is not None:
            part |= {"at_most": None, "depends_on_data": False}
        return part

    return agreeing


def _agreeing_program(report):
    """Return a program whose totals, paths and mesh axes agree."""
    report = _agreeing_count(report, ("dot_flops", "known_dot_flops"), 0) | {"device_count": 1}
    if report.get("uncounted_flops"):
        report["dot_flops"] = None
    report["unread_local"] = (report.get("unread") or [])[:1]
    collectives, mesh = (report.get("collectives") or []), report.get("mesh")
    values = [dict(value) for name in ("arguments", "outputs") for value in (report.get(name) or [])]
    for value in values:
        if not (mesh and value.get("lost_axes") and value.get("like") is not None):
            value.update(lost_axes=[], like=None)
    if mesh is None:
        collectives = [{**one, "axes": None} for one in collectives]
    else:
        axes = [name for one in collectives for name in one["axes"] or ()]
        axes += [name for value in values for name in value["lost_axes"]]
        mesh = _agreeing_mesh({**mesh, "names": [*axes, *mesh["names"]]})
    donations = _distinct(report.get("donations") or [])
    first = values[: len(report.get("arguments") or [])]
    extra = [value["like"] for value in values if value["like"] is not None]
    extra += [value["replaces"] for value in values if value.get("replaces") is not None]
    donatable = _distinct(report.get("donatable") or [])
    extra += [donation["path"] for donation in (*donations, *donatable)]
    made = [one["output"] for one in (*donations, *donatable) if one.get("output") is not None]
    fields = {
        **{"mesh": mesh, "collectives": collectives, "sent": _sent_by(collectives)},
        **{"donations": donations, "donatable": donatable},
    }
    arguments = _distinct([*map(_plain_value, extra), *first])
    outputs = _distinct([*map(_plain_value, made), *values[len(first) :]])
    memory = None if report.get("out_of_memory") else report.get("memory")
    return {**report, **fields, "arguments": arguments, "outputs": outputs, "memory": memory}


def _plain_value(path):
    return {"path": path, "shape": [], "dtype": "int8", "nbytes": 1}


def _distinct(parts):
    """Return parts without those whose path an earlier one has."""
    return list({part["path"]: part for part in reversed(parts)}.values())[::-1]


def _sent_by(collectives):
    """Return the totals of collectives."""

    def total(rows, **of):
        known = [row for row in rows if row.get("times", 1) is not None]
        unknown = [row.get("count", 1) for row in rows if row.get("times", 1) is None]
        nbytes = sum(row["sent_nbytes"] * row.get("count", 1) * row.get("times", 1) for row in known)
        return {"nbytes": nbytes, "unknown_count": sum(unknown), **of}

    def by(*names):
        groups = {}
        for row in collectives:
            groups.setdefault(repr([row.get(name) for name in names]), []).append(row)
        return [total(rows, **{name: rows[0].get(name) for name in names}) for rows in groups.values()]

    return {
        **total(collectives),
        "by_kind_and_axes": by("kind", "axes"),
        "by_phase": by("phase"),
    }


def _agreeing_program_diff(diff):
    """Return the differences of programs with each path once."""
    diff = _agreeing_count(diff, ("sent_nbytes_before", "sent_nbytes_after"), 0)
    return {**diff, **{name: _distinct(diff.get(name, [])) for name in ("shardings", "donations")}}


def _agreeing_timeline(report):
    """Return a timeline with the figures of as many points."""
    count = len(report.get("points", []))
    report = {
        **report,
        "points": list(range(1, count + 1)),
        "operations": (report.get("operations", []) + ["add"] * count)[:count],
        "peak": 0 if count and report.get("peak") is not None else None,
        "series": [{**one, "nbytes": _many(one["nbytes"], count)} for one in report.get("series", [])],
    }
    return report | {name: _many(report.get(name, []), count) for name in ("live_nbytes", "total_nbytes")}


def _many(sizes, count):
    """Return a number of sizes."""
    return ([abs(size) % 2**63 for size in sizes] + [1] * count)[:count]


def _agreeing_donation(donation):
    """Return a donation that has an output or a reason."""
    donation = _agreeing_count(donation, ("nbytes",), 0)
    return {**donation, "reason": None} if donation.get("output") is not None else donation


def _agreeing_donation_change(change):
    """Return a change in which a donated argument is in its program."""
    return {
        **change,
        "is_absent_before": bool(change.get("is_absent_before")) and change.get("before") is None,
        "is_absent_after": bool(change.get("is_absent_after")) and change.get("after") is None,
    }


def _agreeing_memory(report):
    """Return a timeline whose series have the same ascending times."""
    times = sorted({abs(time) % 10**10 for time in report.get("times", [])})
    count = len(times)

    def of_points(values):
        return [abs(value) % 2**40 for value in (*values, *range(count))][:count]

    return {
        **report,
        "times": times,
        "steps": of_points([]),
        "in_use": of_points(report.get("in_use", [])),
        "series": [{**one, "nbytes": of_points(one["nbytes"])} for one in report.get("series", [])],
    }


AGREEING = {
    "Collective": _agreeing_shaped("sent_nbytes", "times", "at_most"),
    "Constraint": _agreeing_shaped(),
    "Donation": _agreeing_donation,
    "DonationChange": _agreeing_donation_change,
    "FigureChange": lambda change: _agreeing_count(change, ("before", "after"), 0),
    "LargeBuffer": _agreeing_shaped("nbytes"),
    "OutOfMemory": lambda part: _agreeing_count(part, ("required_nbytes", "available_nbytes"), 0),
    "ProgramDiff": _agreeing_program_diff,
    "ProgramMemory": lambda part: _agreeing_count(part, [name for name in part if "nbytes" in name], 0),
    "ProgramReport": _agreeing_program,
    "ProgramTimelineReport": _agreeing_timeline,
    "ProgramValue": _agreeing_shaped("nbytes"),
    "Rematerialization": lambda part: {**_agreeing_shaped("nbytes", "sent_nbytes")(part), "whole_shape": []},
    "RuleResult": lambda result: _agreeing_count(result, ("before", "after"), 0),
    "SentChange": lambda change: _agreeing_count(change, ("before", "after"), 0),
    "SentLine": lambda change: _agreeing_count(change, ("before", "after"), 0),
    "Temporary": _agreeing_shaped("nbytes"),
    "TemporaryChange": lambda change: {**change, "before": 0, "after": 1},
    "UnusableDonation": _agreeing_shaped("nbytes"),
    "ArrayReport": _agreeing_array,
    "CheckReport": _agreeing_bytes,
    "ExcessBytes": lambda part: _agreeing_count(part, ("leaf_count",), 0),
    "FindingLeaf": _agreeing_leaf,
    "LiveArrayGroup": _agreeing_group,
    "LiveArrayReport": lambda report: {**report, "visible_devices": 2},
    "LeafStatistics": lambda found: _agreeing_count(found, ("zeros", "nans", "infinities"), 0),
    "ShardingDescription": _agreeing_sharding,
    "ShardingLayout": _agreeing_layout,
    "Spec": _agreeing_spec,
    "MeshAxes": _agreeing_mesh,
    "MeshReport": _agreeing_mesh_report,
    "ReshardReport": _agreeing_reshard,
    "ReshardRow": _agreeing_leaf,
    "TimelineReport": _agreeing_memory,
    "TreeDiff": _agreeing_diff,
    "TreeMesh": _agreeing_tree_mesh,
    "TreeReport": _agreeing_tree,
    "TreeRow": _agreeing_row,
    "UnevenAxis": _agreeing_uneven,
}
