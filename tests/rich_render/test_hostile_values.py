"""Values whose methods raise errors or return wrong results."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import to_html, to_svg, to_text
from jax_array_info_core import (
    array_report,
    from_json,
    label_array,
    live_array_report,
    memory_report,
    mesh_report,
    planned_report,
    sharding_layout,
    to_json,
)
from jax_array_info_core.reports import ContainerLeaf
from tests.arrays import mesh_of

pytestmark = pytest.mark.once_per_version


class Liar(str):
    """A string whose methods raise, except ``isprintable``, which is wrong."""

    def _lie(self, *args):
        raise RuntimeError("called")

    __str__ = __repr__ = __format__ = __iter__ = __getitem__ = __len__ = __add__ = __radd__ = __contains__ = (
        _lie
    )
    __mod__ = encode = replace = split = upper = partition = lower = join = strip = startswith = _lie

    def isprintable(self):
        return True


class Shy(str):
    """A string that JAX accepts as a mesh axis name, but that cannot be formatted."""

    def _fail(self, *args):
        raise RuntimeError("called")

    __str__ = __repr__ = __format__ = _fail


LIE = Liar("x\x1b[31m")


def shown(report):
    """Return the text of a report, after checking that it also becomes SVG, HTML and JSON."""
    text = to_text(report)
    assert to_svg(report)
    assert to_html(report)
    assert from_json(to_json(report)) == report
    assert "\x1b" not in text
    return text


def raising(*names):
    """Return a class with the given attributes, which all raise."""

    def fail(*args):
        raise RuntimeError("called")

    return type("Raises", (), {name: property(fail) if name[0] != "_" else fail for name in names})


class Like:
    shape, dtype = (2, 3), np.dtype("float32")


HARMLESS = [
    lambda: {"dtype": np.float32},
    lambda: {"dtype": Like},
    lambda: {"sharding": raising("is_fully_addressable")()},
    lambda: {"weak_type": raising("__bool__")()},
    lambda: {"__class__": property(lambda self: jax.Array)},
    lambda: {"__class__": property(lambda self: jax.core.Tracer)},
    lambda: {"__class__": property(lambda self: 1 / 0)},
    lambda: {"__iter__": lambda self: 1 / 0, "__len__": lambda self: 1 / 0},
    lambda: {"__eq__": lambda *args: 1 / 0, "__hash__": None, "__bool__": lambda self: 1 / 0},
]
UNKNOWN = f"<class '{__name__}.Raises'>"


@pytest.mark.parametrize(
    ("attributes", "shape", "dtype", "nbytes"),
    [
        *((attributes, (2, 3), "float32", 24) for attributes in HARMLESS),
        (lambda: {"dtype": jnp.bfloat16}, (2, 3), "bfloat16", 12),
        (lambda: {"dtype": raising("dtype", "__str__")()}, (2, 3), "?", None),
        (lambda: {"dtype": raising("itemsize")}, (2, 3), UNKNOWN, None),
        (lambda: {"dtype": LIE}, (2, 3), "x\x1b[31m", None),
        (lambda: {"shape": (Liar("n"), 3)}, ("n", 3), "float32", None),
        (lambda: {"shape": (raising("__str__")(), 3)}, ("?", 3), "float32", None),
        (lambda: {"shape": (10**5000, True)}, ("1.0e+5000", 1), "float32", None),
    ],
)
def test_an_array_like_object_has_a_report(attributes, shape, dtype, nbytes):
    value = type("Odd", (Like,), attributes())()
    report = array_report(value, "odd")
    assert (report.kind, report.type_name) == ("array-like", "Odd")
    assert (report.shape, report.dtype, report.nbytes) == (shape, dtype, nbytes)
    assert "Odd" in shown(report)
    leaf = f"{dtype}[{','.join(map(str, shape))}]"
    assert array_report((value,)).leaves == (ContainerLeaf(path="[0]", type=leaf),)


@pytest.mark.parametrize(
    "value",
    [
        lambda: raising("shape")(),
        lambda: raising("dtype")(),
        lambda: raising("shape", "dtype", "__iter__", "__len__", "__str__", "__repr__")(),
        lambda: raising("__getattr__")(),
        lambda: raising("__getattribute__")(),
        lambda: type("Lies", (), {"__class__": dict})(),
        lambda: type("Lies", (), {"__class__": type})(),
        lambda: type("Lies", (), {"__class__": property(lambda self: 1 / 0)})(),
        lambda: type("Meta", (type,), {"__name__": property(lambda self: 1 / 0)})("Named", (), {})(),
    ],
)
def test_a_value_with_attributes_that_raise_is_an_object(value):
    value = value()
    for made in (array_report(value), array_report(value, LIE)):
        assert made.kind == "object"
        assert made.type_name in ("Raises", "Lies", "Named")
        assert shown(made)
    assert array_report({"a": value}).leaves[0].path == "['a']"


def overriding(base, *args):
    """Return a value of a subclass whose methods for reading it raise."""

    def fail(self, *args):
        raise RuntimeError("called")

    names = [
        "__iter__",
        "__len__",
        "__str__",
        "__repr__",
        "items",
        "keys",
        "__getitem__",
        "bit_length",
        "__bool__",
    ]
    return type("Odd", (base,), dict.fromkeys(names, fail))(*args)


@pytest.mark.parametrize(
    ("value", "leaves"),
    [
        (lambda: overriding(dict, {"w": 1}), ("['w']",)),
        (lambda: overriding(list, [1, 2]), ()),
        (lambda: overriding(tuple, (1, 2)), ("[0]", "[1]")),
        (lambda: overriding(frozenset, {3}), ()),
        (lambda: {overriding(int, 3): 1, "b": 2}, ("[?]", "['b']")),
        (lambda: {LIE: 1}, ("[?]",)),
    ],
)
def test_containers_are_read_with_the_methods_of_their_base_class(value, leaves):
    report = array_report(value())
    assert report.kind == "container"
    assert tuple(leaf.path for leaf in report.leaves) == leaves
    assert shown(report)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda: LIE, "x\x1b[31m"),
        (lambda: overriding(float, 1.5), "?"),
        (lambda: overriding(int, 3), "?"),
        (lambda: overriding(bytes, b"ab"), "?"),
        (lambda: 10**5000, f"{hex(10**5000)[:1000]}..."),
    ],
)
def test_scalars_that_cannot_be_formatted_have_a_report(value, text):
    report = array_report(value())
    assert (report.kind, report.value) == ("scalar", text)
    assert shown(report)


def test_a_field_that_raises_is_a_leaf_of_type_none():
    @dataclasses.dataclass
    class Layer:
        w: object = 1

    odd = type("Odd", (Layer,), {"w": property(lambda self: 1 / 0, lambda self, value: None)})()
    assert array_report(odd).leaves == (ContainerLeaf(path=".w", type="None"),)


def test_a_hostile_string_is_a_plain_string_in_every_report(no_arrays):
    array = jnp.zeros((4, 4))
    label_array(array, LIE)
    live = live_array_report()
    assert [type(group.label) for group in live.groups] == [str]
    mesh = mesh_of((1, 1), (Shy("a"), Shy("b")))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(Shy("b")))
    struct = jax.ShapeDtypeStruct((4,), np.float32, sharding=sharding)
    planned = planned_report((4,), {"a": 2}, (Liar("a"),), name=LIE)
    assert sharding_layout((4,), sharding).shard_counts == (1,)
    stats = memory_report(jax.devices()[0], {LIE: 1, "b": LIE})
    reports = [array_report(array, LIE), live, array_report(struct), planned, stats, mesh_report(mesh)]
    for report in reports:
        assert shown(report)
        assert all(type(text) is str for text in _texts(report))
        assert json.loads(to_json(report))


def _texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for entry in value:
            yield from _texts(entry)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _texts(getattr(value, field.name))
