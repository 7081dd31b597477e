"""Inspection by a single process: no function starts a collective."""

import pytest

from tests.multiprocess.programs import PROCESSES, run_everywhere

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]

ALONE = """
sharding = NamedSharding(mesh, P("process", "device"))
array = jax.jit(lambda: jnp.zeros((2 * count, 3 * len(here))), out_shardings=sharding)()
scalar = jax.jit(jnp.sum)(array)
jax.block_until_ready((array, scalar))
inspector = int(sys.argv[1]) % count
inspected = sys.argv[2]
if me == inspector:
    for value in (array, scalar, {"both": (array, scalar)}):
        sharding_info(value, "alone")
        simple_array_info(value)
        array_report(value)
    sharding_vis(array)
    print_mesh(mesh)
    tree = {"params": {"w": array}, "opt": [scalar, np.zeros(3)]}
    print_tree(tree, "tree", specs={"params": P(), "opt": None})
    print_check(tree, replicated_over=("process",), hbm_nbytes=1)
    print_tree_diff(tree, tree_report(tree, mesh={"process": count, "device": len(here)}))
    print_reshard(array, NamedSharding(mesh, P()))
    print_array_stats()
    live_array_report()
    pretty_memory_stats(jax.local_devices()[0])
    print_program(jax.jit(lambda x: jnp.sin(x).sum(0)), array)
    own = Mesh(np.array(jax.local_devices()), ("own",))

    @jax.jit
    def program(x):
        sharding_info(x, "inside")
        return 2 * x

    jax.block_until_ready(program(jax.device_put(np.ones(4 * len(here)), NamedSharding(own, P("own")))))
    fact(alone="done")
    open(inspected, "w").close()
else:
    # Waits without calling jax: if the other process started a collective, both would hang.
    while not os.path.exists(inspected):
        time.sleep(0.01)
fact(after=float(jax.jit(jnp.sum)(array + 1).addressable_shards[0].data))
"""


@pytest.mark.parametrize("inspector", [0, -1])
def test_one_process_can_inspect_while_the_others_call_nothing(tmp_path, inspector):
    code = f"sys.argv[1:] = ['{inspector}', {str(tmp_path / 'inspected')!r}]\n{ALONE}"
    done, facts = run_everywhere(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert [process for process, fact in enumerate(facts) if "alone" in fact] == [inspector % PROCESSES]
    assert len({fact["after"] for fact in facts}) == 1
    assert "inside" in done.stdout
    assert "all-reduce" in done.stdout
