"""Lines of logs, as JAX and XLA wrote them."""

_ADVICE = " You probably want to enrich the sharding annotations to prevent this from happening."
_LAST_RESORT = (
    " As the last resort, SPMD will replicate the tensor and then partition it to obtain the target sharding, which"
    " is inefficient."
)
_OLD = "[spmd] Involuntary full rematerialization. The compile{} was not able to go from sharding"
_FULL = " without doing a full rematerialization of the tensor"
_NEW = "[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding"
_TILES = " {devices=[2,1,4]<=[4,2]T(1,0)} to {devices=[1,8,1]<=[8]}"
_NAMED = " {mesh['x'=4,'y'=2], [{'y'}, {}, {'x'}]} to {mesh['x'=4,'y'=2], [{}, {'x', 'y'}, {}]}"
_OPERATION = (
    "%add.3 = f32[8,16,4]{2,1,0} add(%param, %param), sharding={devices=[2,1,4]<=[4,2]T(1,0)}, metadata="
)

WORDINGS = {
    # JAX 0.3, and its typing error.
    "2022": "2022-09-16 03:44:56.770168: E external/org_tensorflow/tensorflow/compiler/xla/service/spmd/"
    f"spmd_partitioner.cc:509] {_OLD.format('d')}{_TILES}{_FULL}.{_ADVICE}",
    "0.4.28": f"E0531 10:54:04.832741 2609008 spmd_partitioner.cc:569] {_OLD.format('r')}{_TILES}{_FULL}.{_ADVICE}",
    "0.4.38": "2026-11-22 17:39:44.432495: E external/xla/xla/service/spmd/spmd_partitioner.cc:613] "
    f"{_OLD.format('r')}{_TILES}{_FULL} for HLO operation: "
    f'{_OPERATION}{{op_name="jit(two)/jit(main)/add" source_file="/home/me/train.py" source_line=13}}.{_ADVICE}',
    "0.7.2": f"W1122 17:39:49.361057    2965 spmd_partitioner.cc:645] {_NEW}{_TILES} efficiently for HLO operation "
    f'{_OPERATION}{{op_name="jit(two)/add" source_file="/home/me/train.py" source_line=13 source_end_line=13'
    f" source_column=8 source_end_column=8}}.{_LAST_RESORT}",
    "0.10.2": f"W1122 17:39:56.673246    3133 spmd_partitioner.cc:656] {_NEW}{_TILES} efficiently for HLO"
    f' operation {_OPERATION}{{op_name="jit(two)/add" stack_frame_id=2}}.{_LAST_RESORT}',
    "0.12.0.1": f"W1122 17:40:02.035764    3177 spmd_partitioner.cc:666] {_NEW}{_NAMED} efficiently for HLO"
    f' operation {_OPERATION}{{op_name="jit(two)/add" stack_frame_id=2}}.{_LAST_RESORT}',
}
"""The same rematerialization in the wording of each version."""

REMATERIALIZATION = WORDINGS["0.12.0.1"]

DONATIONS = {
    "0.4.38": "train.py:3: UserWarning: Some donated buffers were not usable: ShapedArray(float32[8,64]),"
    " ShapedArray(int32[], weak_type=True).\nSee an explanation at https://jax.readthedocs.io/en/latest/faq.html"
    '#buffer-donation.\n  warnings.warn("Some donated buffers were not usable:"\n',
    "0.12.0.1": "train.py:3: UserWarning: Some donated buffers were not usable: float32[8,64], int32[].\nSee an"
    " explanation at https://docs.jax.dev/en/latest/201/jit.html#jax-201-buffer-donation.\n"
    '  warnings.warn("Some donated buffers were not usable:"\n',
}
"""JAX's warning and the line of its source that Python prints below, by version."""

