"""Kinds of lines about programs: errors that JAX raises, the compiler's, and warnings."""

from __future__ import annotations

from .kinds import Kind

PROGRAM_KINDS = (
    Kind(
        "storage",
        "root",
        (
            r"HTTP response code: (?![23])<status>",
            r"No space left on device",
            r"Disk quota exceeded",
            r"ENOSPC",
        ),
        "The storage refused: its rate limit, or a full disk. It is not the memory of the device.",
        "Write fewer, larger files; free the disk.",
    ),
    Kind(
        "input pipeline",
        "root",
        (
            r"DataLoader worker \(pid\(?s?\)? <pid>",
            r"DataLoader worker",
            r"load_next_batch\(\) failed",
        ),
        "The loader ended: host memory, or the end of the data in one rank.",
        "Look for the OOM killer, and give each rank equally many batches.",
    ),
    Kind(
        "callback",
        "root",
        (r"(?:Cpu|Gpu|Xla|Py)?Callback error calling callback", r"calling callback: Traceback"),
        "A callback of the program raised.",
        "Mend the exception at the end of the callback's traceback.",
        details=(
            r"^(?P<said>(?:[A-Za-z_]\w{0,60}\.){0,9}[A-Z]\w{0,60}(?:Error|Exception): "
            r"(?!INTERNAL)[^\n]{1,300})",
        ),
    ),
    Kind(
        "donated twice",
        "root",
        (
            r"donate the same buffer twice.{0,60}\(flattened argument <argument>.{0,80}first use: <first>\)",
            r"donate the same buffer twice",
        ),
        "One array is in two donated leaves.",
        "Copy one of the two leaves.",
    ),
    Kind(
        "donated and used",
        "root",
        (
            r"previously donated in the same call.{0,60}\(flattened argument <argument>"
            r".{0,80}first use: <first>\)",
            r"previously donated in the same call",
        ),
        "An array is donated and passed a second time in the same call.",
        "Copy it, or do not donate it.",
    ),
    Kind(
        "deleted array",
        "root",
        (
            r"Array has been deleted with shape=(?P<module>[\w\[\],]{1,100})",
            r"(?:[Aa]rray|[Bb]uffer) has been deleted or donated",
            r"[Aa]rray has been deleted",
            r"called on deleted or donated buffer",
        ),
        "An array is used after it was donated or deleted.",
        "Use the result of the call that donated it, or do not donate it.",
    ),
    Kind(
        "unused donation",
        "warning",
        (r"Some donated buffers were not usable",),
        "No output has the type and the sharding of a donated argument.",
        "Do not donate it, or return an output of the same type and sharding.",
        category="unused donation",
    ),
    Kind(
        "leaked tracer",
        "root",
        (
            r"Encountered an unexpected tracer",
            r"Leaked trace ",
            r"UnexpectedTracerError",
        ),
        "A value of a traced function was stored outside it.",
        "Return the value; jax.checking_leaks finds the place.",
        details=(r"created on line (?P<module>[^\n]{1,300}?)\.?\s*$",),
    ),
    Kind(
        "concrete value needed",
        "root",
        (
            r"Tracer\w{1,20}ConversionError",
            r"ConcretizationTypeError",
            r"TraceContextError",
            r"Abstract tracer value encountered where concrete",
        ),
        "Python needs the value of a traced array, as in an `if`.",
        "Use jax.lax.cond or jnp.where, or make the argument static by its name.",
        details=(r"depends on the values? of the arguments? (?P<argument>\w{1,100})",),
    ),
    Kind(
        "incompatible devices",
        "root",
        (r"Received incompatible devices for jitted computation",),
        "Arguments of a jitted function are committed to different devices.",
        "Put all of them on the mesh with jax.device_put.",
    ),
    Kind(
        "carry type",
        "root",
        (
            r"carry input and carry output must have equal types",
            r"branches must have equal output types",
            r"must have equal types, but they differ",
        ),
        "The types of a carry or of branches differ, often only in their sharding.",
        "Reshard the initial value, or the result of the body.",
    ),
    Kind(
        "mesh mismatch",
        "root",
        (r"context mesh .{0,400}should match the aval mesh", r"should match the aval mesh"),
        "An array is on another mesh, or on one with other axis types, than the context mesh.",
        "Put it on the context mesh with jax.device_put, or use one mesh.",
    ),
    Kind(
        "varying value",
        "root",
        (
            r"only varying across mesh axes",
            r"require replication which can't be statically inferred",
        ),
        "A result of shard_map differs by device but is declared replicated.",
        "Reduce it with jax.lax.psum, or name the axis in out_specs.",
    ),
    Kind(
        "not divisible",
        "root",
        (
            r"partitioned <shards> times, but does not evenly divide the dimension size <size>",
            r"does not evenly divide the dimension size <size>",
            r"its dimension <dimension> should be divisible by <shards>, but it is equal to <size>",
            r"not evenly divisible by the corresponding mesh axis sizes",
        ),
        "A mesh axis does not divide an array axis.",
        "Pad the array, or shard another axis.",
    ),
    Kind(
        "sharding type",
        "root",
        (r"ShardingTypeError",),
        "The sharding of a result is ambiguous or not possible, on a mesh with Explicit axes.",
        "Name the sharding of the result with out_sharding=, or reshard an operand. "
        "explain_errors prints the edit.",
    ),
    Kind(
        "non-addressable array",
        "root",
        (r"spans non-addressable \(non process local\) devices",),
        "A process reads an array that has parts in other processes.",
        "Use multihost_utils.process_allgather, or addressable_shards.",
    ),
    Kind(
        "not a number",
        "root",
        (
            r"FloatingPointError: [Ii]nvalid value \((?:nan|inf)\) encountered in (?P<module>\S{1,60})",
            r"FloatingPointError: ",
        ),
        "A computation returned NaN: a division, a logarithm, or the range of the dtype.",
        "Look at the line at the top of the callstack; checkify checks it inside jit.",
    ),
    Kind(
        "nan loss",
        "warning",
        (r"(?i:\bloss\b)['\"]?[ =:]{1,3}\[?nan\b",),
        "The loss is NaN from this line on.",
        "Set jax_debug_nans for the step before it.",
    ),
    Kind(
        "checkify",
        "root",
        (r"checkify\.JaxRuntimeError",),
        "A check of the program failed.",
        "Read the message of the check.",
    ),
    Kind(
        "checkpoint structure",
        "root",
        (
            r"[Tt]ree structures? (?:do not|does not|don't) match",
            r"cannot reshape array of size <size> into shape",
            r"User-provided restore item and on-disk value metadata tree structures do not match",
        ),
        "The checkpoint was saved by other code, or on another number of devices.",
        "Restore it with an abstract target that has the shapes and shardings of now.",
    ),
    Kind(
        "kernel compilation",
        "root",
        (r"Mosaic failed to compile TPU kernel",),
        "The compiler of Pallas kernels refused one.",
        "Align the slices to the tiling, and look at the location that follows.",
    ),
    Kind(
        "compiler bug",
        "root",
        (r"RET_CHECK failure",),
        "The compiler failed a check of its own.",
        "Reduce the program, and report it with the whole line.",
    ),
    Kind(
        "argument size",
        "root",
        (
            r"expected parameter <parameter> of size <expected_nbytes> "
            r".{0,200}incompatible size <got_nbytes>",
            r"got buffer with incompatible size",
        ),
        "A program is called with a buffer of another layout: of other flags, or another libtpu.",
        "Compile it with the flags and the version that run it.",
    ),
    Kind(
        "host offload",
        "root",
        (r"moved to host .{0,200}is returned from the entry computation",),
        "A value that was offloaded to the host is an output.",
        "Set out_shardings with its memory_kind, or move it back.",
    ),
    Kind(
        "version mismatch",
        "root",
        (
            r"jaxlib version [\w.]{1,30} is .{0,60}incompatible",
            r"requires jaxlib version",
        ),
        "jax and jaxlib do not belong together.",
        "Install matching versions.",
    ),
    Kind(
        "cpu fallback",
        "warning",
        (r"Falling back to cpu",),
        "JAX runs on the CPU, since the plugin of the accelerator is missing or failed.",
        "Install it; JAX_PLATFORMS=cuda makes its absence an error.",
    ),
    Kind(
        "slow compilation",
        "warning",
        (
            r"Very slow compile\?",
            r"Constant folding an instruction is taking > <seconds>s",
            r"^The operation took (?P<took>[\dhms.]{1,30})",
        ),
        "The compiler takes long: unrolled loops, or large constants.",
        "Use jax.lax.scan, and pass constants as arguments.",
        details=(r"Compiling module (?P<module>[\w.]{1,100})",),
    ),
    Kind(
        "captured constants",
        "warning",
        (
            r"large amount of constants were captured during lowering \(<total_nbytes> total\)",
            r"constants were captured during lowering",
        ),
        "Arrays that a jitted function closes over are constants of its program.",
        "Pass them as arguments. JAX_CAPTURED_CONSTANTS_REPORT_FRAMES=-1 names their lines.",
    ),
    Kind(
        "compilation cache",
        "warning",
        (r"[Ee]rror (?:reading|writing) persistent compilation cache entry",),
        "An entry of the compilation cache is of another version or machine.",
        "Delete the entry.",
    ),
    Kind(
        "full rematerialization",
        "warning",
        (r"Involuntary full rematerialization", r"Falling back to replicated execution"),
        "XLA has no direct way from one sharding to another, and replicates the value.",
        "Reshard it in steps that move one mesh axis each: constrain it to a sharding in between first.",
        category="full replication",
    ),
    Kind(
        "segmentation fault",
        "root",
        (
            r"Fatal Python error: (?:Segmentation fault|Bus error|Illegal instruction)",
            r"\*\*\* SIG(?:SEGV|BUS|ILL|FPE)",
            r"(?:^|: line \d{1,9}: +\d{1,9} )Segmentation fault(?: +\(core dumped\))?(?: {4,}|$)",
            r"(?:^|: line \d{1,9}: +\d{1,9} )Bus error(?: +\(core dumped\))?(?: {4,}|$)",
            r"(?:^|: line \d{1,9}: +\d{1,9} )Illegal instruction(?: +\(core dumped\))?(?: {4,}|$)",
            r"(?:^|: line \d{1,9}: +\d{1,9} )Floating point exception(?: +\(core dumped\))?(?: {4,}|$)",
        ),
        "Native code crashed.",
        "Bisect the extension modules, from the first File line of the current thread.",
        is_hard=True,
    ),
    Kind(
        "check failed",
        "root",
        (r"Check failed: (?P<module>[^\n]{1,300})",),
        "A check in native code failed: a bug, or a lock that another process holds.",
        "Report it with the whole line.",
        is_hard=True,
    ),
    Kind(
        "abort",
        "consequence",
        (
            r"Fatal Python error: Aborted",
            r"\*\*\* SIGABRT",
            r"\*\*\* Check failure stack trace",
            r"(?:^|: line \d{1,9}: +\d{1,9} )Aborted(?: +\(core dumped\))?(?: {4,}|$)",
        ),
        "The process ended itself after a fatal line.",
        "Read the fatal line before it.",
        is_hard=True,
    ),
)
"""Kinds of lines about programs."""
