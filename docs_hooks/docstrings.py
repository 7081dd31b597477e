"""Griffe extensions: code fences for docstring examples, and the names of modules that re-export others."""

from __future__ import annotations

import re
from typing import Any

from griffe import Alias, Extension, GriffeLoader, Module, Object

EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
RE_EXPORTED = {
    "reports": "jax_array_info_core.facts.reports.all_reports",
    "errors": "jax_array_info_core.base.errors",
}
"""Modules of ``jax_array_info`` whose lists of names are computed, with the modules that define the names."""


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
