"""Pauses of Python's garbage collector during a report."""

import gc

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core import program_report
from jax_array_info_core.programs import collector, program_report as module

pytestmark = pytest.mark.once_per_version
