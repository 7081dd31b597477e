"""Costs below a floor are accepted, in words; what is about correctness has no floor."""

import re
from pathlib import Path

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from jax_array_info_core import PathRules, assert_tree, check_report, from_json, to_json
from jax_array_info_core.base.quantities import format_bytes
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.facts.reports.codes import CODES
from jax_array_info_core.facts.reports.findings import FLOORS, MIN_NBYTES, Limits
from jax_array_info_core.geometry.layouts.spec import MIN_SHARD_ELEMENTS, advised_axes, finer_axes
from tests.arrays import mesh_of, sharded
from tests.core.trees.checks.findings import abstract, kinds, paths, the_finding

pytestmark = pytest.mark.newest

PAGE = Path(__file__).parents[4] / "docs" / "findings" / "index.md"
ACCEPTED_SMALL = "in leaves whose shards would hold fewer than 1,024 elements"


def test_the_page_has_the_floor_of_each_code():
    rows = re.findall(r"^\| (JAI\d+) \| (.*) ?\| (.*) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert {(code, "max_replicated" in share, least.strip("`")) for code, share, least in rows} == {
        (CODES[kind].code, one.has_share, "min_nbytes" if one.nbytes is None else format_bytes(one.nbytes))
        for kind, one in FLOORS.items()
    }


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0, 1), st.integers(0, 10**6))
def test_a_cost_is_accepted_with_words_or_not_at_all(nbytes, least, share, total):
    limits = Limits(min_nbytes=least, max_replicated=share, total_nbytes=total)
    for kind in CODES:
        accepted = limits.accept(kind, nbytes)
        floor = FLOORS.get(kind)
        if floor is None:
            assert not accepted
        else:
            within = nbytes < (least if floor.nbytes is None else floor.nbytes)
            assert accepted == (within or (floor.has_share and nbytes <= share * total))
            assert (" limit of " in limits.words(kind, nbytes)) == accepted
        assert not limits.accept(kind, None), "an unknown cost is not small"


@given(st.lists(st.integers(1, 5000), max_size=3), st.lists(st.sampled_from([2, 3, 4, 16, 512]), max_size=3))
def test_no_array_is_advised_to_have_small_shards(shape, sizes):
    mesh = tuple((f"axis{number}", size) for number, size in enumerate(sizes))
    axes = advised_axes(tuple(shape), mesh)
    shard = 1
    for dim, names in zip(shape, axes, strict=True):
        for name in names:
            assert dim % dict(mesh)[name] == 0
            dim //= dict(mesh)[name]
        shard *= dim
    assert not any(axes) or shard >= MIN_SHARD_ELEMENTS
    if shard >= MIN_SHARD_ELEMENTS * 512:
        assert axes == finer_axes(tuple(shape), mesh), "none is left out without need"


@pytest.mark.needs_devices(8)
def test_a_small_replica_beside_a_large_field_is_accepted_in_a_line():
    """Also with no share accepted; 0 turns the least bytes off."""
    mesh = mesh_of((8,), ("x",))
    tree = {"field": sharded((1024, 1024), mesh, "x"), "filter": sharded((8192,), mesh)}
    report = check_report(tree, max_replicated=0)
    assert kinds(report) == []
    assert report.accepted == (
        "accepted: avoidable replicas of 28.0 KiB (5.15%), below the limit of 64.0 KiB",
    )
    assert_tree(tree, max_replicated=0)
    strict = check_report(tree, min_nbytes=0)
    assert paths(the_finding(strict, "avoidable replication")) == ["filter"]
    assert strict.accepted == ()
    assert from_json(to_json(report)) == report


@pytest.mark.needs_devices(8)
def test_small_leaves_on_one_device_are_accepted_and_large_ones_are_found():
    mesh = mesh_of((8,), ("x",))
    field = sharded((1024, 1024), mesh, "x")
    tree = {"field": field, "flags": jnp.zeros(8, bool), "cells": jnp.zeros((100, 100))}
    report = check_report(tree)
    assert kinds(report) == []
    assert report.accepted == ("accepted: 39.1 KiB of leaves on fewer devices, below the limit of 64.0 KiB",)
    assert kinds(check_report(tree, min_nbytes="39KiB")) == ["fewer devices"]
    assert kinds(check_report({"field": field, "mask": jnp.zeros((256, 64))})) == ["fewer devices"]
    finding = the_finding(check_report(tree, min_nbytes=0), "fewer devices")
    assert finding.leaves[-1].remedy == "on 1 of 8 devices; replicate", "not sharded into shards of 1 element"


def test_norms_and_adapters_are_accepted_on_any_number_of_devices():
    """An adapter of 16 columns over 256 devices would have 256 elements per device."""
    layers = [
        {
            "norm": abstract(8192),
            "bias": abstract(4096),
            "wq": abstract(8192, 8192),
            "lora": {"a": abstract(4096, 16), "b": abstract(16, 4096)},
        }
        for _ in range(32)
    ]
    specs = PathRules({"*wq": P(("data", "fsdp")), "*": P()})
    for data in (1, 2, 4, 8):
        report = check_report(layers, mesh={"data": data, "fsdp": 256}, specs=specs)
        assert kinds(report) == []
        assert report.small_shard_nbytes == report.avoidable_nbytes > 0
        [line] = report.accepted
        assert line.endswith(ACCEPTED_SMALL)


def test_a_large_replica_on_a_pod_is_found_although_its_smallest_shards_are_small():
    """It is advised to be sharded over fewer mesh axes."""
    tree = {"w": abstract(2**16, 2**14), "forgotten": abstract(4096, 4096)}
    report = check_report(
        tree, mesh={"data": 64, "fsdp": 512}, specs={"w": P(("data", "fsdp")), "forgotten": P()}
    )
    [leaf] = the_finding(report, "avoidable replication").leaves
    assert (leaf.path, leaf.remedy) == ("forgotten", "shard axis 0 over 'fsdp'")
    assert leaf.nbytes == 2**26 - 2**26 // 512


def test_findings_about_correctness_have_no_floor():
    tree = {"w": abstract(16), "odd": abstract(17)}
    report = check_report(
        tree, mesh={"x": 8}, specs=P("x"), expect={"w": P(), "odd": P("x")}, min_nbytes="1GiB"
    )
    assert kinds(report) == ["unexpected sharding", "padding"]


@pytest.mark.parametrize("wrong", [-1, 1.5, "64 kilo", None, True])
def test_a_least_size_that_is_none_is_an_error(wrong):
    with pytest.raises(UnsupportedValueError, match="min_nbytes must be a number of bytes"):
        check_report({"w": abstract(8)}, min_nbytes=wrong)


def test_an_older_report_without_a_floor_prints_what_it_printed():
    tree = {"w": abstract(2**20), "norm": abstract(2**15)}
    report = check_report(tree, mesh={"x": 8}, specs={"w": P("x"), "norm": P()}, ignore_codes="JAI101")
    assert report.accepted[0] == "accepted: avoidable replicas of 112.0 KiB (17.50%)"
    assert MIN_NBYTES == report.min_nbytes == 65536


def test_a_thousandth_of_the_memory_is_accepted_where_the_memory_is_known():
    tree, mesh = {"w": abstract(4096, 4096), "scale": abstract(512, 512)}, {"x": 8}
    options = {"mesh": mesh, "specs": {"w": P("x"), "scale": P()}}
    assert kinds(check_report(tree, **options)) == ["avoidable replication"]
    report = check_report(tree, **options, hbm_nbytes="16GiB")
    assert kinds(report) == []
    assert report.accepted == (
        "accepted: avoidable replicas of 896.0 KiB (9.72%), below the limit of 16.4 MiB",
    )
    for more in ({"hbm_nbytes": "512MiB"}, {"hbm_nbytes": "16GiB", "min_nbytes": 0}):
        assert kinds(check_report(tree, **options, **more)) == ["avoidable replication"]
