"""The processes of a program: as JAX connects them, and as launchers name them in the environment."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..base.errors import ProcessError
from . import private


def process_index() -> int:
    """Return ``jax.process_index()`` without starting a backend.

    Before a backend is started, the index is the one given to ``jax.distributed.initialize``. It is 0 if
    JAX is not loaded.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return 0
    state = _distributed_state()
    return int(jax.process_index() if state is None or has_backends() else state.process_id)


def process_count() -> int:
    """Return the number of processes, as ``process_index`` does: without starting a backend."""
    jax = sys.modules.get("jax")
    if jax is None:
        return 1
    state = _distributed_state()
    if state is None or has_backends():
        return int(jax.process_count())
    return 1 if state.client is None else int(state.num_processes)


def compared_copies(count: int) -> int:
    """Return the copies of a host value that each device holds while a number of processes compare it.

    ``jax.device_put`` compares a value that it places on devices of all processes. Newer versions gather it
    from each process, older ones from the first.
    """
    from jax.experimental.multihost_utils import assert_equal

    return 1 + count if "process_allgather" in assert_equal.__code__.co_names else 2


def local_devices(platform: str) -> list[Any]:
    """Return the devices of a platform in this process; none if JAX has not started its backends."""
    jax = sys.modules.get("jax")
    if jax is None or not has_backends():
        return []
    try:
        return list(jax.local_devices(backend=platform or None))
    except RuntimeError:
        return []  # no such backend: the report is from another machine


class Peers(NamedTuple):
    """The processes of a program, and the client that connects them."""

    client: Any
    """The client of ``jax.distributed``. It is private, but the same from JAX 0.4.38 to 0.12."""
    process: int
    """Index of this process."""
    process_count: int


def peers() -> Peers | None:
    """Return the processes connected by ``jax.distributed``; None if this process is the only one.

    Raises:
        ProcessError: If there are several processes, but they are not connected.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    state = _distributed_state()
    if state is not None and state.client is not None:
        job = Peers(state.client, state.process_id, state.num_processes)
        return job if job.process_count > 1 else None
    if has_backends() and jax.process_count() > 1:
        raise ProcessError(
            f"the {jax.process_count()} processes are not connected: call jax.distributed.initialize in each"
        )
    return None


def _distributed_state() -> Any:
    """Return the state of ``jax.distributed``; None where a later version of JAX has moved it."""
    try:
        return private("distributed").global_state
    except (ImportError, AttributeError):
        return None


def has_backends() -> bool:
    """Return whether JAX has started its backends; True if a later version of JAX has moved this."""
    try:
        return bool(private("xla_bridge").backends_are_initialized())
    except (ImportError, AttributeError):
        return True


def keep_collectives_on_loopback() -> None:
    """Make collectives between CPU processes listen on 127.0.0.1 only, if this version of JAX supports it.

    By default, Gloo listens on the address to which the machine's host name resolves.
    """
    # JAX looks the function up when it creates the backend, up to 0.4.38 in xla_extension.
    with contextlib.suppress(AttributeError):
        library = private("lib").xla_client._xla
        make = library.make_gloo_tcp_collectives
        library.make_gloo_tcp_collectives = functools.partial(make, hostname="127.0.0.1")


@contextlib.contextmanager
def only_cpu() -> Iterator[None]:
    """Keep JAX on the CPU inside the block, unless it has already started its backends.

    An accelerator can belong to another process. After the block, the program can still start its own: the
    setting is restored, and a backend that was started on the CPU is cleared.
    """
    import jax

    if has_backends():
        yield
        return
    platforms = jax.config.jax_platforms
    jax.config.update("jax_platforms", "cpu")
    try:
        yield
    finally:
        if has_backends():
            import jax.extend.backend

            jax.extend.backend.clear_backends()
        jax.config.update("jax_platforms", platforms)


_LONGEST_PIECE = 2**20  # JAX 0.4.38 fails at messages of 4 MiB

_LONGEST_TRANSFER = 5.0  # seconds to read a piece that has been written

_LONGEST_WAIT = 0.5  # seconds of one call of C++, during which Python handles no signal


class KeyValueStore:
    """One folder of the store. Its keys are paths, with slashes."""

    def __init__(self, client: Any, folder: str) -> None:
        self._client = client
        self._folder = folder

    def set(self, key: str, text: str) -> None:
        """Write a short text, and replace any earlier text."""
        self._client.key_value_set(f"{self._folder}/{key}", text, allow_overwrite=True)

    def get(self, key: str, seconds: float) -> str | None:
        """Return a short text once it is written; None after the time limit. Ctrl-C ends the wait."""
        until = time.monotonic() + seconds
        remaining = seconds
        while True:
            milliseconds = max(1, int(min(remaining, _LONGEST_WAIT) * 1000))
            try:
                return str(self._client.blocking_key_value_get(f"{self._folder}/{key}", milliseconds))
            except RuntimeError as error:
                # An XlaRuntimeError, or a JaxRuntimeError since JAX 0.8: only the message has the status.
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise
            remaining = until - time.monotonic()
            if remaining <= 0:
                return None

    def entries(self, key: str) -> dict[str, str]:
        """Return the short texts currently below a key, by the rest of their keys."""
        prefix = f"{self._folder}/{key}/"
        return {path.removeprefix(prefix): text for path, text in self._client.key_value_dir_get(prefix)}

    def delete(self, key: str) -> None:
        """Remove a text, if it exists, and all texts below its key."""
        self._client.key_value_delete(f"{self._folder}/{key}")

    def write(self, key: str, text: str) -> None:
        """Write a long text in pieces. The first character marks the last piece (``.``) or not (``+``)."""
        for start in range(0, len(text), _LONGEST_PIECE):
            end = start + _LONGEST_PIECE
            self.set(f"{key}/{start // _LONGEST_PIECE}", ("." if end >= len(text) else "+") + text[start:end])

    def read(self, key: str, seconds: float) -> str | None:
        """Return a long text once it is written; None if a piece is removed or late."""
        pieces = ["+"]
        while pieces[-1].startswith("+"):
            piece = self.get(f"{key}/{len(pieces) - 1}", max(seconds, _LONGEST_TRANSFER))
            if piece is None:
                return None
            pieces.append(piece)
        return "".join(piece[1:] for piece in pieces)


# An mpirun inside a SLURM job starts ranks that inherit SLURM_PROCID=0 of the batch step: SLURM is last.
RANK_VARIABLES = (
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "PALS_RANKID",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
    "JOB_COMPLETION_INDEX",  # of the pods of an indexed Kubernetes job, in which others may start ranks
)
"""Variables in which a launcher tells each process its rank, the innermost launcher first."""

LAUNCHER_VARIABLES = (*RANK_VARIABLES, "JAX_COORDINATOR_ADDRESS", "TPU_WORKER_ID")
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
    return f"{array}_{task}" if array and task else next(filter(None, map(environ.get, _JOB_VARIABLES)), None)
