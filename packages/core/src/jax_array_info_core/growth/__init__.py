"""What grows from step to step, and what is said when memory is exhausted."""
