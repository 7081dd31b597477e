"""Explanations of JAX's errors on shardings, meshes and devices, printed before the errors themselves."""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

from jax_array_info_core.arrays.live.out_of_memory import KnownErrors, shown_errors
from jax_array_info_core.facts.pages.blocks import Sentence
from jax_array_info_core.programs.raised.explanation import Explanation, explanation_lines

from ..engine.render import on_console
from ..style import terminal_console
from .around import Around
from .show import show_rendered

_WIDEST = 100
"""Maximum line length in characters."""

_printed = KnownErrors()
"""Errors whose explanation has been printed: nested blocks print each once."""


def explain_errors(file: TextIO | None = None) -> ErrorExplainer:
    """Return a context manager and decorator that explains errors of JAX about shardings, meshes and devices.

    On 8 devices:

    >>> import contextlib, sys
    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import AxisType, PartitionSpec as P, reshard
    >>> from jax_array_info import explain_errors
    >>> jax.set_mesh(jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2))
    >>> def step(w, batch):
    ...     h = jnp.tanh(batch)
    ...     return w + h
    >>> w, batch = (jnp.ones((8, 8), out_sharding=P(name)) for name in ("x", "y"))
    >>> with contextlib.suppress(Exception), explain_errors(sys.stdout):
    ...     step(w, batch)
    incompatible operands at train.py:8 step
        w + h
          w  f32[8@x,8]  argument of step
          h  f32[8@y,8]  made at train.py:7
    w + h needs operands that are sharded alike along each dimension.
    Write this instead:
        w + reshard(h, P("x", None))  # sends 64.0 B per device

    Before such an error leaves the block or the decorated function, at most 12 lines are printed to
    ``file``: your line that raised it, the arrays in it, with their types and the lines that made them; the
    rule that was broken; and edits of that line that remove the error, with the bytes that a device sends for
    each. Errors are those of Explicit mesh axes, of ``shard_map``, ``scan`` and ``cond`` with unequal
    shardings, arrays on other devices, on another mesh or in other processes, sizes that the number of shards
    does not divide, arrays that are donated twice or used afterwards, and leaked traced values. Nothing is
    printed for any other error.

    The bytes are those of the edited expression, which a helper process compiles for devices of the CPU. It
    has 5 seconds for all edits, and runs no code of yours. Without it, the bytes are ``at least`` those of
    the arrays that move.

    The error propagates unchanged. It may be the exception itself, its cause or context, or a member of an
    exception group. Nested blocks print each error once. ``with explain_errors() as seen:`` gives an object
    whose list ``explanations`` has an entry for each error that left the block: ``line``, ``expression``,
    ``operands``, and ``edits``, each with its ``code``, which replaces the expression in the line or, with
    ``is_around``, stands around it, and ``sent_nbytes``. These contain only text and numbers.

    It decorates functions, coroutine functions, generator functions and jitted functions.

    Args:
        file: File to print to, in text mode. Defaults to ``sys.stderr``; if that is None, nothing is printed.

    Raises:
        UnsupportedValueError: (a ValueError) If ``file`` is not a file, for example because the parentheses
            of ``@explain_errors()`` are missing.
    """
    return ErrorExplainer(file)


class ErrorExplainer(Around):
    """A block of ``explain_errors``, with the explanations of the errors that left it."""

    name = "explain_errors"
    lines = "the lines that fail"
    kinds = "functions, coroutine functions, generator functions"

    def __init__(self, file: TextIO | None) -> None:
        super().__init__(file)
        self.explanations: list[Explanation] = []
        """Explanations of the errors that left the block, also of those that an inner block has printed."""

    def __enter__(self) -> ErrorExplainer:
        super().__enter__()
        return self

    def tell(self, error: BaseException, handled: KnownErrors) -> None:
        """Print the explanation of an error, and keep it."""
        explanation = tell_if_explained(error, self.file, handled)
        if explanation is not None:
            self.explanations.append(explanation)


def tell_if_explained(
    error: BaseException, file: TextIO | None = None, handled: KnownErrors | None = None
) -> Explanation | None:
    """Print why JAX raised an error, if that is known, and return it. Raise nothing.

    Args:
        error: The exception.
        file: File to print to. None is ``sys.stderr``; nothing is printed if the program has none.
        handled: Errors to ignore.
    """
    explanation = None
    # No failure here may hide the user's exception.
    with contextlib.suppress(Exception):
        if "jax" in sys.modules and isinstance(error, Exception):
            cause, explanation = _explained(error, handled or KnownErrors())
            if explanation is not None and cause not in _printed:
                _printed.add(cause)
                _show(explanation, sys.stderr if file is None else file)
    return explanation


def _explained(error: Exception, handled: KnownErrors) -> tuple[BaseException, Explanation | None]:
    """Return the first error with an explanation among those that a traceback shows, and the explanation."""
    from jax_array_info_core.programs.raised import explain

    for cause in shown_errors(error):
        if cause not in handled:
            explanation = explain.explanation_of(cause)
            if explanation is not None:
                return cause, explanation
    return error, None


def _show(explanation: Explanation, file: TextIO | None) -> None:
    if file is None:
        return  # None would be the standard output to Rich

    lines = explanation_lines(explanation, width=min(terminal_console(file=file).width, _WIDEST))
    show_rendered(on_console([Sentence(line.text, line.look) for line in lines], width=_WIDEST), file=file)
