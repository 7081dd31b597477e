"""The main module of processes that the user's file starts by spawn: they load it as that of a script."""

import os

from jax_array_info_cli.user_code import SPAWNING, module_of_file

if __name__ == "__mp_main__" and os.path.isfile(os.environ[SPAWNING]):
    globals().update(vars(module_of_file(os.environ[SPAWNING], told=__name__)))
