"""``python -m jax_array_info_cli``, the same as ``jai-cli``."""

from . import main

main()
