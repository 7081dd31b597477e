"""Why each value of a program is sharded as it is: Shardy's propagation, without a compilation."""
