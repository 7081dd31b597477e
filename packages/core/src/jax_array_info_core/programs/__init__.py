"""Facts about compiled programs: collectives, memory, donations, replication, differences, gates.

propagation: why a value is sharded, from Shardy. recompiles: why a function was compiled again. raised:
errors of JAX explained. advice: changes of the source that are tried. log_kinds: kinds of lines in logs.
"""
