"""Kinds of lines about the processes of a job: connections, hosts, devices, and the system."""

from __future__ import annotations

from .kinds import Kind

_READ = "Read the log of that rank."

JOB_KINDS = (
    Kind(
        "ranks out of step",
        "root",
        (r"sync_global_devices name mismatch",),
        "Ranks took different branches, so that they wait at different places.",
        "Keep the control flow equal in all ranks; the rank with the odd hash left it.",
    ),
    Kind(
        "never registered",
        "consequence",
        (
            r"DEADLINE_EXCEEDED[\s\S]{0,2000}RPC: /[\w.]{1,60}CoordinationService/RegisterTask",
            r"RPC: /[\w.]{1,60}CoordinationService/RegisterTask",
            r"Stopping coordination service as cluster registration failed",
        ),
        "Not all processes connected to the coordinator in time.",
        "Compare the ranks that started with num_processes, and check the coordinator's address and port.",
    ),
    Kind(
        "restarted rank",
        "consequence",
        (
            r"[Tt]ask[ :]<rank>\b.{0,200}different incarnation",
            r"tried to connect with a different incarnation",
            r"[Ll]eader incarnation ID mismatch",
        ),
        "One process was restarted alone.",
        "Restart all processes of the job together, with a new coordinator address.",
    ),
    Kind(
        "barrier",
        "consequence",
        (
            r"Barrier timed out\. Id: (?P<module>[^\n]{1,200}?)\. [\s\S]{0,1500}?"
            r"tasks that reached the barrier: <arrived>/<expected>",
            r"Barrier timed out\.",
            r"Shutdown barrier in coordination service has failed",
            r"Barrier failed because",
            r"Shutdown barrier has failed",
        ),
        "Some processes did not reach a barrier in time.",
        "At a Shutdown barrier, the first task ended early: read its log. Else read those of the late tasks.",
    ),
    Kind(
        "missed heartbeats",
        "consequence",
        (
            r"[Tt]ask <rank> heartbeat timeout",
            r"tasks are unhealthy \(stopped sending heartbeats\)",
        ),
        "A process stopped answering: it died, was preempted, or its host was frozen.",
        f"{_READ} If it has no error, look for the OOM killer and the scheduler's events.",
    ),
    Kind(
        "preemption poller",
        "consequence",
        (r"[Ff]ailed to retrieve preemption notice from coordination service",),
        "A connection closed while a sibling ended.",
        "Ignore it if the job ended well.",
    ),
    Kind(
        "coordinator gone",
        "consequence",
        (
            r"Failed to (?:send RPC to|disconnect from) coordination service",
            r"Terminating process because the (?:JAX distributed service|coordinator) detected",
            r"Polled an error from coordination service",
            r"Use error polling to propagate",
            r"leader task was preempted/died",
            r"^:?(?:UNAVAILABLE|UNKNOWN): ?Stream removed",
            r"^:?(?:UNAVAILABLE|UNKNOWN): ?Error received from peer",
            r"^:?(?:UNAVAILABLE|UNKNOWN): ?Socket closed",
        ),
        "The coordinator, process 0, or another process ended.",
        "Read the log of rank 0 and the events of its host.",
    ),
    Kind(
        "termination signal",
        "root",
        (
            r"SIGTERM caught",
            r"[Rr]eceived termination signal",
            r"[Rr]eceived (?:signal )?SIGTERM",
            r"will be preempted at",
            r"^Terminated(?: {4,}|$)",
        ),
        "The scheduler asked the process to end: preemption, an update, or a time limit.",
        "Save a checkpoint when reached_preemption_sync_point returns True, and read the scheduler's events.",
        is_hard=True,
        is_weak=True,
    ),
    Kind(
        "peer closed",
        "consequence",
        (
            r"Gloo .{0,400}(?:[Cc]onnection (?:closed|reset|timed out)|by peer|[Tt]imed out waiting)",
            r"NCCL WARN .{0,200}Connection closed by remote peer",
            r"due to async NCCL error: remote process exited",
            r"NCCL .{0,300}remote process exited",
        ),
        "Another process of a collective ended.",
        "Read the log of the rank that has no such line.",
        is_hard=True,
    ),
    Kind(
        "rendezvous",
        "root",
        (
            r"(?:been waiting for|Termination timeout for) `(?P<module>[^`\n]{1,300})`.{0,300}"
            r"Expected <expected> threads.{0,60}only <arrived> of them",
            r"(?:been waiting for|Termination timeout for) `(?P<module>[^`\n]{1,300})`.{0,300}"
            r"Expected <expected> threads",
            r"Termination timeout for `",
            r"may be stuck",
        ),
        "A thread did not enter a collective: an error elsewhere, a busy host, or different programs.",
        "Compare the programs of the ranks. Raise the timeout only if the log says that it went on.",
        is_weak=True,
    ),
    Kind(
        "nccl",
        "root",
        (
            r"NCCL operation (?P<module>[\w.]{1,60})\(.{0,300}failed",
            r"due to async NCCL error",
            r"NCCL (?:operation|error)",
        ),
        "NCCL could not connect, or lost a peer: the network interface, shared memory, memory or the driver.",
        "Set NCCL_DEBUG=WARN and NCCL_SOCKET_IFNAME, and enlarge /dev/shm.",
        is_hard=True,
        is_weak=True,
    ),
    Kind(
        "nccl warning",
        "root",
        (r"NCCL WARN",),
        "NCCL lacks something: the network interface, shared memory, memory or the driver.",
        "If the run ended here, set NCCL_SOCKET_IFNAME, and enlarge /dev/shm.",
        is_weak=True,
    ),
    Kind(
        "gpu fault",
        "root",
        (
            r"NVRM: Xid \([^)\n]{1,60}\): <xid>",
            r"CUDA_ERROR_(?P<module>ILLEGAL_ADDRESS|ILLEGAL_INSTRUCTION|LAUNCH_FAILED|LAUNCH_TIMEOUT|MISALIGNED_ADDRESS"
            r"|INVALID_PC|INVALID_ADDRESS_SPACE|HARDWARE_STACK_ERROR|ECC_UNCORRECTABLE|ASSERT|UNKNOWN)",
            r"CUDA error: (?P<module>an illegal memory access|unspecified launch failure)",
        ),
        "A kernel is wrong, or the GPU is broken; later CUDA errors follow from the first.",
        "Run again: if the same GPU fails, take it out of service (Xid 48, 79, 94); else bisect the kernel.",
        is_hard=True,
    ),
    Kind(
        "megascale hang",
        "root",
        (
            r"Mega[sS]cale (?:runtime )?detects a hang that is (?:likely )?caused by (?P<module>[\w ]{1,60}?)"
            r"(?: on the| in the|[.:\n]|$)",
            r"Mega[sS]cale (?:runtime )?detects a hang",
        ),
        "A slice stood still; the cause that is named may itself be a consequence.",
        "Look at the hosts that are named: their loader, their programs, and their network.",
        details=(
            r"culprit workers: (?P<culprits>[\w.,: -]{1,300})",
            r"hosts are: (?P<culprits>[\w.,: -]{1,300})",
        ),
        is_hard=True,
        is_weak=True,
    ),
    Kind(
        "megascale topology",
        "stall",
        (r"MegaScale Topology Discovery in progress\. Missing hosts",),
        "A slice never started, or its environment was set after JAX was imported.",
        "Start all slices, and set MEGASCALE_* before importing JAX.",
    ),
    Kind(
        "launch group",
        "root",
        (r"unexpected (?:peer|leader) shows up in the launch group",),
        "Hosts run different programs, or in another order.",
        "Use the same code, XLA_FLAGS and libtpu on all hosts, and call jitted functions in the same order.",
    ),
    Kind(
        "core halted",
        "root",
        (
            r"halted prematurely.{0,300}Node <node> halted unexpectedly",
            r"[Cc]ore halted unexpectedly",
            r"continuator has halted unexpectedly",
            r"observed errors are: \[(?P<module>[^\]\n]{1,60})\]",
            r"halted unexpectedly",
        ),
        "A core of the accelerator stopped: a kernel's check failed, or the hardware did.",
        "In a Pallas kernel, check waits of copies and indices; else retry, then replace the host.",
    ),
    Kind(
        "tpu in use",
        "root",
        (
            r"TPU is already in use(?: by process with pid <pid>)?",
            r"libtpu\.so (?:is )?already in use",
            r"/dev/vfio/\d{1,4}.{0,60}Device or resource busy",
            r"open\(/dev/(?:accel|vfio).{0,60}Device or resource busy",
        ),
        "Another process holds the TPU.",
        "End that process, and remove /tmp/libtpu_lockfile if none is left.",
    ),
    Kind(
        "tpu start",
        "stall",
        (r"TPU backend initialization is taking more than <seconds>",),
        "Not all hosts run the program.",
        "Start it on all hosts of the slice.",
    ),
    Kind(
        "serving wrapper",
        "consequence",
        (
            r"EngineCore encountered a fatal error",
            r"Engine core initialization failed",
            r"EngineDeadError",
            r"Scheduler hit an exception",
            r"Worker failed with error",
        ),
        "A process of the server ended with an exception.",
        "Read the exception inside its traceback.",
    ),
    Kind(
        "time limit",
        "root",
        (r"DUE TO TIME LIMIT",),
        "The scheduler ended the job at its time limit.",
        "Ask for more time, or save checkpoints before it.",
        is_hard=True,
    ),
    Kind(
        "scheduler",
        "consequence",
        (
            r"task <rank>: .{0,60}[Ee]xited with exit code <exit_code>",
            r"srun: error: ",
            r"CANCELLED AT",
            r"ActorDiedError",
            r"[Ee]xit(?:ed)?(?: with)?(?: exit)? ?(?:[Cc]ode|status)\W{0,3}(?!0\b)<exit_code>\b",
        ),
        "A process of the job ended.",
        "Read the log of that task.",
        is_hard=True,
    ),
    Kind(
        "system limit",
        "root",
        (
            r"Too many open files",
            r"[Rr]esource temporarily unavailable",
            r"[Cc]an't start new thread",
            r"[Cc]annot allocate memory",
        ),
        "A limit of the operating system is reached: files, threads or memory of the host.",
        "Raise `ulimit -n` or `ulimit -u`, or open fewer.",
    ),
)
"""Kinds of lines about the processes of a job."""
