"""Values that are live where the backward pass begins."""

import pytest

from jax_array_info_core.hlo.liveness import temporaries_of
from tests.hlo_texts import CPU, module_of, stored

pytestmark = pytest.mark.oldest_and_newest

FORWARD, BACKWARD = "jit(f)/jvp()/dot_general", "jit(f)/transpose(jvp())/dot_general"
REMATTED = "jit(f)/transpose(jvp(jvp()))/checkpoint/rematted_computation/dot_general"
FUSED = """%fused {
  %p = f32[8]{0} parameter(0)
  %again = f32[8]{0} sine(%p), metadata={op_name="jit(f)/jvp()/sin"}
  ROOT %r = f32[9]{0} custom-call(%again), custom_call_target="product",
  metadata={op_name="jit(f)/transpose(jvp())/dot_general"}
}""".replace(",\n  ", ", ")


def line(result, size, operation, name=None, extra=""):
    """Return an instruction with a result of some size."""
    named = "" if name is None else f', metadata={{op_name="{name}"}}'
    return f"  {result} = f32[{size}]{{0}} {operation}{extra}{named}"


def product(result, size, operands, name=None):
    """Return an instruction that computes a product."""
    return line(result, size, f"custom-call({operands})", name, ', custom_call_target="product"')


def held(*body, before="", tells_passes=True):
    """Return the sizes of the values of an entry that are live where the backward pass begins."""
    entry = "\n".join([line("%x", 2, "parameter(0)"), *body, line("ROOT %end", 1, "slice(%last)", None, CUT)])
    text = f"HloModule t, is_scheduled=true\n\n{before}\n\nENTRY %main {{\n{entry}\n}}"
    found = temporaries_of(module_of(text), lambda _: None, tells_passes=tells_passes).at_backward
    return None if found is None else {one.shape.dims[0] for one in found}


CUT = ", slice={[0:1]}"
PASSES = (
    product("%a", 3, "%x", FORWARD),
    product("%b", 4, "%a", FORWARD),
    product("%c", 5, "%b", BACKWARD),
    product("%last", 6, "%c, %a", BACKWARD),
)


def test_values_of_the_forward_pass_are_live_that_are_read_later():
    assert held(*PASSES) == {3, 4}


def test_without_both_passes_there_is_no_turn():
    assert held(*(one.replace("transpose(jvp())", "jvp()") for one in PASSES)) is None
    assert held(*(one.replace("jvp()", "") for one in PASSES)) is None
    assert held(*PASSES, tells_passes=False) is None


def test_the_turn_is_where_the_fewest_operations_are_on_the_wrong_side():
    """Here an early one of the backward pass is before a forward one, and a late one of the forward pass."""
    early, late = product("%early", 7, "%a", BACKWARD), product("%late", 8, "%a", FORWARD)
    a, b, c, _ = PASSES
    more, end = (
        product("%more", 9, "%b", FORWARD),
        product("%last", 6, "%c, %a, %early, %late, %more", BACKWARD),
    )
    assert held(a, early, b, more, c, late, end) == {3, 4, 9}


def test_zeros_that_a_loop_begins_with_are_no_operations_of_a_pass():
    """XLA puts those of the backward pass anywhere, such as in front of everything."""
    fill = "%fill {\n  %c = f32[] parameter(0)\n  ROOT %r = f32[9]{0} broadcast(%c), dimensions={}\n}"
    zeros = [line(f"%zeros{k}", 9, "fusion(%zero)", BACKWARD, ", kind=kLoop, calls=%fill") for k in range(4)]
    last = product("%last", 6, "%c, %a, %zeros0, %zeros1, %zeros2, %zeros3", BACKWARD)
    assert held("  %zero = f32[] constant(0)", *zeros, *PASSES[:3], last, before=fill) == {3, 4}


def test_what_checkpoint_computes_again_is_of_the_pass_in_which_it_runs():
    """Behind the turn it is not live there. XLA may have merged it with what the forward pass computes."""
    a, b, c, _ = PASSES
    again, end = product("%again", 7, "%b", REMATTED), product("%last", 6, "%c, %a, %again", BACKWARD)
    assert held(a, b, again, c, end) == {3, 4}
    merged = product("%again", 7, "%x", REMATTED)
    assert held(merged, a, b, c, end) == {3, 4, 7}


def test_copies_of_arguments_and_constants_are_not_values_of_the_forward_pass():
    a, b, c, _ = PASSES
    copied = line("%copied", 2, "copy(%x)")
    zero = "  %zero = f32[] constant(0)"
    filled = line("%filled", 9, "broadcast(%zero)", FORWARD, ", dimensions={}")
    end = product("%last", 6, "%c, %a, %copied, %filled, %gathered", BACKWARD)
    gathered = line("%gathered", 10, "all-gather(%x)", None, ", dimensions={0}")
    assert held(copied, gathered, zero, filled, a, b, c, end) == {3, 4, 10}, "a gathered argument is held"


def test_a_fusion_is_of_the_pass_of_its_product():
    """It computes an operation of the forward pass again."""
    a, b, *_ = PASSES
    a = product("%a", 8, "%x", FORWARD)
    fused = line("%c", 9, "fusion(%a)", FORWARD, ", kind=kOutput, calls=%fused")
    end = product("%last", 6, "%c, %b", BACKWARD)
    assert held(a, b, fused, end, before=FUSED) == {4, 8}


def test_values_outside_of_the_main_memory_are_among_them():
    fast = PASSES[0].replace("f32[3]{0}", "f32[3]{0:S(1)}")
    assert held(fast, *PASSES[1:]) == {3, 4}


@pytest.mark.parametrize("where", CPU)
def test_a_step_holds_the_hidden_values_and_the_gathered_weights(where):
    """Up to JAX 0.6, no operation of this program has its pass in its name."""
    found = temporaries_of(stored(where, "step"), lambda _: None)
    if where in ("0.4.38", "0.5.3", "0.6.2"):
        assert found.at_backward is None
        return
    shapes = {one.shape.dims for one in found.at_backward}
    assert (8, 64, 512) in shapes
    assert {one.shape.dims for one in found.highest if one.is_for_backward} <= shapes


@pytest.mark.parametrize(
    ("program", "kept"), [("scan", (4, 8, 256, 2048)), ("checkpoint", (4, 8, 256, 1024))]
)
def test_what_the_first_loop_stacks_is_live_on_an_accelerator(program, kept):
    for where in ("v5p", "v5e"):
        found = temporaries_of(stored(where, program), lambda _: None).at_backward
        assert kept in {one.shape.dims for one in found}
