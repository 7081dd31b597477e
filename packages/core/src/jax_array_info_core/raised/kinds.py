"""Kinds of errors that JAX raises in Explicit mode: message, rule and recipes for edits."""

from __future__ import annotations

from .kind import Kind
from .places import in_the_function, with_arrays, with_the_spec
from .recipes import (
    agreed,
    apart,
    as_another,
    as_wanted,
    broadcast_as_another,
    contracted,
    given,
    indexed,
    mapped_alike,
    repeated,
    replicated,
    reshaped,
    unsharded,
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

_LOOP = r"(?P<primitive>scan|while_loop|fori_loop) body function carry input and carry output must have equal types"

KINDS: tuple[Kind, ...] = (
    Kind(
        name="incompatible operands",
        pattern=r"(?P<primitive>\w+) got incompatible shardings for broadcasting",
        rule="{call} needs operands that are sharded alike along each dimension",
        recipes=(broadcast_as_another,),
    ),
    Kind(
        name="illegal contraction",
        pattern=r"(?P<primitive>dot_general) operation with inputs: .* produces an illegally sharded result: (?P<shown>\S+)",
        rule="{call} would have the type {shown}, but a mesh axis can shard only one dimension",
        recipes=(contracted, apart),
    ),
    Kind(
        name="illegal result",
        pattern=r"(?P<primitive>\w+) operation with inputs: .* produces an illegally sharded result: (?P<shown>\S+)",
        rule="{call} would have the type {shown}, but a mesh axis can shard only one dimension",
        recipes=(broadcast_as_another, apart),
    ),
    Kind(
        name="ambiguous contraction",
        pattern=r"Contracting dimensions are sharded and it is ambiguous how the output should be sharded",
        rule="{call} contracts a dimension that is sharded, so the sharding of its result must be given",
        recipes=(contracted, replicated),
    ),
    Kind(
        name="batch dimensions",
        pattern=r"(?P<primitive>dot_general) requires lhs batch dimensions and rhs batch dimensions to have the (?:same|consistent) sharding",
        rule="{call} needs batch dimensions that are sharded alike",
        recipes=(agreed,),
    ),
    Kind(
        name="unreduced axes",
        pattern=r"(?:out_sharding's unreduced axes should be equal to the contracting specs|lhs and rhs contracting "
        r"dims should be sharded identically when out_sharding provided to dot_general mentions unreduced)",
        rule="the unreduced axes of a result must be those along which both operands are sharded where {call} contracts them",
        recipes=(reduced_result,),
    ),
    Kind(
        name="unreduced operand",
        pattern=r"(?:(?P<primitive>\w+) is a non-linear operation and cannot accept input that is unreduced|unreduced rule for (?P<rule>\w+) is not implemented)",
        rule="{call} is not linear, so its operand must not be a partial sum",
        recipes=(replicated,),
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
        pattern=r"Use `\.at\[\.\.\.\]\.get\(out_sharding=\)` to provide output PartitionSpec for the gather",
        rule="{call} indexes a dimension that is sharded, so the sharding of its result must be given",
        recipes=(given(indexed), replicated),
    ),
    Kind(
        name="ambiguous update",
        pattern=r"Use `\.at\[\.\.\.\]\.set/add/mul/\.\.\.\(out_sharding=\)` to provide output PartitionSpec for the scatter",
        rule="{call} updates values at sharded indices, so the sharding of its result must be given",
        recipes=(given(lambda site: site.types[0].axes), replicated),
    ),
    Kind(
        name="ambiguous reshape",
        pattern=r"This reshape is not supported\..*new sizes: \((?P<result>[\d, ]*)\)",
        rule="{call} merges or splits a dimension that is sharded, so the sharding of its result must be given",
        recipes=(reshaped,),
    ),
    Kind(
        name="different operands",
        pattern=r"All operands should have the same sharding",
        rule="{call} needs operands with the same sharding",
        recipes=(as_another,),
    ),
    Kind(
        name="different cases",
        pattern=r"(?P<primitive>select) (?:cases must have the same shardings|`which` must be scalar or have the same sharding as cases)",
        rule="{call} needs cases, and a condition, with the same sharding",
        recipes=(as_another, replicated),
    ),
    Kind(
        name="different update",
        pattern=r"(?P<primitive>dynamic_update_slice) operand sharding must be equal to update sharding",
        rule="{call} needs an update with the sharding of the operand",
        recipes=(as_another,),
    ),
    Kind(
        name="sorted dimension",
        pattern=r"Arguments to (?P<primitive>sort) must be unsharded over the sorting dimension\..*dimension=(?P<dims>\d+)",
        rule="{call} sorts along a dimension, which must not be sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="accumulated dimension",
        pattern=r"Input should be unsharded over the axis being reduced\. .*axis=(?P<dims>\d+)",
        rule="{call} accumulates along dimension {dims}, which must not be sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="flattened operand",
        pattern=r"The input should be fully replicated when axis is not specified to (?P<primitive>\w+)",
        rule="{call} without an axis flattens its operand, which must not be sharded",
        recipes=(replicated,),
    ),
    Kind(
        name="searched dimension",
        pattern=r"The input should be unsharded over the axis along which to compute the (?P<primitive>top_k) values\. "
        r".*axis=(?P<dims>\d+)",
        rule="{call} searches along dimension {dims}, which must not be sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="rolled dimension",
        pattern=r"`a` cannot be sharded on the axis being rolled over\..*axis=\((?P<dims>[\d, ]*)\)",
        rule="{call} rolls along dimensions that must not be sharded",
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
        pattern=r"(?P<primitive>\w+) on sharded dims where out dim \(\d+\) is not divisible by mesh axes \(\d+\) "
        r"with spec \((?P<over>[^()]*)\)",
        rule="{call} needs a result whose sharded dimensions the mesh axes divide",
        recipes=(unsharded,),
    ),
    Kind(
        name="scanned dimension",
        pattern=r"(?P<dims>0)th dimension of all xs should be replicated\.",
        rule="{call} goes through the first dimension of its inputs, which must not be sharded",
        recipes=(unsharded,),
    ),
    Kind(
        name="convolution",
        pattern=r"Please specify the output sharding via `out_sharding` parameter of `(?P<primitive>conv_general_dilated)`",
        rule="{call} slides along dimensions, or sums over channels, which must not be sharded",
        recipes=(replicated,),
    ),
    Kind(
        name="linear algebra",
        pattern=r"Input \d+ to (?P<primitive>\w+) must be unsharded on non-batch dimensions",
        rule="{call} needs matrices that are not sharded",
        recipes=(replicated,),
    ),
    Kind(
        name="triangular solve",
        pattern=r"(?P<primitive>triangular solve) input `\w+` must be unsharded on the contracting axis",
        rule="{call} contracts a dimension of its matrix, which must not be sharded",
        recipes=(replicated,),
    ),
    Kind(
        name="unknown size",
        pattern=r"Cannot apply (?P<primitive>nonzero) over sharded axes",
        rule="{call} searches all dimensions of its operand, which must not be sharded",
        recipes=(replicated,),
    ),
    Kind(
        name="repeated dimension",
        pattern=r"Please pass sharding to `jnp\.(?P<primitive>repeat)` via `out_sharding` parameter",
        rule="{call} repeats along a dimension that is sharded, so the sharding of its result must be given",
        recipes=(given(repeated),),
    ),
    Kind(
        name="counted values",
        pattern=r"out_sharding passed to `jnp\.(?P<primitive>bincount)` can only be fully replicated or fully unreduced",
        rule="{call} has a result that is replicated, or unreduced over all mesh axes",
        recipes=(given(lambda site: ()),),
    ),
    Kind(
        name="no rule",
        pattern=r"(?:Explicit sharding inference|sharding rule) for (?P<primitive>\w+) is not (?:currently )?implemented",
        rule="{call} has no rule for the sharding of its result, so the compiler must choose it",
        recipes=(rewritten("{jax.sharding.auto_axes}({function}, out_sharding={rows})({args})"),),
    ),
    Kind(
        name="constraint on an Explicit axis",
        pattern=r"`(?P<primitive>with_sharding_constraint)` acts as an assert when all axes of mesh are of type `Explicit`",
        rule="on Explicit mesh axes a sharding constraint changes nothing: it checks the sharding, and reshard changes it",
        recipes=(rewritten("{jax.sharding.reshard}({args})"),),
    ),
    Kind(
        name="reshard inside shard_map",
        pattern=r"PartitionSpec passed to (?P<primitive>reshard) cannot contain axis names that are of type Auto or Manual\.?.*AxisType\.Manual",
        rule="inside shard_map each device has its own shard, which reshard cannot change: reshard before or after shard_map",
        recipes=(rewritten("{0}"),),
    ),
    Kind(
        name="reshard on an Auto axis",
        pattern=r"PartitionSpec passed to (?P<primitive>reshard) cannot contain axis names that are of type Auto or Manual",
        rule="reshard is for Explicit mesh axes: on Auto axes the compiler chooses, and a sharding constraint directs it",
        recipes=(rewritten("{jax.lax.with_sharding_constraint}({args})"),),
    ),
    Kind(
        name="varying carry",
        pattern=_LOOP
        + r".*?The input carry (?:component )?(?P<path>\S+) has type .*?\{V:(?P<axes>[\w, ]+)\}",
        rule="{call} needs a carry of one type: its initial value must vary over the mesh axes {axes}, as its result does",
        recipes=(as_varying,),
    ),
    Kind(
        name="carry type",
        pattern=_LOOP + r".*?The input carry (?:component )?(?P<path>\S+) has type",
        rule="{primitive} needs a carry of one type: the result of its body must be sharded as the carry that it was given",
        recipes=(resharded_result,),
        place=in_the_function,
    ),
    Kind(
        name="branch type",
        pattern=r"(?P<primitive>cond) branches must have equal output types but they differ\..*?The output of true_fun(?P<path>.*?)has type",
        rule="{primitive} needs branches with results of one type, which includes the sharding",
        recipes=(resharded_result,),
        place=in_the_function,
    ),
    Kind(
        name="in_specs of shard_map",
        pattern=r"in_specs passed to (?P<primitive>shard_map): .* does not match the specs of the input",
        rule="shard_map on Explicit mesh axes does not reshard: its in_specs must be the specs of its arguments",
        recipes=(as_wanted,),
    ),
    Kind(
        name="in_shardings of jit",
        pattern=r"Sharding passed to (?P<primitive>jit) does not match the sharding on the respective arg",
        rule="jit on Explicit mesh axes does not reshard: its in_shardings must be the shardings of its arguments",
        recipes=(as_wanted,),
    ),
    Kind(
        name="varying result",
        pattern=r"(?P<primitive>shard_map) applied to the function .* was given out_specs which require replication which "
        r"can't be statically inferred.*?varying over \{(?P<axes>[\w, ]+)\}(?P<path>)",
        rule="shard_map promises a result that is replicated over {axes}, but each shard computes its own",
        recipes=(reduced_over_shards,),
        place=in_the_function,
    ),
    Kind(
        name="mapped dimension",
        pattern=r"Mapped away dimension of inputs passed to (?P<primitive>vmap) should be sharded the same\. Got inconsistent "
        r"axis specs: (?P<one>.*?) vs (?P<other>.*)",
        rule="vmap needs operands whose mapped dimensions are sharded alike",
        recipes=(mapped_alike,),
    ),
    Kind(
        name="unknown mesh axis",
        pattern=r"Resource axis: (?P<wrong>\w+) of P\(.*?\) is not found in mesh",
        rule="the mesh has no axis {wrong}",
        recipes=(respecified(of_the_mesh),),
        place=with_the_spec,
    ),
    Kind(
        name="duplicate mesh axis",
        pattern=r"A single NamedSharding spec specification can map every mesh axis to at most one positional dimension, but P\(.*",
        rule="a mesh axis can shard only one dimension of an array",
        recipes=(respecified(each_once),),
        place=with_the_spec,
    ),
    Kind(
        name="spec longer than the array",
        pattern=r"(?:Length of sharding\.spec \(\d+\) must be equal to aval's ndim )?\((?P<rank>\d+)(?:\)\..*?|, )P\(",
        rule="the spec has more entries than the array has dimensions, {rank}",
        recipes=(respecified(of_the_rank),),
        place=with_the_spec,
    ),
    Kind(
        name="constraint without a mesh",
        pattern=r"(?P<primitive>with_sharding_constraint) requires a non-empty mesh in context if you are passing `PartitionSpec`s",
        rule="a spec needs a mesh in context",
        recipes=(rewritten("{jax.device_put}({0}, {jax.sharding.NamedSharding}({mesh}, {1}))"),),
    ),
    Kind(
        name="mesh set inside jit",
        pattern=r"`(?P<primitive>set_mesh)` can only be used outside of `jax\.jit`",
        rule="a traced function cannot set the mesh: set it before the call, or enter the abstract mesh inside",
        recipes=(rewritten("{jax.sharding.use_abstract_mesh}({0}.abstract_mesh)"),),
    ),
    Kind(
        name="keyword",
        pattern=r"(?P<primitive>\w+)\(\) got an unexpected keyword argument '(?P<wrong>(?:out|in)_sharding\w*)'",
        rule="{primitive} has no parameter {wrong}",
        recipes=(keyword_renamed,),
    ),
)
"""The first kind that matches the beginning of a message explains it."""