REFUSED = """jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 19.32G of 15.75G hbm. Exceeded hbm capacity by 3.57G.

Total hbm usage >= 19.57G:
    reserved        258.00M
    program          19.32G
    arguments            0B

Output size 0B; shares 0B with arguments.

Program hbm requirement 19.32G:
    global            64.0K
    HLO temp         19.32G (99.3% utilization: Unpadded (18.00G) Padded (18.00G), 0.7% fragmentation (1.32G))

  Largest program allocations in hbm:

  1. Size: 12.00G
     Operator: op_name="jit(step)/jit(main)/attn/dot_general" source_file="/home/me/model.py" source_line=41
     Shape: f32[48,8192,8192]{2,1,0:T(8,128)}
     Unpadded size: 12.00G
     XLA label: fusion.7 = fusion(param.1, param.2), kind=kOutput, calls=fused_computation.7
     Allocation type: HLO temp
     ==========================

  2. Size: 3.00G
     Operator: op_name="jit(step)/jit(main)/mlp/add" source_file="/home/me/model.py" source_line=58
     Shape: bf16[24,8192,8192]{2,1,0:T(8,128)(2,1)}
     Unpadded size: 3.00G
     XLA label: add.3 = add(fusion.7, param.3)
     Allocation type: HLO temp
     ==========================

  3. Size: 3.00G
     Operator: op_name="jit(step)/jit(main)/mlp/add" source_file="/home/me/model.py" source_line=58
     Shape: bf16[24,8192,8192]{2,1,0:T(8,128)(2,1)}
     Unpadded size: 3.00G
     XLA label: add.4 = add(add.3, param.3)
     Allocation type: HLO temp
     ==========================

"""
"""XLA's refusal of a program for TPUs, as the end of a traceback."""

FAILED_ON_GPU = """RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869100 bytes.
BufferAssignment OOM Debugging.
BufferAssignment stats:
             parameter allocation:    1.00GiB
              constant allocation:         0B
        maybe_live_out allocation:    4.00GiB
     preallocated temp allocation:   16.00GiB
  preallocated temp fragmentation:         0B (0.00%)
                 total allocation:   21.00GiB
              total fragmentation:       112B (0.00%)
Peak buffers:
\tBuffer 1:
\t\tSize: 16.00GiB
\t\tOperator: op_name="jit(loss)/jit(main)/dot_general" source_file="/home/me/loss.py" source_line=9
\t\tXLA Label: fusion
\t\tShape: f32[65536,65536]
\t\t==========================

\tBuffer 2:
\t\tSize: 1.00GiB
\t\tEntry Parameter Subshape: bf16[8192,65536]
\t\t==========================

\tBuffer 3:
\t\tSize: 16B
\t\tXLA Label: custom-call
\t\tShape: (f32[65536,65536], s8[4194304])
\t\t==========================

"""
"""A failed allocation of a program on a GPU, with XLA's assignment of its buffers."""

ALLOCATOR = """2026-11-22 07:02:44.349554: W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 16.00GiB (rounded to 17179869184)requested by op
2026-11-22 07:02:44.349830: I external/xla/xla/tsl/framework/bfc_allocator.cc:1087]   Size: 2.79GiB | Requested Size: 0B | in_use: 0 | bin_num: 20
2026-11-22 07:02:44.349931: I external/xla/xla/tsl/framework/bfc_allocator.cc:1163] Stats:
Limit:                     25769803776
InUse:                     15032385536
MaxInUse:                  20401094656
"""
"""The warning of the allocator for GPUs before a failed allocation, with its statistics."""

FAILED_ON_TPU = (
    "ValueError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 2.00G. That was not"
    " possible. There are 1.10G free.; (0x0x0_HBM0)"
)
"""A failed allocation of an array on a TPU."""

_HEAD = """  cumulative_size;       size;       offset; used_by_n_values; shapes_list
  ------------------------------------------------------------
"""
USAGE = f"""E1126 11:28:54.535225   27142 deepsea_compiler_base.cc:3582] XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 19.32G of 15.75G hbm. Exceeded hbm capacity by 3.57G. HLO module: jit_step. Memory usage report:{" "}

Memory Space: default (color=0)
Total bytes: 20744692736 (19.32GiB)
{_HEAD}   12.00GiB( 80%);   12.00GiB;            0;                5; 5×f32[48,8192,8192]
   15.00GiB( 99%);    3.00GiB;  12884901888;                3; pred[], 2×bf16[24,8192,8192], s32[4,4]
   15.00GiB(100%);       512B;  16106127360;                1; (bf16[24,8192,8192], /*index=1*/(u32[], u32[]))

{_HEAD}    4.00GiB(100%);    4.00GiB;            0;                1; f32[16,8192,8192]


Memory Space: vmem (color=1)
Total bytes: 100663296 (96.00MiB)
{_HEAD}   96.00MiB(100%);   96.00MiB;            0;                1; f32[3,8192,1024]


"""
"""libtpu's table of the buffers of a program that does not fit, which precedes the error of JAX 0.12."""

REFUSED_AFTER_USAGE = (
    "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total"
    " memory required for HLO temporaries (19.32G) exceeds available HBM (15.75G). HLO module: jit_step.\n"
    "See https://openxla.org/xla/errors/error_1000 for more details.\n"
)
