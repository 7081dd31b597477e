"""The report on changes of shardings that make a program better."""

from __future__ import annotations

from typing import Any

from ..reports import AdviceReport


def advise_report(
    f: Any, /, *args: Any, budget: float | str = "60s", topology: str | None = None, **kwargs: Any
) -> AdviceReport:
    """Return the changes of shardings that make a program better, each applied and measured.

    A change is another sharding of arguments or of outputs, or a constraint on an expression of your code. It
    is applied to a copy of the lowered program and compiled, in a process of its own. The best are applied to
    the source where it can be edited, traced and compiled again. Later calls of the function compile nothing
    more.

    A function with an argument that is called as one of the options itself is given as a
    ``functools.partial``.

    Args:
        f: A jitted or plain function.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        budget: Time for the tries, in seconds or as text such as ``"60s"``.
        topology: TPU or GPU topology to compile for, as in ``program_report``. None compiles for the devices
            of the arguments.
        **kwargs: Keyword arguments of the function.

    Raises:
        UnsupportedValueError: (a ValueError) If ``f`` is not a function, or the budget is not a time.
        TopologyError: (a ValueError) If the topology does not exist, has another number of devices than
            the mesh, or needs a package that is not installed.

    An error of the function itself, or of its compilation, is raised unchanged.
    """
    raise NotImplementedError
