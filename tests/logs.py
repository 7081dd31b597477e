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
