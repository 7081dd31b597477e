"""Path of the system's Chromium; ``python -m tests.site.chromium`` prints it."""

import os
import shutil
import sys

MISSING = (
    "no Chromium: install the system's package (apt-get install chromium), or name its program in CHROMIUM"
)


def find_chromium():
    """Return the path of the system's Chromium, None if it is not installed."""
    named = os.environ.get("CHROMIUM")
    return shutil.which(named) if named else shutil.which("chromium") or shutil.which("chromium-browser")


if __name__ == "__main__":
    print(find_chromium() or sys.exit(MISSING))
