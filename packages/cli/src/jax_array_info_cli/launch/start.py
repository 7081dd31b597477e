"""The script that Python starts in each process of a run.

Unlike ``python -P -m``, a script sets no flag that the processes of the program would inherit.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the folder of this script

from jax_array_info_cli.launch.worker import main

main()
