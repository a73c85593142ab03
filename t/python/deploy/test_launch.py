"""Instances that Slurm or Open MPI launched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from socket import gethostname

import pytest

from flux_ensemble.deploy.launch import batch_system, split_by_launcher

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "2"}
STEP = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "PATH": "/bin"}


def split(tmp_path: Path, environ: dict[str, str] | None, **attributes: str) -> str | None:
    """The sentence about an instance whose broker was started with an environment."""
    return split_by_launcher(launched(tmp_path, environ, **attributes), tmp_path)


def launched(
    tmp_path: Path, environ: dict[str, str] | None, **attributes: str
) -> Callable[[str], str]:
    """The attributes of such an instance."""
    known = {
        "size": "1",
        "instance-level": "0",
        "broker.pid": "17",
        "hostname": gethostname(),
        **attributes,
    }
    if environ is not None:
        (tmp_path / "17").mkdir()
        text = "\0".join(f"{name}={value}" for name, value in environ.items())
        (tmp_path / "17" / "environ").write_bytes(text.encode() + b"\0")

    def attr_get(name: str) -> str:
        if name not in known:
            raise FileNotFoundError(name)
        return known[name]

    return attr_get


def test_one_of_two_tasks_that_became_instances_of_their_own_is_told_with_the_remedy(
    tmp_path: Path,
) -> None:
    told = split(tmp_path, STEP)
    assert told is not None
    assert told.startswith("this Flux instance is task 1 of 2 that srun started")
    assert "--mpi=pmi2" in told


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param(OPEN_MPI, id="by itself"),
        pytest.param({**STEP, **OPEN_MPI}, id="in a Slurm job, by a step of its own"),
    ],
)
def test_one_of_three_tasks_of_open_mpi_is_told_with_its_own_remedy(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    told = split(tmp_path, environ)
    assert told is not None
    assert told.startswith("this Flux instance is task 2 of 3 that mpirun started")
    assert "would run 3 times" in told
    assert "`mpirun -n1`" in told


@pytest.mark.parametrize(
    ("environ", "attributes"),
    [
        pytest.param({"OMPI_COMM_WORLD_SIZE": "1"}, {}, id="the only task of mpirun"),
        pytest.param(OPEN_MPI, {"instance-level": "1"}, id="in a job of Flux that mpirun began"),
        pytest.param({**STEP, "SLURM_STEP_NUM_TASKS": "1"}, {}, id="the only task of its step"),
        pytest.param(STEP, {"size": "2"}, id="the brokers found each other"),
        pytest.param(STEP, {"instance-level": "1"}, id="an instance inside another one"),
        pytest.param(STEP, {"hostname": "elsewhere"}, id="reached from another node"),
        pytest.param({"PATH": "/bin"}, {}, id="no Slurm"),
        pytest.param({**STEP, "SLURM_STEP_NUM_TASKS": "many"}, {}, id="no number"),
        pytest.param(None, {}, id="a process that cannot be looked at"),
    ],
)
def test_an_instance_is_not_refused_where_that(
    tmp_path: Path, environ: dict[str, str] | None, attributes: dict[str, str]
) -> None:
    assert split(tmp_path, environ, **attributes) is None


def test_a_flux_without_these_attributes_is_not_refused(tmp_path: Path) -> None:
    def attr_get(name: str) -> str:
        raise FileNotFoundError(name)

    assert split_by_launcher(attr_get, tmp_path) is None


@pytest.mark.parametrize(
    ("environ", "attributes", "name"),
    [
        ({"SLURM_JOB_ID": "7"}, {"size": "2"}, "Slurm"),
        ({"PBS_JOBID": "7.host"}, {}, "PBS"),
        ({"PATH": "/bin"}, {}, None),
        ({"SLURM_JOB_ID": "7"}, {"instance-level": "1"}, None),
        (None, {}, None),
    ],
)
def test_the_batch_system_is_known_by_the_environment_of_the_broker(
    tmp_path: Path, environ: dict[str, str] | None, attributes: dict[str, str], name: str | None
) -> None:
    assert batch_system(launched(tmp_path, environ, **attributes), tmp_path) == name
