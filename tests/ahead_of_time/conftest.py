"""The compilers of accelerators optimize here as they do for users: their programs are what these tests read."""

import os

from tests.conftest import DEVICE_COUNT

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICE_COUNT}"
