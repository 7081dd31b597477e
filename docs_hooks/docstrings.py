"""Griffe extensions: code fences for examples, shared options, and names of modules that re-export others."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

from griffe import (
    Alias,
    Expr,
    ExprSubscript,
    Extension,
    Function,
    GriffeLoader,
    Module,
    Object,
    Parameter,
    ParameterKind,
)

EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
RE_EXPORTED = {
    "reports": "jax_array_info_core.facts.reports.all_reports",
    "errors": "jax_array_info_core.base.errors",
}
"""Modules of ``jax_array_info`` whose lists of names are computed, with the modules that define the names."""


class Options(Extension):
    """Griffe extension that shows ``**options: Unpack[…]`` as ``help()`` does: as the options that it is."""

    def on_function(self, *, func: Function, loader: GriffeLoader, **kwargs: Any) -> None:
        """Put the options into the signature and the docstring of a function that takes them."""
        unpacked = func.parameters["options"].annotation if "options" in func.parameters else None
        if not isinstance(unpacked, ExprSubscript) or unpacked.canonical_path != "typing.Unpack":
            return
        known = {parameter.name: parameter for parameter in func.parameters}
        assert isinstance(unpacked.slice, Expr)
        assert func.docstring is not None
        types = loader.modules_collection[unpacked.slice.canonical_path]
        function = getattr(import_module(func.module.path), func.name)
        func.docstring.value = inspect.getdoc(function) or ""
        for name in known:
            del func.parameters[name]
        for name, parameter in inspect.signature(function).parameters.items():
            func.parameters.add(
                known.get(name)
                or Parameter(
                    name,
                    annotation=types[name].annotation,
                    kind=ParameterKind.keyword_only,
                    default=repr(parameter.default),
                )
            )


class Examples(Extension):
    """Griffe extension that puts a fence around each docstring example."""

    def on_instance(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object, if it has one."""
        # Markdown would render the example's >>> as block quotes.
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)


class ReExports(Extension):
    """Griffe extension that adds names which a module computes when it is imported."""

    def on_package(self, *, pkg: Module, loader: GriffeLoader, **kwargs: Any) -> None:
        """Add the names to the package, once it and the core are loaded."""
        if pkg.name != "jax_array_info":
            return
        for name, source in RE_EXPORTED.items():
            for member in loader.modules_collection[source].members.values():
                if member.name[0].isupper():
                    target = member.target_path if isinstance(member, Alias) else member.path
                    pkg[name].set_member(member.name, Alias(member.name, target))
