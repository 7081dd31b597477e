"""The rank and the job of this process, as launchers and schedulers name them in the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# An mpirun inside a SLURM job starts ranks that inherit SLURM_PROCID=0 of the batch step: SLURM is last.
RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
)
"""Variables in which a launcher tells each process its rank, the innermost launcher first."""

LAUNCHER_VARIABLES = (*RANK_VARIABLES, "JAX_COORDINATOR_ADDRESS", "JOB_COMPLETION_INDEX", "TPU_WORKER_ID")
"""Variables that make this process one of several for ``jax.distributed``."""

_JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")


def launcher_rank(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the rank that a launcher such as srun or mpirun gave this process, or None without a launcher.

    A value that is not a number is ignored.

    >>> launcher_rank({"SLURM_PROCID": "3"})
    3
    """
    values = (environ.get(name, "") for name in RANK_VARIABLES)
    return next((int(value) for value in values if re.fullmatch("[0-9]{1,9}", value)), None)


def job_of(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the scheduler's id of the job of this process, or None without a scheduler.

    A task of a SLURM array has the id of the array and its own number.

    >>> job_of({"SLURM_JOB_ID": "130", "SLURM_ARRAY_JOB_ID": "123", "SLURM_ARRAY_TASK_ID": "4"})
    '123_4'
    """
    array, task = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    if array and task:
        return f"{array}_{task}"
    return next(filter(None, map(environ.get, _JOB_VARIABLES)), None)
