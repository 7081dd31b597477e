"""``python -m jax_array_info_cli`` is ``jai-cli``."""

from . import main

main()
