"""Kinds of errors that JAX raises on shardings, meshes and devices: message, rule and recipes for edits."""

from __future__ import annotations

from .devices import (
    closed_over,
    copied,
    deleted,
    different_devices,
    divisors,
    donated_twice,
    gathered,
    in_other_processes,
    indivisible,
    leaked,
    moved,
    outside_the_mesh,
)
from .kind import Facts, Kind, in_the_function, with_arrays, with_the_spec
from .loops import at_the_start, started
from .recipes import (
    agreed,
    as_another,
    as_wanted,
    broadcast_as_another,
    contracted,
    given,
    indexed,
    loosened,
    mapped_alike,
    repeated,
    replicated,
    reshaped,
    unsharded,
    updated,
)
from .rewrites import (
    as_varying,
    each_once,
    keyword_renamed,
    of_the_mesh,
    of_the_rank,
    on_the_context_mesh,
    reduced_over_shards,
    reduced_result,
    resharded_result,
    respecified,
    rewritten,
)

_LOOP = (
    r"(?P<primitive>scan|while_loop|fori_loop) body function carry input and carry output must have equal "
)
_CARRY = _LOOP + r"types.*?The input carry (?:component )?(?P<path>\S+) has type"

KINDS: tuple[Kind, ...] = (
    Kind(
        name="incompatible operands",
        pattern=r"(?P<primitive>\w+) got incompatible shardings for broadcasting",
        rule="{call} needs operands that are sharded alike along each dimension",
        recipes=(broadcast_as_another, loosened, replicated),
    ),
    Kind(
        name="illegal contraction",
        pattern=r"(?P<primitive>dot_general) operation with .* illegally sharded result: (?P<shown>\S+)",
        rule="{call} would have the type {shown}, but a mesh axis can shard only one dimension",
        recipes=(contracted, loosened, replicated),
    ),
    Kind(
        name="illegal result",
        pattern=r"(?P<primitive>\w+) operation with inputs.* illegally sharded result: (?P<shown>\S+)",
        rule="{call} would have the type {shown}, but a mesh axis can shard only one dimension",
        recipes=(broadcast_as_another, loosened, replicated),
    ),
    Kind(
        name="ambiguous contraction",
        pattern=r"Contracting dimensions are sharded and it is ambiguous",
        rule="{call} contracts a sharded dimension, so the sharding of its result must be given",
        recipes=(contracted, loosened, replicated),
    ),
    Kind(
        name="batch dimensions",
        pattern=r"(?:(?P<primitive>dot_general) requires lhs batch dimensions and rhs batch dimensions|"
        r"Incompatible types for matmul arguments)",
        rule="{call} needs batch dimensions that are sharded alike",
        recipes=(agreed, loosened, replicated),
    ),
    Kind(
        name="unreduced axes",
        pattern=r"(?:out_sharding's unreduced axes should be|lhs and rhs contracting dims should be sharded)",
        rule="{call} can leave sums only over mesh axes that shard the contracted dimension of both operands",
        recipes=(reduced_result,),
    ),
    Kind(
        name="unreduced operand",
        pattern=r"(?:unreduced rule for )?(?P<primitive>\w+) is (?:a non-linear operation|not implemented)",
        rule="{call} needs the sums of its operand, which are not complete: it is unreduced",
        recipes=(loosened, replicated),
    ),
    Kind(
        name="another mesh",
        pattern=r"For primitive (?P<primitive>\w+), context mesh .* should match the aval mesh",
        rule="{call} needs operands on the mesh in context",
        recipes=(on_the_context_mesh,),
        place=with_arrays,
    ),
    Kind(
        name="ambiguous indexing",
        pattern=r"Use `\.at\[\.\.\.\]\.get\(out_sharding=\)`",
        rule="{call} indexes a sharded dimension, so the sharding of its result must be given",
        recipes=(
            given(indexed),
            loosened,
            replicated,
        ),
    ),
    Kind(
        name="ambiguous update",
        pattern=r"Use `\.at\[\.\.\.\]\.set/add/mul/\.\.\.\(out_sharding=\)`",
        rule="{call} writes to indices that are sharded, so the sharding of its result must be given",
        recipes=(
            given(lambda site: site.types[0].axes if site.types[0].used else ()),
            loosened,
            replicated,
        ),
    ),
    Kind(
        name="ambiguous reshape",
        pattern=r"This reshape is not supported\..*new sizes: \((?P<result>[\d, ]*)\)",
        rule="{call} merges or splits a sharded dimension, so the sharding of its result must be given",
        recipes=(reshaped, loosened, replicated),
    ),
    Kind(
        name="different operands",
        pattern=r"All operands should have the same sharding",
        rule="{call} needs operands with the same sharding",
        recipes=(as_another,),
    ),
    Kind(
        name="broadcast update",
        pattern=r"Incompatible types for broadcasting: input type=\S+ and requested type=",
        rule="{call} needs an update that is sharded as the part that it replaces",
        recipes=(updated, loosened, replicated),
    ),
    Kind(
        name="unmapped operand",
        pattern=r"Unmapped values passed to (?P<primitive>vmap) cannot be sharded along the mesh axis",
        rule="{call} needs operands that are not sharded over the mesh axes of the mapped dimension",
        recipes=(loosened, replicated),
    ),
    Kind(
        name="different cases",
        pattern=r"(?P<primitive>select) (?:cases|`which`) must (?:be scalar or )?have the same sharding",
        rule="{call} needs cases and a condition with the same sharding",
        recipes=(as_another, loosened, replicated),
    ),
    Kind(
        name="different update",
        pattern=r"(?P<primitive>dynamic_update_slice) operand sharding must be equal to update",
        rule="{call} needs an update with the sharding of its operand",
        recipes=(as_another,),
    ),
    Kind(
        name="sorted dimension",
        pattern=r"Arguments to (?P<primitive>sort) must be unsharded over .*dimension=(?P<dims>\d+)",
        rule="{call} needs a dimension to sort along that is not sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="accumulated dimension",
        pattern=r"Input should be unsharded over the axis being reduced\..*axis=(?P<dims>\d+)",
        rule="{call} accumulates along dimension {dims}, which must not be sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="flattened operand",
        pattern=r"The input should be fully replicated when axis is not specified",
        rule="{call} without an axis flattens its operand, which must not be sharded",
        recipes=(loosened, replicated),
    ),
    Kind(
        name="searched dimension",
        pattern=r"The input should be unsharded over .*(?P<primitive>top_k) values\..*axis=(?P<dims>\d+)",
        rule="{call} searches along dimension {dims}, which must not be sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="rolled dimension",
        pattern=r"`a` cannot be sharded on the axis being rolled over\..*axis=\((?P<dims>[\d, ]*)\)",
        rule="{call} needs dimensions to roll along that are not sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="tiled dimension",
        pattern=r"Operand cannot be sharded on dimension (?P<dims>\d+) when the tiling is non-trivial",
        rule="{call} tiles dimension {dims}, which must not be sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="unstacked dimension",
        pattern=r"(?P<primitive>unstack) operand cannot be sharded on the unstacking axis (?P<dims>\d+)",
        rule="{call} takes dimension {dims} apart, which must not be sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="indivisible result",
        pattern=r"(?P<primitive>\w+) on sharded dims where out dim .*? with spec \((?P<over>.*?)\) is not"
        r"(?:.*output shape=\((?P<result>.*)\))?",
        rule="{call} needs a result whose sharded dimensions are multiples of their mesh axes",
        recipes=(unsharded,),
    ),
    Kind(
        name="scanned dimension",
        pattern=r"(?P<dims>0)th dimension of all xs should be replicated",
        rule="{call} goes through the first dimension of its inputs, which must not be sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="convolution",
        pattern=r"Please specify the output sharding via .* of `(?P<primitive>conv_general_dilated)`",
        rule="{call} needs channels and positions that are not sharded",
        recipes=(loosened, replicated),
    ),
    Kind(
        name="linear algebra",
        pattern=r"Input \d+ to (?P<primitive>\w+) must be unsharded on non-batch dimensions",
        rule="{call} needs matrices that are not sharded",
        recipes=(loosened, replicated),
    ),
    Kind(
        name="triangular solve",
        pattern=r"triangular solve input `\w+` must be unsharded on the contracting axis",
        rule="{call} contracts a dimension of its matrix, which must not be sharded",
        recipes=(loosened, replicated),
    ),
    Kind(
        name="unknown size",
        pattern=r"Cannot apply (?P<primitive>nonzero) over sharded axes",
        rule="{call} searches all dimensions of its operand, which must not be sharded",
        recipes=(loosened, replicated),
    ),
    Kind(
        name="repeated dimension",
        pattern=r"Please pass sharding to `jnp\.(?P<primitive>repeat)`",
        rule="{call} repeats along a sharded dimension, so the sharding of its result must be given",
        recipes=(given(repeated),),
    ),
    Kind(
        name="counted values",
        pattern=r"out_sharding passed to `jnp\.(?P<primitive>bincount)` can only be fully replicated",
        rule="{call} has a result that is replicated, or unreduced over all mesh axes",
        recipes=(given(lambda site: ()),),
    ),
    Kind(
        name="no rule",
        pattern=r"(?:Explicit sharding inference|sharding rule) for (?P<primitive>\w+) is not",
        rule="{call} has no rule for the sharding of its result, so the compiler must choose it",
        recipes=(rewritten("{jax.sharding.auto_axes}({function}, out_sharding={rows})({args})"),),
    ),
    Kind(
        name="constraint on an Explicit axis",
        pattern=r"`(?P<primitive>with_sharding_constraint)` acts as an assert",
        rule="On Explicit mesh axes, a sharding constraint only checks the sharding: reshard changes it",
        recipes=(rewritten("{jax.sharding.reshard}({args})"),),
    ),
    Kind(
        name="reshard inside shard_map",
        pattern=r"PartitionSpec passed to (?P<primitive>reshard) cannot contain .*AxisType\.Manual",
        rule="Inside shard_map, each device has its own shard: reshard before it or after it",
        recipes=(rewritten("{0}"),),
    ),
    Kind(
        name="reshard on an Auto axis",
        pattern=r"PartitionSpec passed to (?P<primitive>reshard) cannot contain",
        rule="On Auto mesh axes, the compiler chooses the sharding, and a constraint directs it",
        recipes=(rewritten("{jax.lax.with_sharding_constraint}({args})"),),
    ),
    Kind(
        name="varying carry",
        pattern=_CARRY + r" .*?\{V:(?P<axes>[\w, ]+)\}",
        rule="{call} needs an initial value that varies over {axes}, as the result of its body does",
        recipes=(as_varying,),
    ),
    Kind(
        name="carry type",
        pattern=_CARRY,
        rule="{call} needs a body whose result is sharded as the carry that it is given",
        recipes=(started, resharded_result),
        place=at_the_start,
    ),
    Kind(
        name="branch type",
        pattern=r"(?P<primitive>cond) branches must have equal output .*?of true_fun(?P<path>.*?) has type",
        rule="{primitive} needs branches with results of one type, and so of one sharding",
        recipes=(resharded_result,),
        place=in_the_function,
    ),
    Kind(
        name="in_specs of shard_map",
        pattern=r"in_specs passed to (?P<primitive>shard_map): .* does not match the specs",
        rule="shard_map does not reshard on Explicit mesh axes: in_specs are the specs of the arguments",
        recipes=(as_wanted,),
    ),
    Kind(
        name="in_shardings of jit",
        pattern=r"Sharding passed to (?P<primitive>jit) does not match the sharding on the",
        rule="jit does not reshard on Explicit mesh axes: in_shardings are those of the arguments",
        recipes=(as_wanted,),
    ),
    Kind(
        name="varying result",
        pattern=r"(?P<primitive>shard_map) applied to .* require replication"
        r".*?varying over \{(?P<axes>[\w, ]+)\}(?P<path>)",
        rule="{primitive} promises a result that is replicated over {axes}, but each shard has its own",
        recipes=(reduced_over_shards,),
        place=in_the_function,
    ),
    Kind(
        name="mapped dimension",
        pattern=r"Mapped away dimension of inputs .*specs: (?P<one>.*?) vs (?P<other>.*)",
        rule="vmap needs operands whose mapped dimensions are sharded alike",
        recipes=(mapped_alike,),
    ),
    Kind(
        name="unknown mesh axis",
        pattern=r"Resource axis: (?P<wrong>\w+) of P\(.*?\) is not found in mesh",
        rule="The mesh has no axis {wrong}",
        recipes=(respecified(of_the_mesh),),
        place=with_the_spec,
    ),
    Kind(
        name="duplicate mesh axis",
        pattern=r"A single NamedSharding spec specification can map every mesh axis to at most one",
        rule="A mesh axis can shard only one dimension of an array",
        recipes=(respecified(each_once), loosened, replicated),
        place=with_the_spec,
    ),
    Kind(
        name="spec longer than the array",
        pattern=r"(?:Length of sharding\.spec \(\d+\) must be .*? ndim )?\((?P<rank>\d+)(?:\)\..*?|, )P\(",
        rule="The spec has more entries than the array has dimensions: it has {rank}",
        recipes=(respecified(of_the_rank),),
        place=with_the_spec,
    ),
    Kind(
        name="constraint without a mesh",
        pattern=r"(?P<primitive>with_sharding_constraint) requires a non-empty mesh in context",
        rule="A spec needs a mesh in context",
        recipes=(rewritten("{jax.device_put}({0}, {jax.sharding.NamedSharding}({mesh}, {1}))"),),
    ),
    Kind(
        name="mesh set inside jit",
        pattern=r"`(?P<primitive>set_mesh)` can only be used outside of `jax\.jit`",
        rule="A traced function cannot set the mesh: set it before the call, or use the abstract mesh",
        recipes=(rewritten("{jax.sharding.use_abstract_mesh}({0}.abstract_mesh)"),),
    ),
    Kind(
        name="keyword",
        pattern=r"(?P<primitive>\w+)\(\) got an unexpected keyword .*?'(?P<wrong>(?:out|in)_sharding\w*)'",
        rule="{primitive} has no parameter {wrong}",
        recipes=(keyword_renamed,),
    ),
    Kind(
        name="incompatible devices",
        pattern=r"Received incompatible devices for \w+ computation",
        rule="All arrays and shardings of a computation must be on the same devices{order}.",
        recipes=(moved, outside_the_mesh),
        facts=different_devices,
    ),
    Kind(
        name="array of several processes",
        pattern=r"Fetching value for `jax\.Array` that spans non-addressable",
        rule="Other processes have shards of {name}: all of them gather it, by process_allgather of"
        " jax.experimental.multihost_utils.",
        recipes=(gathered,),
        facts=in_other_processes,
    ),
    Kind(
        name="closure over an array of several processes",
        pattern=r"Closing over jax\.Array that spans non-addressable .*Got jax\.Array: (?P<type>\S+)",
        rule="{function} closes over {names}, with shards in other processes: pass it as an argument.",
        facts=closed_over,
    ),
    Kind(
        name="size not divisible",
        pattern=r".*?(?:array axis|dimension) (?P<dim>\d{1,9}) (?:is partitioned|should be divisible by)"
        r" (?P<parts>[1-9]\d{0,17})(?: times)?, but (?:the dimension size is|it is equal to|does not evenly"
        r" divide the dimension size) (?P<size>\d{1,18})",
        rule="Dimension {dim} has {size} elements, which cannot be divided into {parts} shards{over}."
        " The nearest sizes that can: {nearest}.",
        recipes=(respecified(divisors),),
        place=with_the_spec,
        facts=indivisible,
    ),
    Kind(
        name="donated twice",
        pattern=r"INVALID_ARGUMENT: Attempt to (?:donate the same buffer twice|use a buffer that was)",
        rule="The call donates an array that it gets twice{names}.",
        recipes=(copied,),
        facts=donated_twice,
    ),
    Kind(
        name="deleted array",
        pattern=r"Array has been deleted|INVALID_ARGUMENT: .*buffer has been deleted or donated",
        rule="The memory of {name} is gone: it was {what}.",
        facts=deleted,
    ),
    Kind(
        name="leaked value",
        pattern=r"Encountered an unexpected tracer\.(?>.*?with type (?P<type>\S+) wrapped)"
        r"(?>.*?leaked was (?P<function>\S+) at )(?>.*? traced for (?P<by>\w+)\.)"
        r".*?created on line (?P<made>\S+:\d{1,9}:\d+) ",
        rule="{function} has left a value of its tracing for {by}{holder}: return the value instead.",
        facts=leaked,
    ),
    Kind(
        name="leaked value",
        pattern=r"Leaked trace (?>.*?tracing the function (?P<function>\S+) at )(?>.*? for (?P<by>\w+)\.)"
        r".*?\((?P<holder>\S+)\) closed-over variable (?P<variable>\w+)",
        rule="{function} has left a value of its tracing for {by} in {variable}, which {holder} closes over:"
        " return the value instead.",
        facts=lambda match, place: Facts({}, ()),
    ),
)
"""The first kind that matches the beginning of a message explains it."""
