"""Ranks and jobs that launchers and schedulers name in the environment."""

import pytest

from jax_array_info_core.compat.processes import RANK_VARIABLES, job_of, launcher_rank

pytestmark = pytest.mark.newest


@pytest.mark.parametrize("name", RANK_VARIABLES)
def test_each_launcher_names_a_rank(name):
    assert launcher_rank({name: "12"}) == 12
    assert launcher_rank({name: "0"}) == 0


def test_the_innermost_launcher_counts():
    assert launcher_rank({"SLURM_PROCID": "0", "OMPI_COMM_WORLD_RANK": "3"}) == 3
    assert launcher_rank({"JOB_COMPLETION_INDEX": "5", "OMPI_COMM_WORLD_RANK": "3"}) == 3


@pytest.mark.parametrize("value", ["", "x", "-1", "1.0", " 1", "1\n", "٣", "\udcff", "9" * 5000])
def test_a_value_that_is_no_rank_is_ignored(value):
    assert launcher_rank({"PMI_RANK": value}) is None
    assert launcher_rank({"PMI_RANK": value, "SLURM_PROCID": "1"}) == 1
    assert launcher_rank({}) is None


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": ""}, None),
        ({"SLURM_JOB_ID": "77"}, "77"),
        ({"SLURM_JOB_ID": "80", "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "0"}, "77_0"),
        ({"SLURM_JOB_ID": "80", "SLURM_ARRAY_JOB_ID": "77"}, "80"),
        ({"PBS_JOBID": "77[3].host"}, "77[3].host"),
        ({"LSB_JOBID": "77"}, "77"),
    ],
)
def test_the_scheduler_names_the_job(environ, job):
    assert job_of(environ) == job
