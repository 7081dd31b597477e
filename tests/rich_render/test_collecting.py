"""Reports collected by ``collect_reports`` around compiled programs, and their order."""

import gc
import threading
import weakref

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import collect_reports, sharding_info, tap_sharding
from jax_array_info_core.arrays import delivery

pytestmark = pytest.mark.needs_devices(8)


def look(x):
    sharding_info(x)
    return x


def test_reports_are_in_the_order_of_the_program(array):
    def named(x, name):
        sharding_info(x, name)
        return x

    @jax.jit
    def inner(x):
        return named(x, "4 inner") + 1

    def function(x):
        x = named(x, "0 start")
        _, x = jax.lax.scan(lambda carry, y: (carry, named(y, "1 scan")), 0, x)
        x = jax.lax.cond(x.sum() > 0, lambda y: named(y, "2 true"), lambda y: named(y * 2, "3 false"), x)
        return named(named(inner(x), "5 after"), "6 end")

    with collect_reports() as reports:
        sharding_info(array, "before")
        function = jax.jit(function)
        function(array)
        sharding_info(array, "after")
        function(array + 0)
    names = [
        "before",
        *(f"{n} {w}" for n, w in enumerate(["start", "scan", "true", "false", "inner", "after", "end"])),
    ]
    assert [report.name for report in reports] == [*names, "after"]


def test_reports_go_to_the_innermost_block_and_without_one_to_stdout(array, capfd):
    lowered = None
    with collect_reports() as outer:
        sharding_info(array, "one")
        with collect_reports() as inner:
            sharding_info(array, "two")
            lowered = jax.jit(lambda x: sharding_info(x, "late") or x).lower(array)
        sharding_info(array, "three")
    assert [report.name for report in outer] == ["one", "three"]
    assert [report.name for report in inner] == ["two"]
    assert capfd.readouterr().out == ""
    lowered.compile()
    assert capfd.readouterr().out.count("late") == 1


def test_each_thread_collects_its_own_reports(array):
    found = {}

    def work(number):
        with collect_reports() as reports:
            jax.jit(lambda x: sharding_info(x, str(number)) or x * number)(array)
            sharding_info(array, str(number))
        found[number] = [report.name for report in reports]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [str(number)] * 2 for number in range(4)}


def test_a_closed_block_collects_nothing(array, capfd):
    def block():
        with collect_reports() as reports:
            yield reports

    one, other = block(), block()
    first, second = next(one), next(other)
    one.close()
    sharding_info(array, "gathered by the other")
    other.close()
    sharding_info(array, "printed")
    assert [len(first), len(second)] == [0, 1]
    assert "printed" in capfd.readouterr().out


def test_a_block_collects_only_the_reports_of_its_own_thread(array, capfd):
    opened, done = threading.Event(), threading.Event()
    found = []

    def open_a_block():
        with collect_reports() as reports:
            opened.set()
            done.wait(timeout=60)
        found.extend(reports)

    thread = threading.Thread(target=open_a_block)
    thread.start()
    opened.wait(timeout=60)
    jax.jit(lambda x: tap_sharding(x * 3, "main"))(array)
    done.set()
    thread.join()
    assert found == []
    assert "main" in capfd.readouterr().out


def test_a_block_collects_the_reports_of_a_program_lowered_before_it(array):
    lowered = jax.jit(lambda x: look(x) * 2).lower(array)
    with collect_reports() as reports:
        lowered.compile()
    assert len(reports) == 1


def test_the_caches_of_jax_keep_no_block_alive(array):
    function = jax.jit(lambda x: tap_sharding(x) * 2)
    blocks = []
    for length in range(1, 4):
        with collect_reports() as reports:
            function(jnp.zeros(length))
            blocks.append(weakref.ref(next(reversed(delivery._open.values()))))
        assert len(reports) == 1
    gc.collect()
    assert [block() for block in blocks] == [None] * 3


def test_a_report_goes_to_the_outer_block_once_the_inner_one_is_freed(array, capfd):
    with collect_reports() as outer:
        with collect_reports():
            lowered = jax.jit(lambda x: look(x) * 2).lower(array)
        gc.collect()
        lowered.compile()
    assert len(outer) == 1
    assert capfd.readouterr().out == ""
