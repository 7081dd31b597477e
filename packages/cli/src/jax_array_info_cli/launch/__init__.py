"""Process management of ``jai-cli run``: start, join, relay and stop the processes of a program."""
