"""Samples of all kinds of lines in logs."""

from tests.core.jobs.logs.memory_samples import MEMORY_SAMPLES
from tests.core.jobs.logs.sample import GIB, Sample

_CLIQUE = "acquire clique for rank 3; clique=devices=[0,1,2,3]; stream=0; run_id=1"
_BUSY = "Device or resource busy"
_BACKEND = "RuntimeError: Unable to initialize backend 'tpu': "

SAMPLES = (
    *MEMORY_SAMPLES,
    # Processes of a job.
    Sample("never registered", "never-registered.log"),
    Sample("never registered", "never-registered-2.log"),
    Sample("never registered", "never-registered-3.log"),
    Sample("barrier", "barrier.log", {"module": "Shutdown::24::0", "arrived": 1, "expected": 3}),
    Sample("barrier", "barrier-2.log", {"module": "restore_complete::0", "arrived": 703, "expected": 704}),
    Sample("barrier", "barrier-3.log", {"module": "Shutdown::1", "arrived": 1, "expected": 704}),
    Sample(
        "missed heartbeats",
        "jax.errors.JaxRuntimeError: UNAVAILABLE: Task 3 heartbeat timeout. This indicates that the remote task has"
        " failed, got preempted, or crashed unexpectedly.",
        {"rank": 3},
    ),
    Sample(
        "missed heartbeats",
        "E0502 08:11:41.120455    1201 coordination_service_agent.cc:238] Task /job:jax_worker/replica:0/task:3"
        " heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed.",
        {"rank": 3},
    ),
    Sample(
        "missed heartbeats",
        "E0502 08:11:41.120455    1201 coordination_service_agent.cc:238] INTERNAL: The following tasks are unhealthy"
        " (stopped sending heartbeats):\n/job:jax_worker/replica:0/task:3\nThe tasks have crashed.",
    ),
    Sample("coordinator gone", "coordinator-gone.log"),
    Sample(
        "restarted rank",
        "jax.errors.JaxRuntimeError: ABORTED: /job:jax_worker/replica:0/task:2 unexpectedly tried to connect with a"
        " different incarnation. It has likely restarted.",
        {"rank": 2},
    ),
    Sample(
        "restarted rank",
        "E0502 08:11:41.1 1201 coordination_service_agent.cc:238] ABORTED: Leader incarnation ID mismatch: the leader"
        " task has restarted.",
    ),
    Sample("preemption poller", "preemption-poller.log"),
    Sample("termination signal", "termination-signal.log"),
    Sample("termination signal", "Terminated"),
    Sample(
        "peer closed",
        "ValueError: UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Connection closed"
        " by peer [127.0.0.1]:54401",
    ),
    Sample(
        "peer closed",
        "ValueError: UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:538] Read error"
        " [127.0.0.1]:45267: Connection reset by peer",
    ),
    Sample("peer closed", "peer-closed.log"),
    Sample(
        "peer closed",
        "jax.errors.JaxRuntimeError: INTERNAL: NCCL operation ncclAllReduce failed due to async NCCL error: remote"
        " process exited or there was a network error.",
    ),
    Sample("rendezvous", "rendezvous.log", {"module": _CLIQUE, "expected": 4}),
    Sample(
        "rendezvous",
        "rendezvous-2.log",
        {
            "module": "acquire clique for rank 3; clique=devices=[0,1,2,3,4,5,6,7]; stream=0; run_id=1893217",
            "expected": 8,
            "arrived": 7,
        },
    ),
    Sample("nccl", "nccl.log", {"module": "ncclCommInitRank"}, line=2),
    Sample("nccl", "nccl-2.log", {"module": "ncclCommInitRank"}),
    Sample("nccl warning", "node03:275204:275658 [4] NCCL WARN Cuda failure 'out of memory'"),
    Sample("gpu fault", "gpu-fault.log", {"module": "ILLEGAL_ADDRESS"}),
    Sample("gpu fault", "gpu-fault-2.log", {"xid": 79}),
    Sample(
        "gpu fault",
        "jax.errors.JaxRuntimeError: INTERNAL: CUDA error: Failed to end stream capture: CUDA_ERROR_LAUNCH_FAILED:"
        " unspecified launch failure",
        {"module": "LAUNCH_FAILED"},
    ),
    Sample("megascale hang", "megascale-hang.log", {"module": "data input stall", "culprits": "worker-12"}),
    Sample("megascale hang", "megascale-hang-2.log"),
    Sample("megascale topology", "megascale-topology.log"),
    Sample("launch group", "launch-group.log"),
    Sample(
        "launch group",
        "jax.errors.JaxRuntimeError: INTERNAL: An unexpected leader shows up in the launch group with a different"
        " launch id than the current group leader.",
    ),
    Sample("core halted", "core-halted.log"),
    Sample("core halted", "core-halted-2.log", line=3),
    Sample("core halted", "core-halted-3.log", {"node": 0}),
    Sample(
        "core halted",
        "F0920 09:00:00.000001     700 tpu_runtime.cc:88] !!!! FATAL ERROR !!!! observed errors are: [Hardware]",
        {"module": "Hardware"},
    ),
    Sample("tpu in use", "tpu-in-use.log", {"pid": 1234}),
    Sample("tpu in use", "tpu-in-use-2.log"),
    Sample("tpu in use", f"{_BACKEND}ABORTED: libtpu.so is already in use by another process."),
    Sample("tpu in use", f"{_BACKEND}INTERNAL: open(/dev/accel0): {_BUSY}"),
    Sample(
        "tpu start",
        "/venv/lib/python3.12/site-packages/jax/_src/xla_bridge.py:230: UserWarning: TPU backend initialization is"
        " taking more than 60.0 seconds. Did you run your code on all TPU hosts?",
        {"seconds": 60},
    ),
    Sample(
        "serving wrapper", "ray.exceptions.RayTaskError: EngineDeadError: EngineCore encountered an issue."
    ),
    Sample("serving wrapper", "RuntimeError: Engine core initialization failed. See root cause above."),
    Sample("serving wrapper", "ERROR 10-06 07:11:37 [core.py:710] EngineCore encountered a fatal error."),
    Sample("time limit", "time-limit.log", line=2),
    Sample(
        "process ended",
        "srun: error: node03: task 3: Exited with exit code 1",
        {"ranks": 3, "exit_code": 1},
    ),
    Sample(
        "process ended",
        "srun: error: node[1-2]: tasks 0-2,5: Segmentation fault (core dumped)",
        {"ranks": "0-2,5", "signal": "Segmentation fault"},
    ),
    Sample(
        "process ended",
        "jai-cli run: process 2 of 4 was killed by SIGKILL",
        {"rank": 2, "signal": "SIGKILL"},
    ),
    Sample(
        "process ended",
        "jai-cli run: process 2 of 4 failed with exit code 3",
        {"rank": 2, "exit_code": 3},
    ),
    Sample(
        "process ended",
        "mpirun noticed that process rank 2 with PID 0 on node n01 exited on signal 9 (Killed).",
        {"rank": 2, "signal": 9},
    ),
    Sample(
        "process ended",
        "  Process name: [[57402,1],2]\n  Exit code:    3",
        {"rank": 2, "exit_code": 3},
    ),
    Sample(
        "process ended",
        "=   RANK 2 PID 4174 RUNNING AT n01\n=   KILLED BY SIGNAL: 9 (Killed)",
        {"rank": 2, "signal": 9},
    ),
    Sample(
        "process ended",
        "Root Cause (first observed failure):\n[0]:\n  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 4174)",
        {"rank": 3, "exit_code": -9},
    ),
    Sample("timed out", "jai-cli run: timed out after 14 s (--timeout)", {"seconds": 14}),
    Sample("stack", "Current thread 0x00007fa02e0f1b80 (most recent call first):"),
    Sample(
        "collective mismatch",
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail at"
        " pair.cc:459] op.preamble.length <= op.nbytes. 2048 vs 4. Received data size doesn't match expected size.",
        {"sent": 2048, "expected": 4},
        line=2,
    ),
    Sample(
        "port in use",
        "E1129 03:15:30.860433   31624 add_port.cc:83] Failed to add port to server: Error in bind for address"
        " '[::]:39911': Address already in use",
    ),
    Sample("port in use", "OSError: [Errno 98] Address already in use"),
    Sample(
        "scheduler", "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."
    ),
    Sample("system limit", "system-limit.log"),
    Sample("system limit", "RuntimeError: can't start new thread"),
    Sample("system limit", "BlockingIOError: [Errno 11] Resource temporarily unavailable"),
    Sample(
        "ranks out of step",
        "AssertionError: sync_global_devices name mismatch ('save'). Expected [1843 1843 977] got [1843 1843 1843]",
    ),
    # Programs.
    Sample("storage", "storage.log", {"status": 429}),
    Sample("storage", "storage-2.log"),
    Sample(
        "input pipeline",
        "RuntimeError: DataLoader worker (pid 4321) is killed by signal: Killed.",
        {"pid": 4321},
    ),
    Sample(
        "input pipeline",
        "RuntimeError: DataLoader worker (pid(s) 4321, 4322) exited unexpectedly",
        {"pid": 4321},
    ),
    Sample("input pipeline", "RuntimeError: load_next_batch() failed"),
    Sample("callback", "callback.log"),
    Sample("donated twice", "donated-twice.log", {"argument": 992, "first": 991}),
    Sample("donated twice", "donated-twice-2.log", {"argument": 49, "first": 30}),
    Sample("donated and used", "donated-and-used.log", {"argument": 1, "first": 0}),
    Sample("deleted array", "deleted-array.log", {"module": "float32[8,8]"}),
    Sample("deleted array", "RuntimeError: INVALID_ARGUMENT: Buffer has been deleted or donated."),
    Sample(
        "deleted array",
        "RuntimeError: INVALID_ARGUMENT: BlockHostUntilReady() called on deleted or donated buffer",
    ),
    Sample("unused donation", "unused-donation.log"),
    Sample("leaked tracer", "leaked-tracer.log", {"module": "/home/u/m.py:14:8 (f)"}),
    Sample("leaked tracer", "leaked-tracer-2.log", {"module": "/home/u/m.py:14:8 (f)"}),
    Sample(
        "concrete value needed",
        "jax.errors.TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[].\n"
        "The error occurred while tracing the function f at /home/u/m.py:3 for jit. This concrete value was not"
        " available in Python because it depends on the value of the argument x.",
        {"argument": "x"},
    ),
    Sample(
        "concrete value needed",
        "jax.errors.ConcretizationTypeError: Abstract tracer value encountered where concrete value is expected:"
        " traced array with shape int32[]",
    ),
    Sample(
        "concrete value needed",
        "flax.errors.TraceContextError: Cannot mutate 'Param' from different trace level",
    ),
    Sample("incompatible devices", "incompatible-devices.log"),
    Sample("carry type", "carry-type.log"),
    Sample("carry type", "TypeError: cond branches must have equal output types but they differ."),
    Sample(
        "mesh mismatch",
        "ValueError: For primitive dot_general, context mesh AbstractMesh('x': 4, axis_types=(Auto,)) should match the"
        " aval mesh AbstractMesh('y': 4, axis_types=(Explicit,)) for shape float32[8,8].",
    ),
    Sample("varying value", "varying-value.log"),
    Sample("not divisible", "not-divisible.log", {"dimension": 0, "shards": 4, "size": 6}),
    Sample(
        "not divisible",
        "jax.errors.IndivisibleError: One of device_put args was given the sharding of NamedSharding(mesh=Mesh('x':"
        " 4), spec=P('x',)), which implies that the array axis 0 is partitioned 4 times, but does not evenly divide"
        " the dimension size 6. Got shape: (6,)",
        {"shards": 4, "size": 6},
    ),
    Sample("sharding type", "sharding-type.log"),
    Sample("sharding type", "sharding-type-2.log", line=11),
    Sample("closed-over array", "closed-over-array.log", line=12),
    Sample("non-addressable array", "non-addressable-array.log"),
    Sample("not a number", "not-a-number.log", {"module": "mul"}),
    Sample("nan loss", "nan-loss.log", line=2),
    Sample("nan loss", "{'step': 1201, 'loss': nan}"),
    Sample("checkify", "checkify.log"),
    Sample(
        "checkpoint structure",
        "ValueError: User-provided restore item and on-disk value metadata tree structures do not match: {'a': 1}",
    ),
    Sample(
        "checkpoint structure",
        "ValueError: cannot reshape array of size 4096 into shape (8,64)",
        {"size": 4096},
    ),
    Sample("kernel compilation", "kernel-compilation.log"),
    Sample(
        "compiler bug",
        "jax.errors.JaxRuntimeError: INTERNAL: RET_CHECK failure (third_party/xla/service/copy_insertion.cc:99)"
        " value != nullptr",
    ),
    Sample(
        "argument size",
        "argument-size.log",
        {"parameter": 2482, "expected_nbytes": 5242880, "got_nbytes": 1638400},
    ),
    Sample(
        "host offload",
        "jax.errors.JaxRuntimeError: INVALID_ARGUMENT: E1200: Tensor which is moved to host (starting from"
        " copy-start.1) is returned from the entry computation but the layout for this output is not set to host.",
    ),
    Sample(
        "version mismatch",
        "RuntimeError: jaxlib version 0.4.20 is newer than and incompatible with jax version 0.4.10. Please update.",
    ),
    Sample("version mismatch", "RuntimeError: jax 0.12.0 requires jaxlib version >= 0.12.0, found 0.11.2."),
    Sample("cpu fallback", "cpu-fallback.log"),
    Sample("slow compilation", "slow-compilation.log", {"took": "2m12.850942799s", "module": "jit_step"}),
    Sample("slow compilation", "slow-compilation-2.log", {"seconds": 1}),
    Sample("captured constants", "captured-constants.log", {"total_nbytes": 125 * GIB}),
    Sample("compilation cache", "compilation-cache.log"),
    Sample("full rematerialization", "full-rematerialization.log"),
    Sample("full rematerialization", "full-rematerialization-2.log"),
    Sample("full rematerialization", "full-rematerialization-3.log"),
    # Crashes.
    Sample("segmentation fault", "segmentation-fault.log"),
    Sample("segmentation fault", "segmentation-fault-2.log"),
    Sample(
        "segmentation fault", "run.sh: line 3:  4123 Segmentation fault      (core dumped) python train.py"
    ),
    Sample("segmentation fault", "Fatal Python error: Bus error"),
    Sample("segmentation fault", "Floating point exception (core dumped)"),
    Sample("check failed", "check-failed.log", {"module": "a == b (1 vs. 2) layouts differ"}),
    Sample("abort", "abort.log"),
    Sample("abort", "Aborted (core dumped)"),
)
"""At least one sample of each kind."""
