"""``jai-cli run``: the processes of a program, started, joined, relayed and ended together."""
