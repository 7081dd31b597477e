"""Numbers of notebook cells."""

from __future__ import annotations

import re
import sys
from typing import Any

_NAME = re.compile(r"<ipython-input-(\d{1,9})-")
_LABEL = re.compile(r"In ?\[(\d{1,9})\]")


def cell_number(file: str) -> int | None:
    """Return the number of the cell in a file name, as in ``In [8]``; None if it is not a cell.

    IPython tells it for the names of its kernel, which have none. A cell that ran again has its last number.
    """
    ipython: Any = sys.modules.get("IPython")
    try:
        _, label = ipython.get_ipython().compile.format_code_name(file)
        named = _LABEL.search(label)
    except Exception:  # IPython is not running, is an old version, or does not know the name
        named = None
    named = named or _NAME.match(file)
    return None if named is None else int(named[1])
