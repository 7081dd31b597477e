"""What a page showed is kept until something that decides it changes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from docs_hooks import environment
from docs_hooks.blocks import Shown, block_of
from docs_hooks.cache import cached


def python(source, **options):
    return block_of("python", source, options)


def test_what_ran_does_not_run_again_until_a_block_or_its_surroundings_change(tmp_path):
    runs = []

    def run(blocks):
        runs.append(len(blocks))
        return [(Shown(block.source),) for block in blocks]

    first, other, elsewhere = python("1", devices="1"), python("2", devices="1"), python("2", devices="2")
    pages = ([first], [first], [first, other], [first, elsewhere], [first, other])
    for versions in ("jax 1", "jax 2"):
        for blocks in pages:
            assert cached(blocks, run, versions, tmp_path) == [(Shown(block.source),) for block in blocks]
    assert runs == [1, 2, 2, 1, 2, 2]


def test_each_build_looks_at_the_packages_anew(tmp_path, monkeypatch):
    (tmp_path / "module.py").write_text("x = 1")
    monkeypatch.setattr(environment, "_folder", lambda package: tmp_path)
    first = environment.fingerprint()
    assert environment.fingerprint() == first
    (tmp_path / "module.py").write_text("x = 2")
    assert environment.fingerprint() != first


def test_what_is_kept_but_cut_off_runs_again(tmp_path):
    block, shown = python("1", devices="1"), [(Shown("1"),)]
    cached([block], lambda blocks: shown, "", tmp_path)
    [kept] = tmp_path.iterdir()
    kept.write_bytes(kept.read_bytes()[:-3])
    assert cached([block], lambda blocks: shown, "", tmp_path) == shown
    assert cached([block], pytest.fail, "", tmp_path) == shown


def test_pages_with_the_same_blocks_may_end_at_the_same_time(tmp_path):
    both = threading.Barrier(2)

    def run(blocks):
        both.wait(60)
        return [(Shown("1" * 100_000),)]

    with ThreadPoolExecutor() as pool:
        pages = [pool.submit(cached, [python("1", devices="1")], run, "", tmp_path) for _ in range(2)]
        assert pages[0].result() == pages[1].result()
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]
