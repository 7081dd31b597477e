"""Donations of random programs, against the plain definitions, which compare all pairs of values."""

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info_core.geometry.layouts.dtypes import type_text
from jax_array_info_core.layouts import MeshAxes, Spec
from jax_array_info_core.programs.donations import _fits, _Outputs, _same_memory, common_end, donatable
from jax_array_info_core.reports import Donation, ProgramValue, ShardingDescription

pytestmark = pytest.mark.newest

MESHES = [MeshAxes(("d", "e"), sizes, types) for sizes in ((4, 1), (2, 2)) for types in ((), ("Auto",) * 2)]
SPECS = [Spec(()), Spec(((), ())), Spec((("d",),)), Spec((("d", "e"),)), Spec((("e",),)), Spec(((), ("d",)))]
SHARDINGS = [
    None,
    ShardingDescription(type="GSPMDSharding", text="{replicated}"),
    ShardingDescription(type="GSPMDSharding", text="{devices=[2]<=[2]}"),
    ShardingDescription(type="SingleDeviceSharding"),
    *(ShardingDescription(type="NamedSharding", spec=spec, mesh=mesh) for spec in SPECS for mesh in MESHES),
]
PATHS = [*(f"{top}/{key}" for top in "ab" for key in ("w", "0", "x/w", "y/w")), "w", "0", ""]


@st.composite
def values(draw, top):
    """Return values with few types and paths, so that many are alike."""
    shardings = draw(st.lists(st.sampled_from(SHARDINGS), min_size=1, max_size=4))
    kinds = st.tuples(
        st.sampled_from(["float32", "bfloat16"]),
        st.sampled_from([(8, 8), (8, 4)]),
        st.sampled_from([None, "device", "pinned_host"]),
        st.sampled_from(shardings),
    )
    found = draw(st.lists(st.tuples(st.sampled_from(PATHS), kinds), max_size=14))
    return [
        ProgramValue(
            path=f"{top}{number}/{path}", shape=shape, dtype=dtype, nbytes=4, got=got, memory_kind=memory
        )
        for number, (path, (dtype, shape, memory, got)) in enumerate(found)
    ]


def fits(argument, output):
    """Return whether an output could have the memory of an argument."""
    same_type = (argument.dtype, argument.shape) == (output.dtype, output.shape)
    return same_type and _same_memory(argument, output) and _fits(argument, output)


@settings(max_examples=200, deadline=None)
@given(values("in"), values("out"), st.data())
def test_each_output_could_reuse_the_free_argument_with_the_most_similar_path(arguments, outputs, data):
    donated = [data.draw(st.integers(0, 3)) == 0 for _ in arguments]
    reused = [Donation(path="", nbytes=4, output=one.path) for one in outputs[::4]]
    shared = {one.path: ["other"] for one in arguments[::5]}
    pairs = zip(arguments, donated, strict=True)
    free = [one for one, is_donated in pairs if not is_donated and one.got and one.path not in shared]
    taken, found = {one.output for one in reused}, {}
    for least, output in itertools.product((1, 0), outputs):
        alike = [one for one in free if fits(one, output)]
        best = max(alike, key=lambda one: common_end(one.path, output.path), default=None)
        is_near = best is not None and common_end(best.path, output.path) >= least
        if is_near and output.got and output.path not in taken:
            free.remove(best)
            taken.add(output.path)
            found[best.path] = output.path
    expected = [(one.path, found[one.path]) for one in arguments if one.path in found]
    made = donatable(arguments, donated, outputs, reused, shared)
    assert [(one.path, one.output) for one in made] == expected


def plain_reason(argument, outputs, takers):
    """Return the start of the reason, and the path of the output that is named; "" for none."""

    def nearest(places):
        free = [place for place in places if place not in takers] or places
        return max(
            (outputs[place] for place in free), key=lambda one: common_end(argument.path, one.path)
        ).path

    every = range(len(outputs))
    alike = [
        one for one in every if (outputs[one].dtype, outputs[one].shape) == (argument.dtype, argument.shape)
    ]
    if not alike:
        same_shape = [one for one in every if outputs[one].shape == argument.shape]
        same = same_shape or [one for one in every if outputs[one].dtype == argument.dtype]
        word = "dtype" if same_shape else "shape" if same else "dtype and shape"
        return f"{word}: no output is {type_text(argument.dtype, argument.shape)}", nearest(
            same
        ) if same else ""
    near = [one for one in alike if _same_memory(argument, outputs[one])]
    fitting = [one for one in near if _fits(argument, outputs[one])]
    if not fitting:
        word, named = ("sharding", near) if near else ("memory kind", alike)
        return f"{word}: no output ", nearest(named)
    if any(one not in takers for one in fitting):
        return "XLA did not reuse it; ", nearest(fitting)
    others = [one for one in alike if one not in takers]
    elsewhere = [one for one in others if one in near] or others
    first = "; ".join(
        ", ".join(f"{outputs[one].path} reuses {takers[one].path}" for one in part) for part in [fitting[:3]]
    )
    more = f" and {len(fitting) - 3} more" if len(fitting) > 3 else ""
    return f"taken: no output ; {first}{more}", nearest(elsewhere) if elsewhere else ""


@settings(max_examples=200, deadline=None)
@given(values("in"), values("out"), st.sets(st.integers(0, 13)))
def test_the_reason_names_the_output_that_a_comparison_with_all_finds(arguments, outputs, reused):
    takers = {place: arguments[0] for place in sorted(reused) if place < len(outputs) and arguments}
    found = _Outputs(outputs, takers)
    for argument in arguments:
        start, named = plain_reason(argument, outputs, takers)
        reason = found.reason(argument)
        for part in start.split("; "):
            assert part in reason if not part.startswith("taken: no output ") else reason.startswith(part)
        assert (f"; {named} " in reason) if named else " is in " not in reason


def many(count, got, top):
    return [
        ProgramValue(path=f"{top}/layers/{number}/w", shape=(8, 8), dtype="float32", nbytes=4, got=got)
        for number in range(count)
    ]


@pytest.mark.parametrize("is_fitting", [True, False])
@pytest.mark.parametrize("is_donated", [True, False])
def test_the_time_is_linear_in_the_number_of_values_of_one_type(is_fitting, is_donated):
    arguments = many(20_000, SHARDINGS[4], "params")
    outputs = many(20_000, SHARDINGS[4 if is_fitting else -1], "outputs")[::-1]
    before = time.process_time()
    if is_donated:
        reasons = _Outputs(outputs, {}).reason
        assert all(("XLA did not reuse" in reasons(one)) == is_fitting for one in arguments)
    else:
        found = donatable(arguments, [False] * len(arguments), outputs, ())
        assert [one.path.partition("/")[2] for one in found] == [
            one.output.partition("/")[2] for one in found
        ]
        assert len(found) == is_fitting * len(arguments)
    assert time.process_time() - before < 20
